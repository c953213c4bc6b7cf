import { CoppiceError } from "../../index.js";

type GameErrorCode = "GAME_COMMAND_INVALID" | "GAME_SCORE_UNREADABLE" | "GAME_SETUP_FAILED" | "GAME_STUCK";

/** The game, or what was asked of it, is not what the environment can work with. */
export function gameError(code: GameErrorCode, message: string, remedy: string): CoppiceError {
  return new CoppiceError(message, { code, faultDomain: "user", remedy });
}
