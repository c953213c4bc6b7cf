/** `path`: where the generation is, unless in `/run/coppice/generation`. */
export function everyLife(reseed: (seed: Buffer) => void, path?: string): () => boolean;
export function watchLives(onLife: () => void, path?: string): () => void;
