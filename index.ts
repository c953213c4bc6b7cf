export { defineEnvironment } from "./engine/environment.js";
