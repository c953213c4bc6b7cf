// Notices that this process goes on in another life of its machine. `Math.random` and `node:crypto` of a running Node
// process can't be seeded: draw what must differ between siblings from the kernel, or from a generator of your own that
// is seeded here.

import { closeSync, openSync, readSync, watch } from "node:fs";

const PATH = "/run/coppice/generation";
const SEED_BYTES = 32;

function readOnce(descriptor) {
  const bytes = Buffer.alloc(32);
  return bytes.toString("latin1", 0, readSync(descriptor, bytes, 0, bytes.length, 0));
}

/** Calls `reseed(seed)`, 32 bytes of the kernel's randomness, in each life before the first number is drawn in it. */
export function everyLife(reseed, path = PATH) {
  const file = openSync(path, "r");
  const kernel = openSync("/dev/urandom", "r");
  let seen;
  return () => {
    const now = readOnce(file);
    if (now === seen) return false;
    const seed = Buffer.alloc(SEED_BYTES);
    readSync(kernel, seed, 0, SEED_BYTES, null);
    reseed(seed);
    seen = now;
    return true;
  };
}

/**
 * Calls `onLife()` soon after each later life has begun, for what should not wait until a number is drawn: connections to
 * be made anew, names to be told. What runs before Node's event loop comes to it still sees the old life: it is no
 * replacement for `everyLife`. Returns what ends the watch.
 */
export function watchLives(onLife, path = PATH) {
  const file = openSync(path, "r");
  let seen = readOnce(file);
  const watcher = watch(path, { persistent: false }, () => {
    const now = readOnce(file);
    // One life may be told of more than once.
    if (now === seen || now === "") return;
    seen = now;
    onLife();
  });
  return () => {
    watcher.close();
    closeSync(file);
  };
}
