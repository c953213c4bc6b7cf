//! Frames on their way to the host, with their boundaries, so that a new life can drop what an earlier one asked for
//! without cutting a frame that is half sent.

use std::collections::VecDeque;

use coppice_wire::MAX_FRAME_BYTES;
use coppice_wire::agent::AgentFailure;
use serde::Serialize;

use crate::failure::Failure;

/// Which request an answer belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequestKey {
    pub id: u64,
    pub generation: u64,
}

/// Above this many unsent bytes nothing more is read from programs: they wait, not the agent's memory.
const HIGH_WATER_BYTES: usize = 256 * 1024;

/// An empty buffer that has grown beyond this is given back.
const KEPT_CAPACITY_BYTES: usize = 512 * 1024;

const PREFIX_BYTES: usize = 4;

// The same maps as `coppice_wire::agent::Reply`, without copies of what they carry.

#[derive(Serialize)]
struct OkFrame<'a, T> {
    id: u64,
    #[serde(rename = "gen")]
    generation: u64,
    ok: &'a T,
}

#[derive(Serialize)]
struct ErrFrame<'a> {
    id: u64,
    #[serde(rename = "gen")]
    generation: u64,
    err: &'a AgentFailure,
}

#[derive(Serialize)]
struct EventFrame<'a, T> {
    id: u64,
    #[serde(rename = "gen")]
    generation: u64,
    event: &'a T,
}

#[derive(Serialize)]
struct ChunkFrame<'a> {
    id: u64,
    #[serde(rename = "gen")]
    generation: u64,
    chunk: BorrowedChunk<'a>,
}

#[derive(Serialize)]
struct BorrowedChunk<'a> {
    stream: &'a str,
    #[serde(with = "serde_bytes")]
    data: &'a [u8],
}

/// An answer without fields.
#[derive(Debug, Serialize)]
pub struct Empty {}

#[derive(Debug, Default)]
pub struct Outbox {
    bytes: Vec<u8>,
    /// How much of `bytes` is sent.
    sent: usize,
    /// Ends of the frames that are not wholly sent, as positions in `bytes`.
    ends: VecDeque<usize>,
    /// Whether `sent` lies inside the first of those frames.
    mid_frame: bool,
}

impl Outbox {
    pub fn ok<T: Serialize>(&mut self, key: RequestKey, value: &T) {
        if let Err(reason) = self.frame(&OkFrame {
            id: key.id,
            generation: key.generation,
            ok: value,
        }) {
            let failure = Failure {
                code: "REPLY_TOO_LARGE",
                message: reason,
            };
            self.failure(key, failure);
        }
    }

    pub fn failure(&mut self, key: RequestKey, failure: impl Into<Failure>) {
        let failure = AgentFailure::from(failure.into());
        // A failure is a few hundred bytes: it always fits a frame.
        let _ = self.frame(&ErrFrame {
            id: key.id,
            generation: key.generation,
            err: &failure,
        });
    }

    /// `data` is at most 64 KiB, so it always fits a frame.
    pub fn chunk(&mut self, key: RequestKey, stream: &str, data: &[u8]) {
        let chunk = BorrowedChunk { stream, data };
        let _ = self.frame(&ChunkFrame {
            id: key.id,
            generation: key.generation,
            chunk,
        });
    }

    pub fn event<T: Serialize>(&mut self, generation: u64, value: &T) {
        let _ = self.frame(&EventFrame {
            id: 0,
            generation,
            event: value,
        });
    }

    /// Appends one frame, or nothing where the message can't be one.
    fn frame<T: Serialize>(&mut self, message: &T) -> Result<(), String> {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(&[0; PREFIX_BYTES]);
        let encoded = message.serialize(&mut rmp_serde::Serializer::new(&mut self.bytes).with_struct_map());
        let length = self.bytes.len() - start - PREFIX_BYTES;
        let refusal = match encoded {
            Err(error) => Some(format!("Answer can't be encoded: {error}")),
            Ok(()) if length > MAX_FRAME_BYTES => Some(format!(
                "Answer of {length} bytes is over the limit of {MAX_FRAME_BYTES}"
            )),
            Ok(()) => None,
        };
        if let Some(reason) = refusal {
            self.bytes.truncate(start);
            return Err(reason);
        }
        self.bytes[start..start + PREFIX_BYTES].copy_from_slice(&(length as u32).to_le_bytes());
        self.ends.push_back(self.bytes.len());
        Ok(())
    }

