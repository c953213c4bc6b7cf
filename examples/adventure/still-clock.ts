/** Holds a guest's wall clock at one second, so that a program that reads it at some time while it starts reads just that. */

/**
 * Sets the clock back again and again, in the background. Between two settings it runs on, so each must follow the last
 * in less than half a second: then it never reads another second, and whether that was so is written down.
 */
const HOLD = `
set -e
hold() { date -u -s "@$1" >/dev/null; }
hold "$1"
rm -f /run/clock-moved
: >/run/clock-held
uptime() { read -r now _ </proc/uptime; now=$((10#\${now/./})); }
(
  uptime; last=$now; moved=no
  while [ -e /run/clock-held ]; do
    hold "$1"; uptime
    [ $((now - last)) -lt 45 ] || moved=yes
    last=$now
  done
  echo $moved >/run/clock-moved.new
  mv /run/clock-moved.new /run/clock-moved
) </dev/null >/dev/null 2>&1 &
`;

const RELEASE = `
rm -f /run/clock-held
until [ -e /run/clock-moved ]; do sleep 0.02; done
cat /run/clock-moved
`;

/** The program and its arguments that hold the clock at `second`, in seconds since 1970. */
export function holdCommand(second: number): readonly string[] {
  return ["bash", "-c", HOLD, "hold-clock", String(second)];
}

/** Lets the clock go on from where it is; prints `no` if it stood in its second all the time, else `yes`. */
export const RELEASE_COMMAND: readonly string[] = ["bash", "-c", RELEASE, "release-clock"];
