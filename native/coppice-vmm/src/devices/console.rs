//! virtio-console with one named port: the agent's channel. The guest sees a character device, no terminal.
//!
//! Bytes towards the guest wait here until the guest has opened the port and gives buffers; a frame that the guest
//! has begun waits here for its rest. Both are plain memory, so they live on through a freeze and a fork.

use std::collections::VecDeque;

use coppice_wire::agent::AGENT_PORT_NAME;
use coppice_wire::{FrameReader, MAX_FRAME_BYTES};
use serde::{Deserialize, Serialize};
use virtio_bindings::virtio_ids::VIRTIO_ID_CONSOLE;
use virtio_queue::{Queue, QueueT};

use crate::devices::ring::{self, Abuse, Step};
use crate::devices::transport::Device;
use crate::memory::Memory;

/// Most bytes that wait for the guest. Room for two of the largest frames.
pub const MAX_PENDING_BYTES: usize = 2 * (MAX_FRAME_BYTES + 4);

/// The guest's frames stop being read while this many bytes wait to be fetched.
const MAX_OUTGOING_BYTES: usize = 256 << 10;

/// Control messages that wait for buffers; a driver that is well needs three.
const MAX_CONTROL_MESSAGES: usize = 32;

/// Buffers that stay allocated when they are empty may be this large.
const KEPT_CAPACITY_BYTES: usize = 64 << 10;

const F_MULTIPORT: u64 = 1 << 1;

/// Port 0 is the one that guests take for a console, so it does not exist; its queues do.
const PORTS: u32 = 2;
const AGENT_PORT: u32 = 1;

const CONTROL_RX: usize = 2;
const CONTROL_TX: usize = 3;
const AGENT_RX: usize = 4;
const AGENT_TX: usize = 5;

/// The driver fills each receive queue with pages at once, and a message takes the next of them in turn: in a new child
/// each is one more page to copy and to map, so there are few.
const SIZES: &[u16] = &[2, 2, 16, 16, 16, 64];

const CONFIG_BYTES: usize = 12;
const CONTROL_BYTES: usize = 8;

/// `event` of a control message.
mod event {
    pub const DEVICE_READY: u16 = 0;
    pub const PORT_ADD: u16 = 1;
    pub const PORT_READY: u16 = 3;
    pub const PORT_OPEN: u16 = 6;
    pub const PORT_NAME: u16 = 7;
}

/// What the agent's channel carries from one process to another.
#[derive(Serialize, Deserialize)]
pub struct ConsoleState {
    guest_open: bool,
    pending: Vec<u8>,
}

/// The agent's channel.
#[derive(Clone)]
pub struct Console {
    config: [u8; CONFIG_BYTES],
    control: VecDeque<Vec<u8>>,
    guest_open: bool,
    pending: VecDeque<u8>,
    reader: FrameReader,
    outgoing: VecDeque<Vec<u8>>,
    outgoing_bytes: usize,
    stalled: bool,
}

impl Console {
    pub fn new() -> Self {
        let mut config = [0; CONFIG_BYTES];
        config[4..8].copy_from_slice(&PORTS.to_le_bytes());
        Self {
            config,
            control: VecDeque::new(),
            guest_open: false,
            pending: VecDeque::new(),
            reader: FrameReader::new(),
            outgoing: VecDeque::new(),
            outgoing_bytes: 0,
            stalled: false,
        }
    }

