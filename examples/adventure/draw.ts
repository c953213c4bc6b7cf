/** Draws a map as an SVG document that needs nothing else: no script, no font, no file. */

import { type Cell, layOut } from "./layout.js";
import type { CaveMap, MapPassage, MapRoom } from "./map.js";
import { colourAt, GRADIENT, inkOn } from "./palette.js";

export interface DrawOptions {
  /** Default: "Colossal Cave, as discovered". */
  readonly title?: string;
}

/** Pixels. */
const BOX = { width: 132, height: 42, round: 8 };
const PITCH = { x: 206, y: 92 };
const MARGIN = 44;
const HEADER = 92;
const LEGEND = 92;
/** Between the lowest place outdoors and the highest in the cave, where the ground is drawn. */
const GROUND = 34;
const LINE_LETTERS = 17;
const WORD_LETTERS = 11;

const INK = { text: "#2b2a33", faint: "#6c6875", line: "#8d8794", best: "#e4572e", magic: "#7b4fb5" } as const;
const PAPER = { outdoors: "#eaf3e6", cave: "#f4efe8", ground: "#a98f6b" } as const;

/** Words on a passage, short enough to sit at its end. */
const SHORT: Readonly<Record<string, string>> = {
  north: "N",
  south: "S",
  east: "E",
  west: "W",
  ne: "NE",
  se: "SE",
  sw: "SW",
  nw: "NW",
  up: "U",
  down: "D",
};

interface Place extends MapRoom {
  /** Centre. */
  readonly x: number;
  readonly y: number;
}

interface Picture {
  readonly map: CaveMap;
  readonly places: ReadonlyMap<string, Place>;
  readonly width: number;
  readonly height: number;
  readonly groundY: number | undefined;
  /** The step that found the last room. */
  readonly lastFound: number;
}

export function drawMap(map: CaveMap, options: DrawOptions = {}): string {
  const picture = compose(map);
  const { width, height } = picture;
  return [
    `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${width} ${height}" width="${width}" height="${height}"`,
    ` font-family="Helvetica, Arial, 'Liberation Sans', 'DejaVu Sans', sans-serif">`,
    background(picture),
    header(picture, options.title ?? "Colossal Cave, as discovered"),
    ...map.passages.filter(({ best }) => best).map((passage) => trail(passage, picture)),
    ...map.passages.map((passage) => line(passage, picture)),
    ...[...picture.places.values()].map((place) => room(place, picture)),
    ...map.passages.map((passage) => words(passage, picture)),
    ...tags(picture),
    legend(picture),
    "</svg>",
    "",
  ].join("\n");
}

function compose(map: CaveMap): Picture {
  const cells = layOut(map);
  const rows = ranks([...cells.values()].map(({ y }) => y));
  const columns = ranks([...cells.values()].map(({ x }) => x));
  const outdoorRows = new Set([...cells.values()].filter(({ y }) => y < 0).map(({ y }) => y)).size;
  const hasCave = rows.size > outdoorRows;
  const offset = (row: number): number => (row >= outdoorRows && outdoorRows > 0 ? GROUND : 0);
  const at = ({ x, y }: Cell): { x: number; y: number } => {
    const [column = 0, row = 0] = [columns.get(x), rows.get(y)];
    return {
      x: MARGIN + BOX.width / 2 + column * PITCH.x,
      y: HEADER + MARGIN + BOX.height / 2 + row * PITCH.y + offset(row),
    };
  };
  const places = new Map(map.rooms.map((entry) => [entry.name, { ...entry, ...at(cells.get(entry.name) as Cell) }]));
  const bottom = Math.max(...[...places.values()].map(({ y }) => y)) + BOX.height / 2 + MARGIN;
  const right = Math.max(...[...places.values()].map(({ x }) => x)) + BOX.width / 2 + MARGIN;
  const groundY = hasCave && outdoorRows > 0 ? HEADER + MARGIN + outdoorRows * PITCH.y - 8 : undefined;
  return {
    map,
    places,
    width: Math.max(right, 860),
    height: bottom + LEGEND,
    groundY,
    lastFound: Math.max(1, ...map.rooms.map(({ found }) => found)),
  };
}

/** Position among the different values: rows and columns that nothing stands in are left out. */
function ranks(values: readonly number[]): ReadonlyMap<number, number> {
  return new Map([...new Set(values)].sort((left, right) => left - right).map((value, rank) => [value, rank]));
}

