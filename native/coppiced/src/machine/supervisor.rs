//! The task that reads what one VMM process says, until its end.

use std::rc::Rc;
use std::time::{Duration, Instant};

use coppice_wire::vmm::Event;
use coppice_wire::{FrameReader, decode};

use crate::defaults::VMM_QUEUE_BYTES;
use crate::errors::{is_code, shorten};
use crate::host::Host;
use crate::machine::agent_link::{Accepted, Cut};
use crate::machine::control_socket::{ControlSocket, Reader};
use crate::machine::process::{Ending, Role, VmmError, VmmProcess};
use crate::outbox::outbox;

/// After a VMM has exited its last words are still read for this long.
const LAST_WORDS: Duration = Duration::from_millis(200);

/// How long the end of a process waits for its exit status, which only makes the message better.
const EXIT_STATUS_WAIT: Duration = Duration::from_millis(500);

/// What a VMM says when it drops a message because the guest has not read the ones before.
const AGENT_BACKLOG: &str = "VMM_AGENT_BACKLOG";

/// Longest detail that is taken from a VMM.
const MAX_DETAIL_BYTES: usize = 1024;

/// Takes over our end of a control socket.
pub fn supervise(host: &Rc<Host>, socket: ControlSocket, role: Role, generation: u64) -> Rc<VmmProcess> {
    let (queue, outgoing) = outbox(VMM_QUEUE_BYTES);
    let process = Rc::new(VmmProcess::new(queue, role, generation));
    let ControlSocket { reader, writer } = socket;
    let writer = tokio::task::spawn_local(outgoing.write_to_vmm(writer));
    let (host, supervised) = (Rc::clone(host), Rc::clone(&process));
    tokio::task::spawn_local(async move {
        let ending = read_until_end(&host, &supervised, reader).await;
        // Ends the write side of the socket too, so that a VMM which still runs exits.
        writer.abort();
        settle(&host, &supervised, ending).await;
    });
    process
}

async fn settle(host: &Host, process: &VmmProcess, ending: Option<Ending>) {
    if let Some(ending) = ending {
        process.set_ending(ending);
    }
    process.kill();
    let how = match process.pid() {
        Some(_) => tokio::time::timeout(EXIT_STATUS_WAIT, process.exited())
            .await
            .unwrap_or_else(|_| "still exiting".into()),
        None => "before it had a pid".into(),
    };
    process.set_ending(match host.enforcement.ended(process) {
        true => Ending::over_memory(),
        false => Ending::Died { detail: how },
    });
    if matches!(process.ending(), Some(Ending::OverLimit { .. })) {
        host.counters.memory_limit_kills.increment();
    }
    host.process_ended(process);
    process.set_settled();
}

/// Reads and handles events. The ending is `None` where the socket just ended.
async fn read_until_end(host: &Host, process: &VmmProcess, socket: Reader) -> Option<Ending> {
    let mut frames = FrameReader::new();
    let gone = async {
        process.exited().await;
        tokio::time::sleep(LAST_WORDS).await;
    };
    tokio::pin!(gone);
    loop {
        let read = tokio::select! {
            read = socket.read(|bytes| frames.push(bytes)) => read,
            () = &mut gone => return None,
        };
        match read {
            Ok(0) | Err(_) => return None,
            Ok(_) => {}
        }
        loop {
            let payload = match frames.next_payload() {
                Ok(Some(payload)) => payload,
                Ok(None) => break,
                Err(error) => {
                    return Some(Ending::Hostile {
                        detail: error.to_string(),
                    });
                }
            };
            let event = match decode::<Event>(&payload) {
                Ok(event) => event,
                Err(error) => {
                    return Some(Ending::Hostile {
                        detail: error.to_string(),
                    });
                }
            };
            if let Err(ending) = handle(host, process, event).await {
                return Some(ending);
            }
        }
    }
}

