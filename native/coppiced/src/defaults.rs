//! Every limit and duration of the daemon, and why it is what it is.

use std::time::Duration;

/// Connections that have not said hello yet. Above it new ones are turned away: enough for every worker of a large
/// machine to connect at once, too few to hurt.
pub const MAX_UNAUTHENTICATED: usize = 128;

/// Of them from one address: the rest is left to others.
pub const MAX_UNAUTHENTICATED_OF_SOURCE: usize = 96;

/// Connections in all; a connection costs two descriptors' worth of memory and its queue.
pub const MAX_CONNECTIONS: usize = 1_024;

/// Time from connect to a complete hello.
pub const HANDSHAKE_DEADLINE: Duration = Duration::from_secs(5);

/// Requests that one connection may have in flight.
pub const MAX_REQUESTS_PER_CONNECTION: usize = 1_024;

/// Bytes of request parameters that one connection may have in flight: four of the largest frames.
pub const MAX_REQUEST_BYTES_PER_CONNECTION: usize = 64 * 1024 * 1024;

/// Bytes that wait to be written to one client. A single larger frame is let through alone.
pub const CLIENT_QUEUE_BYTES: u32 = 4 * 1024 * 1024;

/// A client that takes no byte for this long is gone or broken.
pub const CLIENT_STALL: Duration = Duration::from_secs(30);

/// Bytes that wait to be written to one VMM.
pub const VMM_QUEUE_BYTES: u32 = 1024 * 1024;

/// Pieces of output of one call that wait for the client's queue (64 KiB each at most).
pub const CALL_QUEUE: usize = 8;

/// Largest piece of output an agent may send, see `docs/protocol.md`.
pub const MAX_AGENT_CHUNK_BYTES: usize = 64 * 1024;

/// What is kept of a guest's serial console.
pub const CONSOLE_BYTES: usize = 64 * 1024;

/// What of the console goes into error messages and events.
pub const CONSOLE_TAIL_BYTES: usize = 2 * 1024;

/// What a guest's console may say in a second, at most and where nothing else is asked for: a kernel's boot with all its
/// messages is less, and the daemon keeps 64 KiB.
pub const MAX_CONSOLE_RATE: u32 = 64 * 1024;

/// A rate below it would keep even a panic from being read.
pub const MIN_CONSOLE_RATE: u32 = 256;

/// Bytes of console that the daemon reads of one VMM in a second, whatever the VMM was told to pass on.
pub const CONSOLE_READ_RATE: u32 = 2 * 1024 * 1024;

/// Range of the weights of cgroups.
pub const MAX_CPU_SHARE: u32 = 10_000;

/// The kernel's least quota is a millisecond of each hundred.
pub const MIN_CPUS: f64 = 0.01;

/// Threads in a guest: Debian's kernel and our agent have about 50 on one processor.
pub const MIN_GUEST_PROCESSES: u32 = 100;

/// Tasks in the cgroup of one sandbox: the VMM, its KVM's workers, and copies that are on their way out.
pub const VMM_TASKS: u32 = 64;

/// How often the daemon looks at the memory of a sandbox that has a limit and no cgroup: reading the page map takes 5 to 20
/// ms of a processor.
pub const MEMORY_LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// Sandboxes alive at once: "hundreds" is what one machine is made for.
pub const MAX_SANDBOXES: u32 = 1_024;

/// Checkpoints alive at once: "thousands".
pub const MAX_CHECKPOINTS: usize = 16_384;

/// Most children of one fork request.
pub const MAX_FORK: i64 = 1_024;

/// What a new child is assumed to need before it has shown what it needs (an idle one measures 2 to 3 MiB).
pub const CHILD_BYTES: u64 = 4 * 1024 * 1024;

/// For how long one reading of the machine's free memory is used. Reading it costs as much as a tenth of a fork.
pub const MEMORY_READING_AGE: Duration = Duration::from_millis(100);

/// A VMM that has been told to close is killed after this.
pub const CLOSE_GRACE: Duration = Duration::from_secs(1);

/// Answer of a VMM to pause, resume, park or fork. They take milliseconds; a VMM that needs longer is broken.
pub const CONTROL_DEADLINE: Duration = Duration::from_secs(20);

/// The benchmark's baseline moves a whole guest's memory.
pub const BASELINE_DEADLINE: Duration = Duration::from_secs(300);

/// Answer of an agent to one `resume`.
pub const RESUME_DEADLINE: Duration = Duration::from_secs(5);

/// Largest difference between a guest's clock and the host's at hand-out.
pub const MAX_CLOCK_ERROR: Duration = Duration::from_millis(50);

/// A busy host may deliver `resume` late, which leaves the guest's clock behind by as much; then it is sent again.
pub const RESUME_ATTEMPTS: u32 = 5;

/// How late the last attempt may leave the clock: a host that is overloaded hands out sandboxes that are slow and a little
/// behind, instead of none.
pub const MAX_CLOCK_LATENESS: Duration = Duration::from_secs(1);

/// A stop that the guest's clocks run on through. A guest that was stopped for longer has timers and housekeeping to catch
/// up with (measured: some milliseconds more to its first answer after a second), so that telling it the time costs less.
pub const MAX_CLOCK_LEAP: Duration = Duration::from_millis(500);

/// Who leases a child asks it something at once, and needs no answer to the lease before: within this time the two answers
/// go together.
pub const LEASE_ANSWER_DELAY: Duration = Duration::from_millis(20);

/// How often it is looked whether a child that runs ahead has nothing left to do.
pub const IDLE_LOOK_INTERVAL: Duration = Duration::from_millis(3);

/// After so many looks it is stopped in the middle of what it does: its programs may never rest.
pub const IDLE_LOOKS: u32 = 10;

/// Scheduling priority (nice) of work that nobody waits for: a child that runs ahead, a VM that is taken apart.
pub const BACKGROUND_NICE: i32 = 15;

/// What a new process or a checkpoint still needs (its score below, files lent ahead) waits for this long: an answer that
/// is on its way goes first.
pub const CHORES_DELAY: Duration = Duration::from_millis(5);

/// `oom_score_adj` of a sandbox: in thousandths of all memory that its size seems to be larger, so that any of them is ended
/// before any checkpoint.
pub const SANDBOX_OOM_SCORE: &str = "900";
pub const CHECKPOINT_OOM_SCORE: &str = "0";

/// From the order to shut down to the daemon's exit.
pub const SHUTDOWN_DEADLINE: Duration = Duration::from_millis(2_500);

/// Longest deadline a request may ask for.
pub const MAX_DEADLINE: Duration = Duration::from_secs(24 * 3600);

/// What a fork takes from its deadline, so that its answer, with the children that are done, still arrives in time.
pub const FORK_MARGIN: Duration = Duration::from_millis(50);

/// Dead sandboxes and checkpoints that are remembered, so that a late call is told what became of them.
pub const MAX_TOMBSTONES: usize = 4_096;

/// A disk that was attached a moment ago may take this long to appear.
pub const DISK_WAIT: Duration = Duration::from_secs(3);

/// Carrier: a clock that is off by more is set.
pub const CLOCK_STEP: Duration = Duration::from_millis(5);

/// Carrier: a later hello that seems older than our clock may just have been under way for long.
pub const CLOCK_STEP_BACK: Duration = Duration::from_millis(250);
