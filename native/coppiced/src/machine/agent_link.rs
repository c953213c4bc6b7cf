//! Requests to the agent of one VM, and its answers.
//!
//! What comes from the agent is hostile: an answer reaches a caller only where its id is pending and its generation is
//! the present one; everything else that can be decoded is dropped and counted, what cannot be decoded ends the VM.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;

use coppice_wire::agent::{AgentFailure, Chunk, ClockTold, Reply, ReplyBody, Request};
use coppice_wire::vmm::{Command, host_time_ns};
use coppice_wire::{FrameError, Value, decode, encode, encode_frame};
use tokio::sync::{mpsc, oneshot, watch};

use crate::defaults::{CALL_QUEUE, MAX_AGENT_CHUNK_BYTES, MAX_CLOCK_ERROR};
use crate::machine::process::Ending;
use crate::outbox::{Outbox, OutboxError};
use crate::values::from_value;

/// What a pending call receives, in the order the agent sent it.
#[derive(Debug)]
pub enum Delivery {
    Chunk(Chunk),
    Done(Result<Value, AgentFailure>),
}

/// Why a pending call will get no answer.
#[derive(Debug, Clone)]
pub enum Cut {
    /// The sandbox is being parked.
    Frozen,
    /// The sandbox was closed.
    Closed,
    /// The sandbox went back to its checkpoint.
    Rewound,
    /// The guest does not read what it is sent, and a message was dropped.
    Deaf,
    /// The VM is gone.
    Lost(Ending),
}

#[derive(Debug, thiserror::Error)]
pub enum CallError {
    #[error("The call was cut")]
    Cut(Cut),
    #[error("The request can't be encoded: {0}")]
    Encode(#[from] FrameError),
    #[error("The agent refused: {}: {}", .0.code, .0.message)]
    Refused(AgentFailure),
}

/// What an agent did that it must not do.
#[derive(Debug, thiserror::Error)]
pub enum Hostile {
    #[error("The agent sent a message that can't be decoded: {0}")]
    Undecodable(FrameError),
    #[error("The agent said something while its guest was stopped")]
    Stopped,
    #[error("The agent answered a request before it had set its clock")]
    ClockSkipped,
    #[error("The agent could not set its clock: {0}")]
    ClockRefused(String),
    #[error("The guest's clock is {error_ms} ms off after a stop")]
    ClockWrong { error_ms: i64 },
    #[error("The agent sent a piece of output of {bytes} bytes; the limit is {MAX_AGENT_CHUNK_BYTES}")]
    ChunkTooLarge { bytes: usize },
}

struct Pending {
    deliveries: mpsc::Sender<Delivery>,
    cut: oneshot::Sender<Cut>,
}

/// What became of one payload of the agent.
pub enum Accepted {
    /// Deliver this; waits where the caller is slow.
    Deliver(mpsc::Sender<Delivery>, Delivery),
    /// Nothing to deliver. `stale`: it belonged to another life or to nobody.
    Nothing { stale: bool },
}

#[derive(Debug, Clone, Copy)]
struct ClockDue {
    id: u64,
    sent_at_ns: u64,
}

pub struct AgentLink {
    generation: Cell<u64>,
    pending: RefCell<HashMap<u64, Pending>>,
    cut: RefCell<Option<Cut>>,
    stopped: Cell<bool>,
    /// The clock that the agent must set before it does anything else.
    clock: Cell<Option<ClockDue>>,
    ready: watch::Sender<Option<u64>>,
    heard: watch::Sender<()>,
}

impl AgentLink {
    /// `generation`: the one that the guest's memory holds; 0 for a fresh boot.
    pub fn new(generation: u64) -> Self {
        AgentLink {
            generation: Cell::new(generation),
            pending: RefCell::default(),
            cut: RefCell::default(),
            stopped: Cell::new(false),
            clock: Cell::new(None),
            ready: watch::Sender::new(None),
            heard: watch::Sender::new(()),
        }
    }

    pub fn generation(&self) -> u64 {
        self.generation.get()
    }

    /// Begins a new life: from here on only answers of this generation count.
    pub fn adopt(&self, generation: u64) {
        assert!(generation > self.generation.get(), "Generations only grow");
        self.generation.set(generation);
    }