async fn handle(host: &Host, process: &VmmProcess, event: Event) -> Result<(), Ending> {
    match event {
        Event::Agent { data } => relay(host, process, &data).await?,
        Event::Console { data, dropped } => take_console(host, process, &data, dropped).await,
        Event::ExtentWanted => give_extent(host, process)?,
        Event::GuestEnded { reason, detail } => {
            process.set_ending(Ending::Guest {
                reason,
                detail: shorten(detail, MAX_DETAIL_BYTES),
            });
        }
        Event::Failed { code, message, poisons } => failed(process, code, message, poisons)?,
        answer => {
            match answer {
                Event::Paused { .. } => process.agent.set_stopped(true),
                Event::Resumed { .. } => process.agent.set_stopped(false),
                // Here: the life that begins with this may ask for its file in the same breath.
                Event::Rewound { .. } => process.begin_life(),
                _ => {}
            }
            if !process.answer(Ok(answer)) {
                return Err(Ending::Hostile {
                    detail: "the VMM answered what nobody had asked".to_owned(),
                });
            }
        }
    }
    Ok(())
}

/// A VMM that says more than any guest of ours may is read more slowly, at its own cost.
async fn take_console(host: &Host, process: &VmmProcess, data: &[u8], dropped: u64) {
    host.counters.console_dropped_bytes.add(dropped);
    process.console.borrow_mut().push(data);
    let pause = process.console.borrow_mut().pause_after(data.len(), Instant::now());
    if !pause.is_zero() {
        tokio::time::sleep(pause).await;
    }
}

/// What the guest writes first has waited for this: where there is no file, its writes fail.
fn give_extent(host: &Host, process: &VmmProcess) -> Result<(), Ending> {
    let hostile = |detail: String| Ending::Hostile { detail };
    if !process.extent.is_open() {
        return Err(hostile("the VMM asked for a second file to write to".to_owned()));
    }
    let extent = host.extents.create();
    let extent = extent.inspect_err(|error| {
        // Once: a guest may try as often as it likes.
        if process.extent.note_refusal() {
            tracing::warn!(sandbox = process.id(), %error, "The guest can't write");
        }
    });
    process
        .give_extent(extent.ok())
        .map_err(|error| hostile(error.to_string()))
}

/// A refusal of the oldest command, or of an agent's message: those have no answer of their own.
fn failed(process: &VmmProcess, code: String, message: String, poisons: bool) -> Result<(), Ending> {
    let message = shorten(message, MAX_DETAIL_BYTES);
    if code == AGENT_BACKLOG {
        tracing::warn!(sandbox = process.id(), reason = message, "The guest reads nothing");
        process.agent.fail_pending(Cut::Deaf);
        return Ok(());
    }
    let code = if is_code(&code) { code } else { "VMM_FAILED".to_owned() };
    match process.answer(Err(VmmError::Failed {
        code,
        message: message.clone(),
        poisons,
    })) {
        true => Ok(()),
        false => Err(Ending::Hostile {
            detail: format!("the VMM failed unasked: {message}"),
        }),
    }
}

async fn relay(host: &Host, process: &VmmProcess, payload: &[u8]) -> Result<(), Ending> {
    match process.agent.accept(payload) {
        Err(hostile) => {
            return Err(Ending::Hostile {
                detail: hostile.to_string(),
            });
        }
        Ok(Accepted::Nothing { stale: false }) => {}
        Ok(Accepted::Nothing { stale: true }) => {
            host.counters.stale_replies.increment();
            tracing::debug!(
                sandbox = process.id(),
                "Dropped an agent's message of another life or of no call"
            );
        }
        // A slow caller stops this VM's messages, and no other's. A call that ends, and the VM's end, free it.
        Ok(Accepted::Deliver(to, delivery)) => tokio::select! {
            _ = to.send(delivery) => {}
            _ = process.exited() => {}
        },
    }
    Ok(())
}