    pub fn unsent(&self) -> &[u8] {
        &self.bytes[self.sent..]
    }

    pub fn is_empty(&self) -> bool {
        self.sent == self.bytes.len()
    }

    /// Whether programs must wait until the host has taken more.
    pub fn is_full(&self) -> bool {
        self.bytes.len() - self.sent > HIGH_WATER_BYTES
    }

    /// Notes that the first `count` unsent bytes are with the host now.
    pub fn mark_sent(&mut self, count: usize) {
        self.sent += count;
        let mut at_end = false;
        while self.ends.front().is_some_and(|end| *end <= self.sent) {
            at_end = self.ends.pop_front() == Some(self.sent);
        }
        self.mid_frame = !at_end && (count > 0 || self.mid_frame);
        if self.sent == self.bytes.len() {
            self.bytes.clear();
            self.sent = 0;
            if self.bytes.capacity() > KEPT_CAPACITY_BYTES {
                self.bytes = Vec::new();
            }
        } else if self.sent >= HIGH_WATER_BYTES {
            self.bytes.drain(..self.sent);
            for end in &mut self.ends {
                *end -= self.sent;
            }
            self.sent = 0;
        }
    }

    /// Drops every frame of which nothing is sent yet.
    pub fn discard_unbegun(&mut self) {
        let keep = match self.ends.front() {
            Some(end) if self.mid_frame => *end,
            _ => self.sent,
        };
        self.bytes.truncate(keep);
        self.ends.retain(|end| *end <= keep);
    }
}

#[cfg(test)]
mod tests {
    use coppice_wire::agent::{Reply, ReplyBody};
    use coppice_wire::{FrameReader, decode};

    use super::*;

    const KEY: RequestKey = RequestKey { id: 7, generation: 3 };

    fn replies(bytes: &[u8]) -> Vec<Reply> {
        let mut reader = FrameReader::new();
        reader.push(bytes);
        let mut replies = Vec::new();
        while let Some(payload) = reader.next_payload().unwrap() {
            replies.push(decode(&payload).unwrap());
        }
        assert!(!reader.is_mid_frame());
        replies
    }

    #[test]
    fn outbox_given_every_kind_of_frame_encodes_the_wire_form() {
        let mut outbox = Outbox::default();
        outbox.ok(KEY, &Empty {});
        outbox.failure(
            KEY,
            Failure {
                code: "CODE",
                message: "message".into(),
            },
        );
        outbox.chunk(KEY, "stdout", b"\xff\x00");
        outbox.event(0, &Empty {});
        let replies = replies(outbox.unsent());
        assert_eq!((replies[0].id, replies[0].generation), (7, 3));
        assert!(matches!(&replies[0].body, ReplyBody::Ok(value) if value.as_map().unwrap().is_empty()));
        assert!(matches!(&replies[1].body, ReplyBody::Err(failure) if failure.code == "CODE"));
        assert!(matches!(&replies[2].body, ReplyBody::Chunk(chunk) if chunk.data == b"\xff\x00"));
        assert!(matches!(&replies[3].body, ReplyBody::Event(_)));
        assert_eq!(replies[3].id, 0);
    }

    #[test]
    fn outbox_given_an_answer_over_the_frame_limit_sends_a_failure_instead() {
        let mut outbox = Outbox::default();
        outbox.ok(KEY, &"x".repeat(MAX_FRAME_BYTES));
        let replies = replies(outbox.unsent());
        assert!(matches!(&replies[0].body, ReplyBody::Err(failure) if failure.code == "REPLY_TOO_LARGE"));
    }

    #[test]
    fn discard_with_a_frame_half_sent_keeps_that_frame_and_drops_the_rest() {
        for sent in 0..60 {
            let mut outbox = Outbox::default();
            outbox.chunk(KEY, "stdout", b"first");
            let first = outbox.unsent().len();
            outbox.chunk(KEY, "stdout", b"second");
            let second = outbox.unsent().len();
            let mut seen = outbox.unsent()[..sent].to_vec();
            outbox.mark_sent(sent);
            outbox.discard_unbegun();
            seen.extend_from_slice(outbox.unsent());
            let expected = match sent {
                0 => 0,
                sent if sent <= first => first,
                _ => second,
            };
            assert_eq!(seen.len(), expected, "after {sent} sent bytes");
            outbox.ok(KEY, &Empty {});
            seen.truncate(sent);
            seen.extend_from_slice(outbox.unsent());
            replies(&seen);
        }
    }
}
