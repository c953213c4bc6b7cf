//! Messages between a client and the daemon, on a Unix socket or TCP.

use rmpv::Value;
use serde::{Deserialize, Serialize};

use crate::agent::Chunk;
use crate::vmm::Stages;

/// Version of these messages. A client with another version is refused in the handshake.
pub const CLIENT_PROTOCOL: u32 = 1;

/// First frame of a client.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Hello {
    pub protocol: u32,
    /// Name and version, for logs.
    pub client: String,
    /// Required on TCP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
    /// Session to join; absent: a new one. All connections of a session share what it owns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// Client's wall clock in nanoseconds since the epoch; a carrier sets its own clock by it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub realtime_ns: Option<u64>,
}

/// Answer to `Hello`: `welcome`, or `refused` and the connection ends.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Greeting {
    Welcome(Welcome),
    Refused(Failure),
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Welcome {
    pub protocol: u32,
    pub version: String,
    pub session: String,
    /// `kvm` or `carrier`.
    pub host_kind: String,
}

/// Every later frame of a client: a request, or `{ cancel: id }`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(untagged)]
pub enum ClientFrame {
    Cancel { cancel: u64 },
    Request(Request),
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Request {
    /// Unique on the connection, never 0.
    pub id: u64,
    pub method: String,
    #[serde(default = "empty_map")]
    pub params: Value,
    /// Milliseconds after which the daemon gives up and answers `DEADLINE_EXCEEDED`; absent: the method's default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline_ms: Option<u64>,
}

/// Every later frame of the daemon.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(untagged)]
pub enum DaemonFrame {
    Result {
        id: u64,
        result: Value,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        stages: Stages,
    },
    Error {
        id: u64,
        error: Failure,
    },
    Chunk {
        id: u64,
        chunk: Chunk,
    },
    Event {
        event: String,
        params: Value,
    },
}

/// A typed error. Codes, their fault domains and remedies are listed in `docs/errors.md`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Failure {
    pub code: String,
    pub message: String,
    /// `guest`, `host`, `store`, `queue`, `user` or `bug`.
    pub fault_domain: String,
    pub retryable: bool,
    /// What the caller can do about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
    /// Whether the sandbox it happened in may be damaged.
    #[serde(default)]
    pub poisons: bool,
}

fn empty_map() -> Value {
    Value::Map(Vec::new())
}
