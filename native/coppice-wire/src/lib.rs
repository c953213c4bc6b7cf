//! Frames and messages between a client, the daemon, its VMM processes and the agents in the guests.
//!
//! Every hop carries the same frame: a little-endian `u32` length, then that many bytes of MessagePack (maps with
//! string keys). `docs/protocol.md` describes each message for readers of any language; these types are its Rust form.

pub mod agent;
pub mod blank;
pub mod client;
pub mod frame;
pub mod vmm;

pub use frame::{FrameError, FrameReader, MAX_FRAME_BYTES, MAX_NESTING, decode, encode, encode_frame};
pub use rmpv::Value;
