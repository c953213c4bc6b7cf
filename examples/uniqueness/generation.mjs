// Notices that this process goes on in another life of its machine. `Math.random` of a running Node process can't be
// seeded: draw what must differ between siblings from the kernel, or from a generator of your own that is seeded here.

import { openSync, readSync } from "node:fs";

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
