import { defineEnvironment } from "../../index.js";

/** A program of the guest: a lock that opens after left, right, right, left, and begins again at a wrong turn. */
const TURN = `#!/bin/sh
turned="$(cat /srv/turned 2>/dev/null)$1"
case "$turned" in l | lr | lrr | lrrl) ;; *) turned= ;; esac
echo "$turned" | tee /srv/turned
`;

export default defineEnvironment({
  name: "lock",
  image: { debian: {}, files: { "/srv/turn": TURN } },
  reset: async () => ({ turned: "" }),
  step: async ({ sandbox, signal }, action) => {
    const { stdout } = await sandbox.exec(["/srv/turn", action], { signal });
    const turned = stdout.trim();
    const isOpen = turned === "lrrl";
    return { observation: { turned }, reward: isOpen ? 1 : 0, terminated: isOpen, truncated: false };
  },
  actions: () => ["l", "r"],
  cell: ({ turned }) => turned,
});