function background({ width, height, groundY, places }: Picture): string {
  const end = height - LEGEND;
  const hasOutdoors = [...places.values()].some(({ outdoors }) => outdoors);
  const split = groundY ?? (hasOutdoors ? end : HEADER);
  const parts = [
    `<rect width="${width}" height="${height}" fill="#ffffff"/>`,
    `<rect y="${HEADER}" width="${width}" height="${split - HEADER}" fill="${PAPER.outdoors}"/>`,
    `<rect y="${split}" width="${width}" height="${end - split}" fill="${PAPER.cave}"/>`,
  ];
  if (hasOutdoors) parts.push(caption("ABOVE GROUND", 14, HEADER + 20));
  if (groundY === undefined) return parts.join("\n");
  parts.push(`<path d="${groundLine(width, groundY)}" fill="none" stroke="${PAPER.ground}" stroke-width="5"/>`);
  parts.push(caption("THE CAVE", 14, groundY + 24));
  return parts.join("\n");
}

function caption(text: string, x: number, y: number): string {
  return `<text x="${x}" y="${y}" font-size="11" letter-spacing="2" fill="${INK.faint}">${text}</text>`;
}

/** A gentle wave, so that the ground does not look like a passage. */
function groundLine(width: number, y: number): string {
  const points = [`M 0 ${y}`];
  for (let x = 0; x < width; x += 60) points.push(`q 15 -7 30 0 t 30 0`);
  return points.join(" ");
}

function header({ map, width }: Picture, title: string): string {
  const { rooms, passages, steps } = map;
  const count = (list: readonly unknown[], thing: string): string =>
    `${list.length} ${thing}${list.length === 1 ? "" : "s"}`;
  const facts = `${count(rooms, "room")} and ${count(passages, "passage")}, found in ${steps.toLocaleString("en-US")} steps`;
  return [
    `<text x="${MARGIN}" y="46" font-size="26" font-weight="bold" fill="${INK.text}">${escaped(title)}</text>`,
    `<text x="${MARGIN}" y="72" font-size="15" fill="${INK.faint}">${facts}</text>`,
    `<line y1="${HEADER}" x2="${width}" y2="${HEADER}" stroke="#d9d4dc"/>`,
  ].join("\n");
}

function ends(passage: MapPassage, { places }: Picture): { a: Place; b: Place } {
  return { a: places.get(passage.a) as Place, b: places.get(passage.b) as Place };
}

/** Magic leaps over everything: a bow, so that it is told apart from what it crosses. */
function bowOf(a: Place, b: Place): { x: number; y: number } {
  return { x: (a.x + b.x) / 2 + (b.y - a.y) * 0.18, y: (a.y + b.y) / 2 - (b.x - a.x) * 0.18 };
}

function pathOf(passage: MapPassage, picture: Picture): string {
  const { a, b } = ends(passage, picture);
  if (!passage.magic) return `M ${a.x} ${a.y} L ${b.x} ${b.y}`;
  const bow = bowOf(a, b);
  return `M ${a.x} ${a.y} Q ${round(bow.x)} ${round(bow.y)} ${b.x} ${b.y}`;
}

function trail(passage: MapPassage, picture: Picture): string {
  const style = `stroke="${INK.best}" stroke-opacity="0.55" stroke-width="9" stroke-linecap="round"`;
  return `<path d="${pathOf(passage, picture)}" fill="none" ${style}/>`;
}

function line(passage: MapPassage, picture: Picture): string {
  const style = passage.magic
    ? `stroke="${INK.magic}" stroke-width="1.6" stroke-dasharray="2 5" stroke-linecap="round"`
    : `stroke="${INK.line}" stroke-width="1.8"`;
  return `<path d="${pathOf(passage, picture)}" fill="none" ${style}/>${arrow(passage, picture)}`;
}

/** At the far end of a passage that was walked one way only. */
function arrow(passage: MapPassage, picture: Picture): string {
  if (passage.magic || (passage.there.length > 0 && passage.back.length > 0)) return "";
  const { a, b } = ends(passage, picture);
  const [from, to] = passage.there.length > 0 ? [a, b] : [b, a];
  const tip = atEdge(to, from, 1);
  const angle = (Math.atan2(to.y - from.y, to.x - from.x) * 180) / Math.PI;
  const place = `translate(${round(tip.x)} ${round(tip.y)}) rotate(${round(angle)})`;
  return `<path d="M 0 0 L -11 -5.5 L -11 5.5 Z" transform="${place}" fill="${INK.line}"/>`;
}

