//! Messages between the daemon and the agent in a guest. The VMM carries them as opaque payloads.
//!
//! Every message carries the *generation*: a number that the daemon gives each life of a guest (a fork is a new
//! life). The agent answers a request under the generation it arrived with; the daemon drops what does not carry the
//! sandbox's present generation. So nothing that one life asked for is answered in another.

use rmpv::Value;
use serde::{Deserialize, Serialize};

/// Version of these messages; the agent reports it in its `ready` event.
pub const AGENT_PROTOCOL: u32 = 1;

/// Name of the virtio-console port that carries the agent's frames.
pub const AGENT_PORT_NAME: &str = "org.coppice.agent";

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Request {
    /// Unique in the daemon's life, never 0.
    pub id: u64,
    #[serde(rename = "gen")]
    pub generation: u64,
    /// `ping`, `resume`, `exec`, `cancel`, `pty.open`, `file.read`, …: see `docs/protocol.md`.
    pub op: String,
    #[serde(default = "empty_map")]
    pub args: Value,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Reply {
    /// The request's id; 0 for an event.
    pub id: u64,
    #[serde(rename = "gen")]
    pub generation: u64,
    #[serde(flatten)]
    pub body: ReplyBody,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ReplyBody {
    /// Final answer.
    Ok(Value),
    /// Final refusal or failure.
    Err(AgentFailure),
    /// A piece of output; any number of these come before the final answer.
    Chunk(Chunk),
    /// Something that nobody asked for: `ready` after boot with `{ protocol, version, bootId }`.
    Event(Value),
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Chunk {
    /// `stdout`, `stderr` or `data`.
    pub stream: String,
    #[serde(with = "serde_bytes")]
    pub data: Vec<u8>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct AgentFailure {
    /// Upper snake case, listed in `docs/errors.md`.
    pub code: String,
    pub message: String,
}

/// Arguments of `resume`: the new life's generation and identity. Kernel randomness is reseeded, the clock set and the
/// names written before the agent answers; where one of them fails, the answer is `RESUME_FAILED` and the sandbox must
/// not be handed out.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Resume {
    /// Generation of the new life; the agent adopts it.
    pub generation: u64,
    /// 64 bytes of host randomness; absent where the caller keeps the checkpoint's randomness for reproducibility.
    #[serde(default, with = "serde_bytes", skip_serializing_if = "Option::is_none")]
    pub seed: Option<Vec<u8>>,
    #[serde(flatten)]
    pub clock: Clock,
    pub hostname: String,
    /// 32 lower-case hexadecimal digits.
    pub machine_id: String,
}

/// How a guest's wall clock is put right.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged, rename_all_fields = "camelCase")]
pub enum Clock {
    /// To the host's wall clock when the request was sent, in nanoseconds since the epoch: late by its way.
    Set { realtime_ns: u64 },
    /// Forward by the time that the guest was stopped for, in nanoseconds: exact, however long the way.
    Advance { stopped_ns: u64 },
}

/// Answer to `clock`, whose arguments are a `Clock`.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ClockTold {
    /// Guest wall clock when the answer was made, in nanoseconds since the epoch.
    pub realtime_ns: u64,
}

/// Answer to `resume`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Resumed {
    pub generation: u64,
    /// Guest wall clock when the answer was made, in nanoseconds since the epoch.
    pub realtime_ns: u64,
    /// Guest monotonic clock, in nanoseconds.
    pub monotonic_ns: u64,
    pub boot_id: String,
}

fn empty_map() -> Value {
    Value::Map(Vec::new())
}
