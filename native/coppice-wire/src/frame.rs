//! Length-prefixed MessagePack frames, with limits that hold before anything is allocated or decoded.

use std::io::{self, Read, Write};

use serde::Serialize;
use serde::de::DeserializeOwned;

/// Largest payload of one frame, in bytes. Larger data travels as several chunks.
pub const MAX_FRAME_BYTES: usize = 16 * 1024 * 1024;

/// Deepest nesting of arrays and maps that is decoded; deeper input is refused, so that it cannot exhaust the stack.
pub const MAX_NESTING: usize = 32;

/// Bytes of the length prefix.
const PREFIX_BYTES: usize = 4;

/// Room for a message of the usual size, which then is not moved while it grows.
const USUAL_BYTES: usize = 256;

#[derive(Debug, thiserror::Error)]
pub enum FrameError {
    #[error("Frame of {length} bytes is over the limit of {MAX_FRAME_BYTES}")]
    TooLarge { length: usize },
    #[error("Peer closed the stream inside a frame")]
    Truncated,
    #[error("Message can't be encoded: {0}")]
    Encode(#[from] rmp_serde::encode::Error),
    #[error("Message can't be decoded: {0}")]
    Decode(#[from] rmp_serde::decode::Error),
    #[error("Stream failed: {0}")]
    Io(#[from] io::Error),
}

/// Payload bytes of a message (no length prefix).
pub fn encode<T: Serialize>(message: &T) -> Result<Vec<u8>, FrameError> {
    encode_behind(0, message)
}

/// A whole frame: length prefix and payload, ready to be written.
pub fn encode_frame<T: Serialize>(message: &T) -> Result<Vec<u8>, FrameError> {
    let mut frame = encode_behind(PREFIX_BYTES, message)?;
    let length = (frame.len() - PREFIX_BYTES) as u32;
    frame[..PREFIX_BYTES].copy_from_slice(&length.to_le_bytes());
    Ok(frame)
}

/// A message's payload behind `prefix` bytes of zeroes.
fn encode_behind<T: Serialize>(prefix: usize, message: &T) -> Result<Vec<u8>, FrameError> {
    let mut bytes = Vec::with_capacity(USUAL_BYTES);
    bytes.resize(prefix, 0);
    rmp_serde::encode::write_named(&mut bytes, message)?;
    match bytes.len() - prefix {
        length if length > MAX_FRAME_BYTES => Err(FrameError::TooLarge { length }),
        _ => Ok(bytes),
    }
}

/// A message from the payload of one frame.
pub fn decode<T: DeserializeOwned>(payload: &[u8]) -> Result<T, FrameError> {
    let mut deserializer = rmp_serde::Deserializer::from_read_ref(payload);
    deserializer.set_max_depth(MAX_NESTING);
    Ok(T::deserialize(&mut deserializer)?)
}

/// Cuts a byte stream into frames, whatever the sizes of the pieces it arrives in.
///
/// It holds at most one incomplete frame and whatever followed it in the last read. A prefix over the limit is an
/// error at once: nothing is allocated for it, and the stream has no next frame to resynchronise to.
#[derive(Debug, Default, Clone)]
pub struct FrameReader {
    buffer: Vec<u8>,
    start: usize,
}

impl FrameReader {
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds bytes that arrived.
    pub fn push(&mut self, bytes: &[u8]) {
        if self.start > 0 {
            self.buffer.drain(..self.start);
            self.start = 0;
        }
        self.buffer.extend_from_slice(bytes);
    }

    /// Payload of the next complete frame; `None` where more bytes are needed.
    pub fn next_payload(&mut self) -> Result<Option<Vec<u8>>, FrameError> {
        let rest = &self.buffer[self.start..];
        let Some(prefix) = rest.first_chunk::<PREFIX_BYTES>() else {
            return Ok(None);
        };
        let length = u32::from_le_bytes(*prefix) as usize;
        if length > MAX_FRAME_BYTES {
            return Err(FrameError::TooLarge { length });
        }
        let Some(payload) = rest.get(PREFIX_BYTES..PREFIX_BYTES + length) else {
            return Ok(None);
        };
        let payload = payload.to_vec();
        self.start += PREFIX_BYTES + length;
        Ok(Some(payload))
    }

    /// Whether a frame has begun and not ended.
    pub fn is_mid_frame(&self) -> bool {
        self.start < self.buffer.len()
    }
}

/// Writes one message as a frame to a blocking stream.
pub fn write_message<T: Serialize>(stream: &mut impl Write, message: &T) -> Result<(), FrameError> {
    stream.write_all(&encode_frame(message)?)?;
    Ok(())
}

/// Reads one message from a blocking stream; `None` where the peer closed it between two frames.
pub fn read_message<T: DeserializeOwned>(stream: &mut impl Read) -> Result<Option<T>, FrameError> {
    let mut prefix = [0u8; PREFIX_BYTES];
    let mut have = 0;
    while have < PREFIX_BYTES {
        match stream.read(&mut prefix[have..])? {
            0 if have == 0 => return Ok(None),
            0 => return Err(FrameError::Truncated),
            read => have += read,
        }
    }
    let length = u32::from_le_bytes(prefix) as usize;
    if length > MAX_FRAME_BYTES {
        return Err(FrameError::TooLarge { length });
    }
    let mut payload = vec![0u8; length];
    stream.read_exact(&mut payload).map_err(|error| match error.kind() {
        io::ErrorKind::UnexpectedEof => FrameError::Truncated,
        _ => FrameError::Io(error),
    })?;
    decode(&payload).map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reader_given_single_bytes_returns_the_frames_whole() {
        let bytes = [encode_frame(&"one").unwrap(), encode_frame(&vec![2, 3]).unwrap()].concat();
        let mut reader = FrameReader::new();
        let mut payloads = Vec::new();
        for byte in bytes {
            reader.push(&[byte]);
            while let Some(payload) = reader.next_payload().unwrap() {
                payloads.push(payload);
            }
        }
        assert_eq!(decode::<String>(&payloads[0]).unwrap(), "one");
        assert_eq!(decode::<Vec<u32>>(&payloads[1]).unwrap(), [2, 3]);
        assert!(!reader.is_mid_frame());
    }

    #[test]
    fn reader_given_a_prefix_over_the_limit_refuses_before_the_payload_arrives() {
        let mut reader = FrameReader::new();
        reader.push(&u32::MAX.to_le_bytes());
        assert!(matches!(reader.next_payload(), Err(FrameError::TooLarge { .. })));
    }

    #[test]
    fn decode_given_nesting_over_the_limit_refuses() {
        let mut payload = vec![0x91; MAX_NESTING * 4]; // 0x91: array of one element
        payload.push(0xc0);
        assert!(decode::<rmpv::Value>(&payload).is_err());
    }

    #[test]
    fn read_message_given_a_stream_cut_inside_a_frame_says_truncated() {
        let frame = encode_frame(&"whole").unwrap();
        let mut cut = &frame[..frame.len() - 1];
        assert!(matches!(read_message::<String>(&mut cut), Err(FrameError::Truncated)));
    }
}