/** The point on the line from a room towards another that lies `gap` pixels outside its box. */
function atEdge(room: Place, towards: { x: number; y: number }, gap: number): { x: number; y: number } {
  const [dx, dy] = [towards.x - room.x, towards.y - room.y];
  const length = Math.hypot(dx, dy);
  const scale = Math.min(
    dx === 0 ? Number.POSITIVE_INFINITY : BOX.width / 2 / Math.abs(dx),
    dy === 0 ? Number.POSITIVE_INFINITY : BOX.height / 2 / Math.abs(dy),
  );
  return { x: room.x + dx * scale + (dx / length) * gap, y: room.y + dy * scale + (dy / length) * gap };
}

function words(passage: MapPassage, picture: Picture): string {
  const { a, b } = ends(passage, picture);
  if (!passage.magic) return word(passage.there, a, b) + word(passage.back, b, a);
  // On the bow and clear of the box, where the other words are.
  const bow = bowOf(a, b);
  const near = (from: Place): { x: number; y: number } => {
    const share = 70 / Math.max(70, Math.hypot(bow.x - from.x, bow.y - from.y));
    return { x: from.x + (bow.x - from.x) * share, y: from.y + (bow.y - from.y) * share + 4 };
  };
  return [passage.there.length > 0 ? a : undefined, passage.back.length > 0 ? b : undefined]
    .flatMap((from) =>
      from === undefined
        ? []
        : [label(shortened([...new Set([...passage.there, ...passage.back])]), near(from), INK.magic)],
    )
    .join("");
}

/** At the end where it is said: beside a steep passage, and above or below a level one, where two have to share. */
function word(list: readonly string[], from: Place, to: Place): string {
  if (list.length === 0) return "";
  const text = shortened(list);
  const isLevel = Math.abs(to.y - from.y) < BOX.height;
  const towards = Math.sign(to.x - from.x);
  const edge = atEdge(from, to, isLevel ? 5 : 11);
  if (!isLevel) {
    const shift = Math.sign(Math.round(to.x - from.x)) * text.length * 1.5;
    return label(text, { x: edge.x + shift, y: edge.y + 4 }, INK.text);
  }
  return label(text, { x: edge.x, y: edge.y - towards * 8 + 4 }, INK.text, towards > 0 ? "start" : "end");
}

function label(text: string, at: { x: number; y: number }, colour: string, anchor = "middle"): string {
  const style = `font-size="11" font-weight="bold" text-anchor="${anchor}" fill="${colour}"`;
  const halo = `stroke="#fffdfa" stroke-width="3" stroke-linejoin="round" paint-order="stroke"`;
  return `<text x="${round(at.x)}" y="${round(at.y)}" ${style} ${halo}>${escaped(text)}</text>`;
}

/** Directions first, because they are short; what does not fit is dotted. */
function shortened(list: readonly string[]): string {
  const short = list.map((entry) => SHORT[entry] ?? entry).sort((left, right) => left.length - right.length);
  let text = short[0] ?? "";
  for (const [index, next] of short.entries()) {
    if (index === 0) continue;
    if (text.length + next.length + 1 > WORD_LETTERS) return `${text} …`;
    text = `${text} ${next}`;
  }
  return text;
}

function room(place: Place, picture: Picture): string {
  const { map, lastFound } = picture;
  const fill = colourAt(place.found / lastFound);
  const isStart = place.name === map.start;
  const isEnd = place.name === map.end;
  const stroke = isStart || isEnd ? `stroke="${isEnd ? INK.best : INK.text}" stroke-width="3.5"` : `stroke="#5f5966"`;
  const corner = { x: place.x - BOX.width / 2, y: place.y - BOX.height / 2 };
  const lines = wrap(place.name);
  const first = place.y + 4.5 - (lines.length - 1) * 7.5;
  return [
    `<g><title>${escaped(place.name)}: found at step ${place.found}</title>`,
    `<rect x="${corner.x}" y="${corner.y}" width="${BOX.width}" height="${BOX.height}" rx="${BOX.round}" fill="${fill}" ${stroke}/>`,
    ...lines.map((text, index) => {
      const style = `font-size="13" text-anchor="middle" fill="${inkOn(fill)}"`;
      return `<text x="${place.x}" y="${first + index * 15}" ${style}>${escaped(text)}</text>`;
    }),
    "</g>",
  ].join("");
}

