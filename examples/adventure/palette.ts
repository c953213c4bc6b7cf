/** Colours of discovery, early to late: equal steps look equally far apart, also in grey and to the colour-blind. */

/** After viridis (Smith and van der Walt, 2015, public domain), every eighth of its range. */
export const GRADIENT = [
  "#440154",
  "#472d7b",
  "#3b528b",
  "#2c728e",
  "#21918c",
  "#28ae80",
  "#5ec962",
  "#addc30",
  "#fde725",
] as const;

/** `share` from 0 to 1. */
export function colourAt(share: number): string {
  const place = Math.min(1, Math.max(0, share)) * (GRADIENT.length - 1);
  const index = Math.min(GRADIENT.length - 2, Math.floor(place));
  const [from, to] = [channels(GRADIENT[index] ?? ""), channels(GRADIENT[index + 1] ?? "")];
  const mixed = from.map((value, channel) => value + ((to[channel] ?? value) - value) * (place - index));
  return `#${mixed.map((value) => Math.round(value).toString(16).padStart(2, "0")).join("")}`;
}

/** Black or white, whichever reads better on a colour. */
export function inkOn(colour: string): string {
  const [red = 0, green = 0, blue = 0] = channels(colour);
  return 0.299 * red + 0.587 * green + 0.114 * blue > 140 ? "#1d1b24" : "#ffffff";
}

function channels(colour: string): readonly number[] {
  return [1, 3, 5].map((at) => Number.parseInt(colour.slice(at, at + 2), 16));
}
