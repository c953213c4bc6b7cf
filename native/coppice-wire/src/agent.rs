//! Messages between the daemon and the agent in a guest. The VMM carries them as opaque payloads.
//!
//! Every message carries the *generation*: a number that the daemon gives each life of a guest (a fork is a new
//! life). The agent answers a request under the generation it arrived with; the daemon drops what does not carry the
//! sandbox's present generation. So nothing that one life asked for is answered in another.

use rmpv::Value;
use serde::ser::SerializeStruct;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

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

/// On the wire one map: `id`, `gen`, and what the body is with its value.
#[derive(Debug, Clone, Deserialize)]
#[serde(try_from = "ReplyFields")]
pub struct Reply {
    /// The request's id; 0 for an event.
    pub id: u64,
    pub generation: u64,
    pub body: ReplyBody,
}

#[derive(Debug, Clone)]
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

impl Serialize for Reply {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut fields = serializer.serialize_struct("Reply", 3)?;
        fields.serialize_field("id", &self.id)?;
        fields.serialize_field("gen", &self.generation)?;
        match &self.body {
            ReplyBody::Ok(value) => fields.serialize_field("ok", value)?,
            ReplyBody::Err(failure) => fields.serialize_field("err", failure)?,
            ReplyBody::Chunk(chunk) => fields.serialize_field("chunk", chunk)?,
            ReplyBody::Event(value) => fields.serialize_field("event", value)?,
        }
        fields.end()
    }
}

/// A reply as it comes. Read field by field: an enum that is flattened into a map would be copied before it is read.
#[derive(Deserialize)]
struct ReplyFields {
    id: u64,
    #[serde(rename = "gen")]
    generation: u64,
    #[serde(default, deserialize_with = "present")]
    ok: Option<Value>,
    err: Option<AgentFailure>,
    chunk: Option<Chunk>,
    #[serde(default, deserialize_with = "present")]
    event: Option<Value>,
}

/// A value that is nil is one.
fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(deserializer).map(Some)
}

impl TryFrom<ReplyFields> for Reply {
    type Error = &'static str;

    fn try_from(fields: ReplyFields) -> Result<Self, Self::Error> {
        let body = match fields {
            ReplyFields {
                ok: Some(value),
                err: None,
                chunk: None,
                event: None,
                ..
            } => ReplyBody::Ok(value),
            ReplyFields {
                ok: None,
                err: Some(failure),
                chunk: None,
                event: None,
                ..
            } => ReplyBody::Err(failure),
            ReplyFields {
                ok: None,
                err: None,
                chunk: Some(chunk),
                event: None,
                ..
            } => ReplyBody::Chunk(chunk),
            ReplyFields {
                ok: None,
                err: None,
                chunk: None,
                event: Some(value),
                ..
            } => ReplyBody::Event(value),
            _ => return Err("a reply is exactly one of `ok`, `err`, `chunk` and `event`"),
        };
        Ok(Reply {
            id: fields.id,
            generation: fields.generation,
            body,
        })
    }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::{decode, encode};

    fn read(fields: &[(&str, Value)]) -> Result<Reply, crate::FrameError> {
        let fields = fields.iter().map(|(name, value)| ((*name).into(), value.clone()));
        decode(&encode(&Value::Map(fields.collect())).unwrap())
    }

    #[test]
    fn reply_is_one_map_and_comes_back_as_it_went() {
        for body in [
            ReplyBody::Ok(Value::Nil),
            ReplyBody::Ok(Value::Map(vec![("a".into(), 1.into())])),
            ReplyBody::Event("ready".into()),
            ReplyBody::Err(AgentFailure {
                code: "NO_SUCH_FILE".to_owned(),
                message: "it is gone".to_owned(),
            }),
            ReplyBody::Chunk(Chunk {
                stream: "stdout".to_owned(),
                data: vec![0, 255],
            }),
        ] {
            let reply = Reply {
                id: 7,
                generation: 3,
                body,
            };
            let bytes = encode(&reply).unwrap();
            let map = decode::<Value>(&bytes).unwrap();
            assert_eq!(map.as_map().map(Vec::len), Some(3));
            assert_eq!(format!("{:?}", decode::<Reply>(&bytes).unwrap()), format!("{reply:?}"));
        }
    }

    #[test]
    fn reply_of_no_kind_or_of_two_is_refused() {
        let head = [("id", Value::from(1)), ("gen", Value::from(1))];
        let with = |more: &[(&str, Value)]| read(&[&head, more].concat());
        assert!(with(&[("ok", Value::Nil)]).is_ok());
        assert!(with(&[]).is_err());
        assert!(with(&[("ok", Value::Nil), ("event", Value::Nil)]).is_err());
        assert!(with(&[("err", Value::Nil)]).is_err());
    }
}