/** Above the words, which may touch the rooms that they lead from. */
function tags({ map, places }: Picture): readonly string[] {
  const corner = (name: string | undefined) => {
    const place = name === undefined ? undefined : places.get(name);
    return place === undefined ? undefined : { x: place.x - BOX.width / 2, y: place.y - BOX.height / 2 };
  };
  const [start, end] = [corner(map.start), corner(map.end)];
  return [
    start === undefined ? "" : tag("START", start, INK.text),
    end === undefined ? "" : tag("BEST", { x: end.x + BOX.width - 50, y: end.y }, INK.best),
  ];
}

function tag(text: string, { x, y }: { x: number; y: number }, fill: string): string {
  const width = text.length * 7.4 + 12;
  return (
    `<rect x="${x + 4}" y="${y - 9}" width="${width}" height="15" rx="7.5" fill="${fill}"/>` +
    `<text x="${x + 4 + width / 2}" y="${y + 2.5}" font-size="10" font-weight="bold" text-anchor="middle" fill="#fff">${text}</text>`
  );
}

/** At most two lines, broken where both are about equally long. */
function wrap(name: string): readonly string[] {
  if (name.length <= LINE_LETTERS) return [name];
  const spaces = [...name.matchAll(/ /g)].map(({ index }) => index);
  const middle = name.length / 2;
  const cut = spaces.sort((left, right) => Math.abs(left - middle) - Math.abs(right - middle))[0];
  const lines = cut === undefined ? [name] : [name.slice(0, cut), name.slice(cut + 1)];
  return lines.map((text) => (text.length > LINE_LETTERS + 3 ? `${text.slice(0, LINE_LETTERS + 2)}…` : text));
}

function legend(picture: Picture): string {
  const { width, height, lastFound } = picture;
  const top = height - LEGEND;
  const y = top + 40;
  const bar = { x: MARGIN, width: 220 };
  const stops = GRADIENT.map((colour, index) => {
    return `<stop offset="${round(index / (GRADIENT.length - 1))}" stop-color="${colour}"/>`;
  });
  const note = (x: number, text: string, anchor = "start"): string =>
    `<text x="${x}" y="${y + 32}" font-size="12" text-anchor="${anchor}" fill="${INK.faint}">${text}</text>`;
  const parts = [
    `<line y1="${top}" x2="${width}" y2="${top}" stroke="#d9d4dc"/>`,
    `<defs><linearGradient id="found">${stops.join("")}</linearGradient></defs>`,
    `<text x="${bar.x}" y="${y - 12}" font-size="12" fill="${INK.text}">Room found at step</text>`,
    `<rect x="${bar.x}" y="${y}" width="${bar.width}" height="16" rx="4" fill="url(#found)" stroke="#5f5966"/>`,
    note(bar.x, "0"),
    note(bar.x + bar.width, lastFound.toLocaleString("en-US"), "end"),
    ...legendLines(picture, y + 8),
  ];
  return parts.join("\n");
}

function legendLines({ map }: Picture, y: number): readonly string[] {
  const sample = (x: number, style: string): string => `<line x1="${x}" y1="${y}" x2="${x + 44}" y2="${y}" ${style}/>`;
  const text = (x: number, words: string): string =>
    `<text x="${x + 54}" y="${y + 4.5}" font-size="12" fill="${INK.text}">${words}</text>`;
  const passage = `stroke="${INK.line}" stroke-width="1.8"`;
  const lines = [
    sample(310, passage) + text(310, "passage, with the word to say at each end"),
    sample(640, passage) +
      `<path d="M 684 ${y} l -11 -5.5 v 11 Z" fill="${INK.line}"/>` +
      text(640, "walked one way only"),
  ];
  const magic = map.passages.some((entry) => entry.magic);
  const best = map.passages.some((entry) => entry.best);
  const row = y + 28;
  const second = (x: number, style: string, words: string): string =>
    `<g transform="translate(0 ${row - y})">${sample(x, style)}${text(x, words)}</g>`;
  if (magic) lines.push(second(310, `stroke="${INK.magic}" stroke-width="1.6" stroke-dasharray="2 5"`, "magic word"));
  if (best) lines.push(second(640, `stroke="${INK.best}" stroke-opacity="0.55" stroke-width="9"`, "best trajectory"));
  return lines;
}

function round(value: number): number {
  return Math.round(value * 100) / 100;
}

function escaped(text: string): string {
  return text.replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;").replace(/"/g, "&quot;");
}
