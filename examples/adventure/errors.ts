export interface GameErrorOptions {
  readonly code: string;
  /** What the reader can do about it, as a sentence. */
  readonly remedy: string;
}

/** The game, or what was asked of it, is not what the environment can work with. */
export class GameError extends Error {
  override readonly name = "GameError";
  readonly code: string;
  readonly remedy: string;

  constructor(message: string, options: GameErrorOptions) {
    super(message);
    this.code = options.code;
    this.remedy = options.remedy;
  }
}