    /// Returns, with its protocol version, when the agent has said that it is ready.
    pub async fn ready(&self) -> u64 {
        // The sender lives in self, so the channel can't close while this waits.
        self.ready
            .subscribe()
            .wait_for(Option::is_some)
            .await
            .ok()
            .and_then(|ready| *ready)
            .unwrap_or(0)
    }

    /// Sees every answer of the agent from now on.
    pub fn listen(&self) -> watch::Receiver<()> {
        self.heard.subscribe()
    }

    /// Registers a request and returns it as a frame for the VMM, which the caller sends.
    pub fn prepare(self: &Rc<Self>, id: u64, op: &str, args: Value) -> Result<(Vec<u8>, PendingCall), CallError> {
        if let Some(cut) = self.cut.borrow().clone() {
            return Err(CallError::Cut(cut));
        }
        let request = Request {
            id,
            generation: self.generation(),
            op: op.to_owned(),
            args,
        };
        let frame = encode_frame(&Command::Agent {
            data: encode(&request)?,
        })?;
        let (deliveries, receiver) = mpsc::channel(CALL_QUEUE);
        let (cut, cut_receiver) = oneshot::channel();
        self.pending.borrow_mut().insert(id, Pending { deliveries, cut });
        let call = PendingCall {
            link: Rc::clone(self),
            id,
            deliveries: receiver,
            cut: cut_receiver,
        };
        Ok((frame, call))
    }

    /// The request that a guest sets its clock after a stop, as a frame for the VMM. Nobody waits for its answer: the link
    /// itself sees to it that it comes before every other, and is right.
    pub fn prepare_clock(&self, id: u64, clock: Value, sent_at_ns: u64) -> Result<Vec<u8>, CallError> {
        let request = Request {
            id,
            generation: self.generation(),
            op: "clock".to_owned(),
            args: clock,
        };
        let frame = encode_frame(&Command::Agent {
            data: encode(&request)?,
        })?;
        self.clock.set(Some(ClockDue { id, sent_at_ns }));
        Ok(frame)
    }

    /// Fails all pending calls and every later one.
    pub fn cut(&self, cut: Cut) {
        self.cut.borrow_mut().get_or_insert(cut.clone());
        self.fail_pending(cut);
    }

    /// Forgets what the life before this one still owed.
    pub fn forget_clock(&self) {
        self.clock.set(None);
    }

    /// Fails all pending calls; later ones may fare better.
    pub fn fail_pending(&self, cut: Cut) {
        let pending = std::mem::take(&mut *self.pending.borrow_mut());
        for (_, call) in pending {
            // A caller that has gone away needs no word.
            let _ = call.cut.send(cut.clone());
        }
    }

    /// Takes calls again: the park that cut them did not happen.
    pub fn uncut(&self) {
        self.cut.take();
    }

    /// The VMM says that the guest has stopped, or runs again: in between nothing can come of it.
    pub fn set_stopped(&self, stopped: bool) {
        self.stopped.set(stopped);
    }

    /// Takes one payload of the agent.
    pub fn accept(&self, payload: &[u8]) -> Result<Accepted, Hostile> {
        if self.stopped.get() {
            return Err(Hostile::Stopped);
        }
        let reply: Reply = decode(payload).map_err(Hostile::Undecodable)?;
        if let ReplyBody::Chunk(chunk) = &reply.body
            && chunk.data.len() > MAX_AGENT_CHUNK_BYTES
        {
            return Err(Hostile::ChunkTooLarge {
                bytes: chunk.data.len(),
            });
        }
        if reply.generation != self.generation() {
            return Ok(Accepted::Nothing { stale: true });
        }
        if let ReplyBody::Event(event) = &reply.body {
            if let Some(protocol) = ready_protocol(event) {
                self.ready.send_replace(Some(protocol));
            }
            return Ok(Accepted::Nothing { stale: false });
        }
        if let Some(due) = self.clock.get() {
            check_told_clock(due, reply, host_time_ns())?;
            self.clock.set(None);
            return Ok(Accepted::Nothing { stale: false });
        }
        Ok(self.delivery(reply))
    }

