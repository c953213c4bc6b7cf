/** The examples of uniqueness in guests: programs that ran before the fork, in Node and with OpenSSL. */

import { readFileSync } from "node:fs";

import { afterAll, beforeAll, describe, expect, it } from "vitest";

import { type Checkpoint, connectHost, type Host, type Sandbox } from "../sandbox-pool/index.js";

/** Answers each line with numbers of every kind, in JSON. */
const NODE_PROGRAM = `
import { createHash, randomBytes } from "node:crypto";
import { readFileSync } from "node:fs";
import { createInterface } from "node:readline";
import { everyLife, watchLives } from "/srv/generation.mjs";

let state;
const renew = everyLife((seed) => { state = seed; });
renew();
let lives = 0;
watchLives(() => { lives += 1; });
const own = () => {
  state = createHash("sha256").update(state).digest();
  return state.toString("hex");
};
createInterface({ input: process.stdin }).on("line", (line) => {
  const renewed = line === "renew" && renew();
  const kernel = readFileSync("/proc/sys/kernel/random/uuid", "latin1").trim();
  const numbers = { own: own(), math: Math.random(), openssl: randomBytes(16).toString("hex"), kernel };
  console.log(JSON.stringify({ renewed, lives, ...numbers }));
});
console.log("ready");
`;

const example = (name: string): string =>
  readFileSync(new URL(`../examples/uniqueness/${name}`, import.meta.url), "utf8");

const IMAGE = {
  debian: { packages: ["libc6-dev", "libssl-dev", "nodejs", "openssl", "tcc"] },
  files: {
    "/srv/draw.mjs": NODE_PROGRAM,
    "/srv/generation.mjs": example("generation.mjs"),
    "/srv/generation.c": example("generation.c"),
  },
};

const SIBLINGS = 4;

/** Against hangs only: Node takes an emulated host's guest many seconds to start. */
const PATIENCE_MS = 240_000;

interface Answer {
  readonly renewed: boolean;
  readonly lives: number;
  readonly own: string;
  readonly math: number;
  readonly openssl: string;
  readonly kernel: string;
}

let host: Host;
let template: Checkpoint;

beforeAll(async () => {
  host = await connectHost({ onProgress: (message) => console.error(message) });
  template = await host.templates.create(await host.images.build(IMAGE), {
    memoryMiB: 320,
    key: "test/uniqueness.e2e.test.ts 1",
    warmUp: async (sandbox) => {
      await run(sandbox, "tcc /srv/generation.c -o /srv/draw -lcrypto");
      await sandbox.openPty(["/bin/sh", "-c", "stty -echo; exec /srv/draw"], { name: "openssl" });
      const node = await sandbox.openPty(["/bin/sh", "-c", "stty -echo; exec node /srv/draw.mjs"], { name: "node" });
      await node.read().until(/ready/, { timeoutMs: PATIENCE_MS });
    },
  });
});

afterAll(async () => {
  await host?.close();
});

async function run(sandbox: Sandbox, script: string): Promise<string> {
  const { stdout, stderr, exitCode } = await sandbox.exec(["/bin/sh", "-c", script], { timeoutMs: PATIENCE_MS });
  if (exitCode !== 0) throw new Error(`${script}: exit code ${exitCode}: ${stderr}`);
  return stdout;
}

async function line(sandbox: Sandbox, program: "node" | "openssl", question: "plain" | "renew"): Promise<string> {
  const { text } = await sandbox.pty(program).send(`${question}\n`).until(/\n/, { timeoutMs: PATIENCE_MS });
  return text.trim();
}

async function ask(sandbox: Sandbox, question: "plain" | "renew"): Promise<Answer> {
  return JSON.parse(await line(sandbox, "node", question)) as Answer;
}

async function draw(sandbox: Sandbox, question: "plain" | "renew"): Promise<readonly string[]> {
  return (await line(sandbox, "openssl", question)).split(" ");
}

/**
 * Of a checkpoint whose programs have drawn a moment before: OpenSSL takes new seeds by itself where its last are some
 * minutes old.
 */
async function siblings(): Promise<readonly Sandbox[]> {
  const parent = await template.fork();
  await ask(parent, "renew");
  await draw(parent, "renew");
  await using checkpoint = await parent.park();
  return (await checkpoint.fork(SIBLINGS)).map((result) => {
    if (!result.ok) throw result.error;
    return result.sandbox;
  });
}

async function closeAll(sandboxes: readonly Sandbox[]): Promise<void> {
  await Promise.all(sandboxes.map((sandbox) => sandbox.close()));
}

const distinct = (values: readonly unknown[]): number => new Set(values).size;

describe("a Node program that ran before the fork (invariant 4, B06)", () => {
  it("draws what its siblings draw, but for what comes from the kernel", async () => {
    const forks = await siblings();
    const answers = await Promise.all(forks.map((sandbox) => ask(sandbox, "plain")));
    for (const field of ["own", "math", "openssl"] as const) {
      expect(distinct(answers.map((answer) => answer[field])), field).toBe(1);
    }
    expect(distinct(answers.map(({ kernel }) => kernel))).toBe(SIBLINGS);
    await closeAll(forks);
  });

  it("that asks for the generation draws other numbers of its own, and is told of the new life once", async () => {
    const forks = await siblings();
    const answers = await Promise.all(forks.map((sandbox) => ask(sandbox, "renew")));
    expect(answers.map(({ renewed }) => renewed)).toEqual(forks.map(() => true));
    expect(distinct(answers.map(({ own }) => own))).toBe(SIBLINGS);
    for (const sandbox of forks) {
      let answer = await ask(sandbox, "renew");
      // Counted since the program began: the parent's life was the first later one.
      while (answer.lives < 2) answer = await ask(sandbox, "renew");
      expect(answer).toMatchObject({ renewed: false, lives: 2 });
    }
    await closeAll(forks);
  });
});

describe("OpenSSL in a program that ran before the fork (invariant 4, B06)", () => {
  it("draws what its siblings draw until it is seeded anew, and other numbers then", async () => {
    const forks = await siblings();
    const before = await Promise.all(forks.map((sandbox) => draw(sandbox, "plain")));
    expect(before.map(([life]) => life)).toEqual(forks.map(() => "same"));
    expect(distinct(before.map(([, bytes]) => bytes))).toBe(1);
    const after = await Promise.all(forks.map((sandbox) => draw(sandbox, "renew")));
    expect(after.map(([life]) => life)).toEqual(forks.map(() => "new"));
    expect(distinct(after.map(([, bytes]) => bytes))).toBe(SIBLINGS);
    const again = await Promise.all(forks.map((sandbox) => draw(sandbox, "renew")));
    expect(again.map(([life]) => life)).toEqual(forks.map(() => "same"));
    await closeAll(forks);
  });

  it("of a program that starts in the fork needs nothing", async () => {
    const forks = await siblings();
    const drawn = await Promise.all(forks.map((sandbox) => run(sandbox, "openssl rand -hex 16")));
    expect(distinct(drawn)).toBe(SIBLINGS);
    await closeAll(forks);
  });
});
