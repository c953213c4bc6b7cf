//! Giving a guest its new life: generation, randomness, clock and names, and the proof that it took them.
//!
//! Fails closed: whoever calls this holds the sandbox in custody and discards it on any error.

use std::time::{Duration, Instant};

use coppice_wire::Value;
use coppice_wire::agent::{AgentFailure, Clock, Resume, Resumed};
use coppice_wire::vmm::{Command, Event, Stages, host_time_ns};

use crate::defaults::{
    CONTROL_DEADLINE, MAX_CLOCK_ERROR, MAX_CLOCK_LATENESS, MAX_CLOCK_LEAP, RESUME_ATTEMPTS, RESUME_DEADLINE,
};
use crate::errors::{FaultDomain, Spec, Typed, shorten};
use crate::host::Host;
use crate::ids::{RandomError, random_bytes, random_hex};
use crate::machine::agent_link::{CallError, Cut, PendingCall, clock_error_ms, send};
use crate::machine::process::{Due, Stopped, VmmError, expect_answer};
use crate::machine::sandbox::Sandbox;
use crate::values::{ValueError, from_value, to_value};

/// Longest boot identity that is taken; the kernel's has 36 characters.
const MAX_BOOT_ID_BYTES: usize = 64;

const MAX_AGENT_MESSAGE_BYTES: usize = 1024;