    /// Of a machine that is still; or what is half-way.
    pub fn state(&self) -> Result<ConsoleState, &'static str> {
        if !self.outgoing.is_empty() || !self.control.is_empty() || self.stalled || self.reader.is_mid_frame() {
            return Err("a message of its agent is half-way");
        }
        Ok(ConsoleState {
            guest_open: self.guest_open,
            pending: self.pending.iter().copied().collect(),
        })
    }

    pub fn from_state(state: ConsoleState) -> Self {
        Self {
            guest_open: state.guest_open,
            pending: state.pending.into(),
            ..Self::new()
        }
    }

    /// Frames a payload for the guest; `false` and nothing queued where too much waits already.
    pub fn push(&mut self, payload: &[u8]) -> bool {
        if self.pending.len() + payload.len() + 4 > MAX_PENDING_BYTES {
            return false;
        }
        self.pending.extend((payload.len() as u32).to_le_bytes());
        self.pending.extend(payload);
        true
    }

    /// Next complete payload from the guest.
    pub fn pop(&mut self) -> Option<Vec<u8>> {
        let payload = self.outgoing.pop_front()?;
        self.outgoing_bytes -= payload.len();
        Some(payload)
    }

    /// Queues that have work which no kick will announce.
    pub fn waiting_queues(&self) -> [Option<usize>; 2] {
        [
            (self.stalled && self.outgoing_bytes < MAX_OUTGOING_BYTES).then_some(AGENT_TX),
            (self.guest_open && !self.pending.is_empty()).then_some(AGENT_RX),
        ]
    }

    fn receive(&mut self, queue: &mut Queue, memory: &Memory) -> Result<bool, Abuse> {
        if !self.guest_open || self.pending.is_empty() {
            // The driver need not announce buffers that nothing waits for.
            return Ok(false);
        }
        let pending = &mut self.pending;
        let interrupt = ring::serve(queue, memory, |chain| {
            if pending.is_empty() {
                return Ok(Step::Stop);
            }
            let (front, back) = pending.as_slices();
            let mut written = chain.write_at(memory, 0, front)?;
            if written == front.len() {
                written += chain.write_at(memory, written, back)?;
            }
            if written == 0 {
                return Err(Abuse::NoRoom { head: chain.head });
            }
            pending.drain(..written);
            Ok(Step::Used(written as u32))
        })?;
        if self.pending.is_empty() && self.pending.capacity() > KEPT_CAPACITY_BYTES {
            self.pending = VecDeque::new();
        }
        Ok(interrupt)
    }

    /// What a kick brings is taken before the kick returns, and a driver that looks finds its buffers used: it needs an
    /// interrupt only where it had to wait for that.
    fn transmit(&mut self, queue: &mut Queue, memory: &Memory) -> Result<bool, Abuse> {
        let mut bytes = Vec::new();
        let was_stalled = self.stalled;
        let (mut stalled, mut used) = (false, false);
        ring::serve(queue, memory, |chain| {
            if self.outgoing_bytes >= MAX_OUTGOING_BYTES {
                stalled = true;
                return Ok(Step::Stop);
            }
            bytes.clear();
            chain.read_into(memory, &mut bytes)?;
            self.reader.push(&bytes);
            while let Some(payload) = self.reader.next_payload()? {
                self.outgoing_bytes += payload.len();
                self.outgoing.push_back(payload);
            }
            used = true;
            Ok(Step::Used(0))
        })?;
        self.stalled = stalled;
        if !self.reader.is_mid_frame() {
            self.reader = FrameReader::new();
        }
        Ok(was_stalled && used)
    }

    fn control_transmit(&mut self, queue: &mut Queue, memory: &Memory) -> Result<bool, Abuse> {
        let mut bytes = Vec::new();
        ring::serve(queue, memory, |chain| {
            bytes.clear();
            chain.read_into(memory, &mut bytes)?;
            let message = bytes
                .first_chunk::<CONTROL_BYTES>()
                .ok_or(Abuse::Control("message is too short"))?;
            self.control_message(message)?;
            Ok(Step::Used(0))
        })
    }

    fn control_message(&mut self, message: &[u8; CONTROL_BYTES]) -> Result<(), Abuse> {
        let [a, b, c, d, event, event_high, value, value_high] = *message;
        let port = u32::from_le_bytes([a, b, c, d]);
        let value = u16::from_le_bytes([value, value_high]);
        match u16::from_le_bytes([event, event_high]) {
            event::DEVICE_READY if value == 1 => self.announce(event::PORT_ADD, 1, &[]),
            event::PORT_READY if port == AGENT_PORT && value == 1 => {
                self.announce(event::PORT_NAME, 1, AGENT_PORT_NAME.as_bytes())?;
                self.announce(event::PORT_OPEN, 1, &[])
            }
            event::PORT_OPEN if port == AGENT_PORT => {
                self.guest_open = value == 1;
                // Whoever opens the port next begins with new frames, in both directions.
                self.reader = FrameReader::new();
                if !self.guest_open {
                    self.pending.clear();
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn announce(&mut self, event: u16, value: u16, rest: &[u8]) -> Result<(), Abuse> {
        if self.control.len() >= MAX_CONTROL_MESSAGES {
            return Err(Abuse::Control("driver asks without taking the answers"));
        }
        let mut message = Vec::with_capacity(CONTROL_BYTES + rest.len());
        message.extend(AGENT_PORT.to_le_bytes());
        message.extend(event.to_le_bytes());
        message.extend(value.to_le_bytes());
        message.extend(rest);
        self.control.push_back(message);
        Ok(())
    }

    fn control_receive(&mut self, queue: &mut Queue, memory: &Memory) -> Result<bool, Abuse> {
        if self.control.is_empty() {
            return Ok(false);
        }
        let control = &mut self.control;
        ring::serve(queue, memory, |chain| {
            let Some(message) = control.front() else {
                return Ok(Step::Stop);
            };
            let written = chain.write_at(memory, 0, message)?;
            if written < message.len() {
                return Err(Abuse::NoRoom { head: chain.head });
            }
            control.pop_front();
            Ok(Step::Used(written as u32))
        })
    }
}

impl Device for Console {
    const NAME: &'static str = "console";
    const ID: u32 = VIRTIO_ID_CONSOLE;
    const FEATURES: u64 = F_MULTIPORT;
    const QUEUE_SIZES: &'static [u16] = SIZES;

    fn config(&self) -> &[u8] {
        &self.config
    }

    fn reset(&mut self) {
        *self = Self::new();
    }

    fn kick(&mut self, index: usize, queues: &mut [Queue], memory: &Memory) -> Result<bool, Abuse> {
        match index {
            AGENT_RX => self.receive(&mut queues[AGENT_RX], memory),
            AGENT_TX => self.transmit(&mut queues[AGENT_TX], memory),
            CONTROL_RX => self.control_receive(&mut queues[CONTROL_RX], memory),
            CONTROL_TX => {
                let sent = self.control_transmit(&mut queues[CONTROL_TX], memory)?;
                let answered = queues[CONTROL_RX].ready() && self.control_receive(&mut queues[CONTROL_RX], memory)?;
                // The guest may have opened the port that bytes wait for.
                let received = queues[AGENT_RX].ready() && self.receive(&mut queues[AGENT_RX], memory)?;
                Ok(sent || answered || received)
            }
            _ => Ok(false),
        }
    }
}