    fn delivery(&self, reply: Reply) -> Accepted {
        let pending = self.pending.borrow();
        let Some(call) = pending.get(&reply.id) else {
            return Accepted::Nothing { stale: true };
        };
        let to = call.deliveries.clone();
        let delivery = match reply.body {
            ReplyBody::Chunk(chunk) => return Accepted::Deliver(to, Delivery::Chunk(chunk)),
            ReplyBody::Ok(value) => Delivery::Done(Ok(value)),
            ReplyBody::Err(failure) => Delivery::Done(Err(failure)),
            ReplyBody::Event(_) => return Accepted::Nothing { stale: false },
        };
        self.heard.send_replace(());
        // The entry stays until the caller drops it: the delivery may have to wait, and `cut` must still reach it.
        Accepted::Deliver(to, delivery)
    }
}

fn check_told_clock(due: ClockDue, reply: Reply, now_ns: u64) -> Result<(), Hostile> {
    if reply.id != due.id {
        return Err(Hostile::ClockSkipped);
    }
    let told = match reply.body {
        ReplyBody::Ok(value) => from_value::<ClockTold>(value).map_err(Hostile::ClockRefused)?,
        ReplyBody::Err(failure) => return Err(Hostile::ClockRefused(failure.message)),
        ReplyBody::Chunk(_) | ReplyBody::Event(_) => return Err(Hostile::ClockSkipped),
    };
    match clock_error_ms(due.sent_at_ns, told.realtime_ns, now_ns) {
        0 => Ok(()),
        error_ms => Err(Hostile::ClockWrong { error_ms }),
    }
}

/// By how many milliseconds a clock is off that was read at some time between `from_ns` and `to_ns`; 0 where it is right
/// within `MAX_CLOCK_ERROR`.
pub fn clock_error_ms(from_ns: u64, read_ns: u64, to_ns: u64) -> i64 {
    let limit = MAX_CLOCK_ERROR.as_nanos() as i128;
    let (from, read, to) = (i128::from(from_ns), i128::from(read_ns), i128::from(to_ns));
    if (from - limit..=to + limit).contains(&read) {
        return 0;
    }
    let error_ms = (read - to) / 1_000_000;
    i64::try_from(error_ms).unwrap_or(if error_ms < 0 { i64::MIN } else { i64::MAX })
}

/// The `ready` event's protocol version.
fn ready_protocol(event: &Value) -> Option<u64> {
    let field = |name: &str| {
        event
            .as_map()?
            .iter()
            .find(|(key, _)| key.as_str() == Some(name))
            .map(|(_, value)| value)
    };
    match field("name")?.as_str()? {
        "ready" => field("protocol")?.as_u64(),
        _ => None,
    }
}

/// A call that waits for its answer. Dropping it forgets the call.
pub struct PendingCall {
    link: Rc<AgentLink>,
    pub id: u64,
    deliveries: mpsc::Receiver<Delivery>,
    cut: oneshot::Receiver<Cut>,
}

impl PendingCall {
    /// The next delivery.
    pub async fn next(&mut self) -> Result<Delivery, CallError> {
        tokio::select! {
            biased;
            Some(delivery) = self.deliveries.recv() => Ok(delivery),
            Ok(cut) = &mut self.cut => Err(CallError::Cut(cut)),
            else => Err(CallError::Cut(Cut::Closed)),
        }
    }

    /// Returns when there will be no answer.
    pub async fn cut(&mut self) -> Cut {
        (&mut self.cut).await.unwrap_or(Cut::Closed)
    }

    /// The final answer of a call that has no output.
    pub async fn answer(&mut self) -> Result<Value, CallError> {
        loop {
            if let Delivery::Done(answer) = self.next().await? {
                return answer.map_err(CallError::Refused);
            }
        }
    }
}

impl Drop for PendingCall {
    fn drop(&mut self) {
        self.link.pending.borrow_mut().remove(&self.id);
    }
}

/// Tells the agent to give up a call; it needs no answer.
pub fn cancel_frame(id: u64, generation: u64, target: u64) -> Result<Vec<u8>, FrameError> {
    let args = Value::Map(vec![("target".into(), target.into())]);
    let request = Request {
        id,
        generation,
        op: "cancel".to_owned(),
        args,
    };
    encode_frame(&Command::Agent {
        data: encode(&request)?,
    })
}

impl From<OutboxError> for CallError {
    fn from(_: OutboxError) -> Self {
        CallError::Cut(Cut::Closed)
    }
}

/// Sends a frame, waiting for room.
pub async fn send(outbox: &Outbox, frame: Vec<u8>) -> Result<(), CallError> {
    Ok(outbox.send(frame).await?)
}