#[derive(Debug, thiserror::Error)]
pub enum HandOutError {
    #[error("the guest's clock is {error_ms} ms off")]
    Clock { error_ms: i64 },
    #[error("the guest's clock is still {error_ms} ms late after {RESUME_ATTEMPTS} attempts: the host is overloaded")]
    ClockLate { error_ms: i64 },
    #[error("the guest kept the boot identity of the checkpoint it was forked from")]
    SameBootId,
    #[error("the guest has the boot identity of sandbox {other}")]
    DuplicateBootId { other: String },
    #[error("the guest answered under generation {given} instead of {wanted}")]
    WrongGeneration { given: u64, wanted: u64 },
    #[error("the agent's answer is malformed: {0}")]
    Malformed(String),
    #[error("the agent refused: {}: {}", .0.code, shorten(.0.message.clone(), MAX_AGENT_MESSAGE_BYTES))]
    Refused(AgentFailure),
    #[error("the agent did not answer within {} s", RESUME_DEADLINE.as_secs())]
    Silent,
    #[error("its VM ended ({0})")]
    Ended(String),
    #[error("{0}")]
    Vmm(#[from] VmmError),
    #[error("{0}")]
    Random(#[from] RandomError),
    #[error("{0}")]
    Value(#[from] ValueError),
}

impl Typed for HandOutError {
    fn spec(&self) -> Spec {
        let domain = match self {
            HandOutError::ClockLate { .. } | HandOutError::Vmm(_) | HandOutError::Random(_) => FaultDomain::Host,
            HandOutError::Value(_) => FaultDomain::Bug,
            _ => FaultDomain::Guest,
        };
        Spec::new("HANDOUT_FAILED", domain)
            .retryable()
            .remedy("The sandbox was discarded; fork the checkpoint again.")
            .poisons()
    }
}

impl From<CallError> for HandOutError {
    fn from(error: CallError) -> Self {
        match error {
            CallError::Refused(failure) => HandOutError::Refused(failure),
            CallError::Cut(Cut::Lost(ending)) => {
                HandOutError::Ended(format!("{} {}", ending.reason(), ending.detail()).trim().to_owned())
            }
            CallError::Cut(Cut::Closed | Cut::Frozen | Cut::Rewound | Cut::Deaf) => {
                HandOutError::Ended("closed meanwhile".to_owned())
            }
            CallError::Encode(error) => HandOutError::Malformed(error.to_string()),
        }
    }
}

#[derive(Debug, Clone, Copy)]
pub struct HandOut {
    /// Keep the checkpoint's kernel randomness.
    pub keep_randomness: bool,
    /// By how much the guest's clock is behind, where it was right when it stopped.
    pub stopped_ns: Option<u64>,
}

/// Gives a child that ran ahead to its owner. Its randomness, names and generation are its own since it ran ahead, and
/// nobody else has ever had them. Its clocks run on through a short stop. After a long one its kernel would first catch up
/// with everything that was due meanwhile: then they have stood still, and the wall clock is behind, of which the guest is
/// told before it is told anything else; its answer, which the agent's link checks, comes before any other.
///
/// What is sent to it from now on it gets behind this, so that nobody need wait for the answer: where that says that the
/// child can't run, none of it has run.
pub fn wake(host: &Host, sandbox: &Sandbox) -> Result<Due, HandOutError> {
    let process = &sandbox.process;
    let now_ns = host_time_ns();
    let Stopped { wall_ns, is_real } = process.stopped(now_ns);
    let (at_ns, frame) = if is_real && u128::from(wall_ns) < MAX_CLOCK_LEAP.as_nanos() {
        (None, Vec::new())
    } else {
        // Where the host's clock was set meanwhile, how long it was stopped is not what its clock is behind.
        let clock = match is_real {
            true => Clock::Advance { stopped_ns: wall_ns },
            false => Clock::Set { realtime_ns: now_ns },
        };
        let clock = to_value(&clock)?;
        let frame = process.agent.prepare_clock(host.ids.request(), clock, now_ns)?;
        (Some(now_ns), frame)
    };
    Ok(process.send_with(&Command::Resume { at_ns }, None, frame)?)
}

/// Whether a child that was woken runs.
pub async fn woken(due: Due) -> Result<(), VmmError> {
    expect_answer!(due.within(CONTROL_DEADLINE).await?, "resume", Event::Resumed { .. } => ())
}

/// Returns one stage, `agent.resume`.
pub async fn hand_out(host: &Host, sandbox: &Sandbox, options: HandOut) -> Result<Stages, HandOutError> {
    let begin = Instant::now();
    let machine_id = random_hex::<16>()?;
    let resume = |clock, max_lateness| Attempt {
        machine_id: &machine_id,
        keep_randomness: options.keep_randomness,
        clock,
        max_lateness,
    };
    let mut resumed = match options.stopped_ns {
        Some(stopped_ns) => {
            let clock = Some(Clock::Advance { stopped_ns });
            resume(clock, Duration::MAX).run(host, sandbox).await
        }
        None => Err(HandOutError::ClockLate { error_ms: 0 }),
    };
    // Somebody may have set the clock in the guest.
    if let Err(HandOutError::Clock { .. }) = resumed {
        resumed = Err(HandOutError::ClockLate { error_ms: 0 });
    }
    for number in 1..=RESUME_ATTEMPTS {
        let Err(HandOutError::ClockLate { .. }) = resumed else {
            break;
        };
        let max_lateness = if number < RESUME_ATTEMPTS {
            MAX_CLOCK_ERROR
        } else {
            MAX_CLOCK_LATENESS
        };
        resumed = resume(None, max_lateness).run(host, sandbox).await;
    }
    let resumed = resumed?;
    check_boot_id(host, sandbox, &resumed, options.keep_randomness)?;
    *sandbox.boot_id.borrow_mut() = resumed.boot_id;
    Ok(vec![("agent.resume".to_owned(), micros_since(begin))])
}

/// What begins a life that was handed out, without effect: what the guest touches for it now, it need not touch then.
pub async fn rehearse(host: &Host, sandbox: &Sandbox) -> Result<(), HandOutError> {
    let process = &sandbox.process;
    let agent = &process.agent;
    let no_time = to_value(&Clock::Advance { stopped_ns: 0 })?;
    let (mut frames, mut clock) = agent.prepare(host.ids.request(), "clock", no_time)?;
    let (ping_frame, mut ping) = agent.prepare(host.ids.request(), "ping", Value::Map(Vec::new()))?;
    frames.extend(ping_frame);
    send(&process.outbox, frames).await?;
    let answers = async { clock.answer().await.and(ping.answer().await) };
    tokio::time::timeout(RESUME_DEADLINE, answers)
        .await
        .map_err(|_| HandOutError::Silent)??;
    Ok(())
}

struct Attempt<'a> {
    machine_id: &'a str,
    keep_randomness: bool,
    /// `None`: the host's clock at the moment of sending.
    clock: Option<Clock>,
    max_lateness: Duration,
}

impl Attempt<'_> {
    async fn run(&self, host: &Host, sandbox: &Sandbox) -> Result<Resumed, HandOutError> {
        let process = &sandbox.process;
        let generation = host.ids.generation();
        process.agent.adopt(generation);
        let seed = match self.keep_randomness {
            true => None,
            false => Some(random_bytes::<64>()?.to_vec()),
        };
        let sent_at = host_time_ns();
        let resume = Resume {
            generation,
            seed,
            clock: self.clock.unwrap_or(Clock::Set { realtime_ns: sent_at }),
            hostname: sandbox.id.clone(),
            machine_id: self.machine_id.to_owned(),
        };
        let (frame, mut call) = process
            .agent
            .prepare(host.ids.request(), "resume", to_value(&resume)?)?;
        send(&process.outbox, frame).await?;
        let resumed = answer(&mut call).await?;
        if resumed.generation != generation {
            return Err(HandOutError::WrongGeneration {
                given: resumed.generation,
                wanted: generation,
            });
        }
        check_clock(sent_at, resumed.realtime_ns, host_time_ns(), self.max_lateness)?;
        Ok(resumed)
    }
}

async fn answer(call: &mut PendingCall) -> Result<Resumed, HandOutError> {
    let answer = tokio::time::timeout(RESUME_DEADLINE, call.answer())
        .await
        .map_err(|_| HandOutError::Silent)??;
    from_value(answer).map_err(|reason| HandOutError::Malformed(shorten(reason, MAX_AGENT_MESSAGE_BYTES)))
}

/// `ClockLate`: the guest read its clock in time, but long before now: a request that was under way for so long has set a
/// clock that was late already.
fn check_clock(sent_at: u64, guest: u64, received_at: u64, max_lateness: Duration) -> Result<(), HandOutError> {
    let error_ms = clock_error_ms(sent_at, guest, received_at);
    if error_ms != 0 {
        return Err(HandOutError::Clock { error_ms });
    }
    let late_ns = received_at.saturating_sub(guest);
    if u128::from(late_ns) >= max_lateness.as_nanos() {
        let error_ms = -i64::try_from(late_ns / 1_000_000).unwrap_or(i64::MAX);
        return Err(HandOutError::ClockLate { error_ms });
    }
    Ok(())
}

fn check_boot_id(host: &Host, sandbox: &Sandbox, resumed: &Resumed, kept: bool) -> Result<(), HandOutError> {
    let boot_id = &resumed.boot_id;
    let printable = boot_id.bytes().all(|byte| byte.is_ascii_graphic());
    if boot_id.is_empty() || boot_id.len() > MAX_BOOT_ID_BYTES || !printable {
        return Err(HandOutError::Malformed("bootId is no identity".to_owned()));
    }
    if *boot_id == sandbox.inherited_boot_id {
        return Err(HandOutError::SameBootId);
    }
    // With kept randomness siblings may well draw the same.
    let sandboxes = host.sandboxes.borrow();
    let twin = sandboxes
        .values()
        .find(|other| other.id != sandbox.id && *other.boot_id.borrow() == *boot_id);
    match twin {
        Some(twin) if !kept => Err(HandOutError::DuplicateBootId { other: twin.id.clone() }),
        _ => Ok(()),
    }
}

pub fn micros_since(begin: Instant) -> u64 {
    u64::try_from(begin.elapsed().as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;
    const SENT: u64 = 1_000_000 * MS;

    #[test]
    fn clock_that_was_read_between_request_and_answer_is_right() {
        assert!(check_clock(SENT, SENT + 2 * MS, SENT + 4 * MS, MAX_CLOCK_ERROR).is_ok());
        assert!(check_clock(SENT, SENT - 49 * MS, SENT, MAX_CLOCK_ERROR).is_ok());
        assert!(check_clock(SENT, SENT + 49 * MS, SENT, MAX_CLOCK_ERROR).is_ok());
    }

    #[test]
    fn clock_that_was_set_late_is_told_from_a_wrong_one() {
        let received = SENT + 400 * MS;
        assert!(matches!(
            check_clock(SENT, SENT + MS, received, MAX_CLOCK_ERROR),
            Err(HandOutError::ClockLate { .. })
        ));
        assert!(check_clock(SENT, SENT + MS, received, MAX_CLOCK_LATENESS).is_ok());
        assert!(matches!(
            check_clock(SENT, SENT - 60 * MS, received, MAX_CLOCK_ERROR),
            Err(HandOutError::Clock { error_ms: -460 })
        ));
        assert!(matches!(
            check_clock(SENT, received + 60 * MS, received, MAX_CLOCK_ERROR),
            Err(HandOutError::Clock { error_ms: 60 })
        ));
        assert!(matches!(
            check_clock(SENT, 0, received, MAX_CLOCK_ERROR),
            Err(HandOutError::Clock { .. })
        ));
        assert!(matches!(
            check_clock(SENT, u64::MAX, received, MAX_CLOCK_ERROR),
            Err(HandOutError::Clock { .. })
        ));
    }
}
