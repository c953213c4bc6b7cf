//! The agent that is played.
//!
//! | op | answer |
//! |---|---|
//! | `ping` | `{ bootId, realtimeNs, monotonicNs }` |
//! | `echo` | its arguments |
//! | `count` | how often this life and its ancestors were asked |
//! | `hang` | none until it is cancelled, then the error `CANCELLED` |
//! | `cancels` | how many calls were cancelled |
//! | `chunks` `{ n, bytes }` | n pieces of output, then `{}` |
//! | `refuse` | an error |
//! | `stale` | an answer of another generation, one to an unknown call, then the right one |
//! | `resumed` | the arguments of the last resume |
//! | `garbage`, `bigChunk`, `badFrame` | what an agent, or a VMM, must not send |
//! | `wantExtent` | `{}`, behind the wish for a file to write the disk to |
//! | `disk` | what has come of it, see `Disk::state` |
//! | `die`, `end` | the VMM exits; the guest powers off |

use std::process::exit;

use coppice_wire::agent::{AgentFailure, Chunk, Clock, Reply, ReplyBody, Request, Resume, Resumed};
use coppice_wire::vmm::{Event, GuestEnd};
use coppice_wire::{Value, decode, encode};
use serde::Serialize;
use serde::de::Deserialize;

use crate::clock::GuestClock;
use crate::disk::Disk;
use crate::faults::Faults;
use crate::socket::Socket;

pub struct Agent {
    boot_id: String,
    count: u64,
    cancels: u64,
    hanging: Vec<Request>,
    hogged: Vec<Vec<u8>>,
    resumes: u64,
    last_resume: Value,
    /// It has gone back, and does not take the next life on.
    pub keeps_boot_id: bool,
    pub clock: GuestClock,
    pub disk: Disk,
}

/// What a rewind puts back.
pub struct Mark {
    boot_id: String,
    count: u64,
    clock: GuestClock,
}

impl Agent {
    pub fn mark(&self) -> Mark {
        Mark {
            boot_id: self.boot_id.clone(),
            count: self.count,
            clock: self.clock.clone(),
        }
    }

    pub fn go_back(&mut self, mark: &Mark) {
        self.boot_id.clone_from(&mark.boot_id);
        self.count = mark.count;
        self.clock = mark.clock.clone();
        self.hanging.clear();
    }

    pub fn new() -> Self {
        let boot_id = "boot-0".to_owned();
        Agent {
            boot_id,
            count: 0,
            cancels: 0,
            hanging: Vec::new(),
            hogged: Vec::new(),
            resumes: 0,
            last_resume: Value::Nil,
            keeps_boot_id: false,
            clock: GuestClock::default(),
            disk: Disk::default(),
        }
    }

    pub fn say_ready(&self, socket: &mut Socket, protocol: i64) {
        let event = map([
            ("name", "ready".into()),
            ("protocol", protocol.into()),
            ("version", "0".into()),
        ]);
        send(
            socket,
            &Reply {
                id: 0,
                generation: 0,
                body: ReplyBody::Event(event),
            },
        );
    }

    pub fn take(&mut self, payload: &[u8], socket: &mut Socket, faults: &Faults) {
        let Ok(request) = decode::<Request>(payload) else {
            exit(6)
        };
        let argument = |name: &str| {
            let entries = request.args.as_map()?;
            entries
                .iter()
                .find(|(key, _)| key.as_str() == Some(name))
                .and_then(|(_, value)| value.as_u64())
        };
        let answer = match request.op.as_str() {
            "resume" => return self.resume(&request, socket, faults),
            // Which a rehearsal does not bring up.
            "clock" => match faults.value("clock").filter(|_| is_behind(&request)) {
                Some("silent") => return,
                Some("refuse") => return refuse(socket, &request, "RESUME_FAILED", "no clock"),
                Some("garbage") => "what?".into(),
                Some("wrong") => map([("realtimeNs", self.clock.now_ns().into())]),
                _ => self.set_clock(&request),
            },
            "ping" => self.pong(),
            "echo" => request.args.clone(),
            "count" => {
                self.count += 1;
                map([("count", self.count.into())])
            }
            "resumed" => self.last_resume.clone(),
            "hang" => return self.hanging.push(request),
            "cancel" => self.cancel(argument("target").unwrap_or(0), socket),
            "cancels" => map([("cancels", self.cancels.into())]),
            "chunks" => {
                let (n, bytes) = (argument("n").unwrap_or(1), argument("bytes").unwrap_or(1));
                (0..n).for_each(|_| chunk(socket, &request, bytes as usize));
                map([])
            }
            "stale" => {
                answer_as(socket, request.id, request.generation - 1, "of another life");
                answer_as(socket, request.id + 1_000_000, request.generation, "of no call");
                "right".into()
            }
            "garbage" => return socket.send(&Event::Agent { data: vec![0xc1; 8] }),
            "bigChunk" => return chunk(socket, &request, 65 * 1024),
            "badFrame" => return socket.send_raw(&[0xff; 4]),
            "wantExtent" => {
                socket.send(&Event::ExtentWanted);
                map([])
            }
            "hog" => {
                // Written, so that it is there.
                self.hogged.push(vec![1; (argument("mib").unwrap_or(1) << 20) as usize]);
                map([])
            }
            "disk" => self.disk.state(),
            "die" => exit(3),
            "end" => {
                socket.send(&Event::Console {
                    data: b"Power down\n".to_vec(),
                    dropped: 0,
                });
                socket.send(&Event::GuestEnded {
                    reason: GuestEnd::Shutdown,
                    detail: "power-off".to_owned(),
                });
                exit(0);
            }
            _ => return refuse(socket, &request, "UNKNOWN_OPERATION", "no such operation"),
        };
        send(
            socket,
            &Reply {
                id: request.id,
                generation: request.generation,
                body: ReplyBody::Ok(answer),
            },
        );
    }

    fn resume(&mut self, request: &Request, socket: &mut Socket, faults: &Faults) {
        self.last_resume = request.args.clone();
        let Ok(resume) = Resume::deserialize(request.args.clone()) else {
            exit(6)
        };
        let faulty = !faults.has("faulty-children") || self.resumes > 0;
        self.resumes += 1;
        match faults.value("resume") {
            Some("silent") if faulty => return,
            Some("refuse") if faulty => return refuse(socket, request, "RESUME_FAILED", "no entropy"),
            Some("garbage") if faulty => return answer_as(socket, request.id, request.generation, "what?"),
            _ => {}
        }
        let keeps = self.keeps_boot_id || (faulty && faults.has("same-boot-id"));
        if !keeps {
            self.boot_id = match faulty && faults.has("fixed-boot-id") {
                true => "boot-fixed".to_owned(),
                false => format!("boot-{}-{}", std::process::id(), resume.generation),
            };
        }
        let late = faults
            .number("late-clocks")
            .is_some_and(|n| faulty && self.resumes <= n.unsigned_abs());
        if late && matches!(resume.clock, Clock::Set { .. }) {
            std::thread::sleep(std::time::Duration::from_millis(120));
        }
        self.clock.put_right(resume.clock);
        let offset_ns = faults.number("clock-offset-ms").filter(|_| faulty).unwrap_or(0) * 1_000_000;
        let wrong = u64::from(faulty && faults.has("wrong-generation"));
        let resumed = Resumed {
            generation: resume.generation + wrong,
            realtime_ns: self.clock.now_ns().saturating_add_signed(offset_ns),
            monotonic_ns: 1,
            boot_id: self.boot_id.clone(),
        };
        let body = ReplyBody::Ok(to_value(&resumed));
        send(
            socket,
            &Reply {
                id: request.id,
                generation: request.generation,
                body,
            },
        );
    }

    fn set_clock(&mut self, request: &Request) -> Value {
        let Ok(clock) = Clock::deserialize(request.args.clone()) else {
            exit(6)
        };
        self.clock.put_right(clock);
        map([("realtimeNs", self.clock.now_ns().into())])
    }

    fn pong(&self) -> Value {
        map([
            ("bootId", self.boot_id.as_str().into()),
            ("realtimeNs", self.clock.now_ns().into()),
            ("monotonicNs", 1.into()),
        ])
    }

    fn cancel(&mut self, target: u64, socket: &mut Socket) -> Value {
        let found = self.hanging.iter().position(|request| request.id == target);
        if let Some(position) = found {
            let request = self.hanging.remove(position);
            self.cancels += 1;
            refuse(socket, &request, "CANCELLED", "cancelled");
        }
        map([("found", found.is_some().into())])
    }
}

fn chunk(socket: &mut Socket, request: &Request, bytes: usize) {
    let chunk = Chunk {
        stream: "stdout".to_owned(),
        data: vec![b'x'; bytes],
    };
    send(
        socket,
        &Reply {
            id: request.id,
            generation: request.generation,
            body: ReplyBody::Chunk(chunk),
        },
    );
}

fn refuse(socket: &mut Socket, request: &Request, code: &str, message: &str) {
    let failure = AgentFailure {
        code: code.to_owned(),
        message: message.to_owned(),
    };
    send(
        socket,
        &Reply {
            id: request.id,
            generation: request.generation,
            body: ReplyBody::Err(failure),
        },
    );
}

fn answer_as(socket: &mut Socket, id: u64, generation: u64, answer: &str) {
    send(
        socket,
        &Reply {
            id,
            generation,
            body: ReplyBody::Ok(answer.into()),
        },
    );
}

fn send(socket: &mut Socket, reply: &Reply) {
    match encode(reply) {
        Ok(data) => socket.send(&Event::Agent { data }),
        Err(_) => exit(5),
    }
}

fn to_value(message: &impl Serialize) -> Value {
    encode(message)
        .and_then(|payload| decode(&payload))
        .unwrap_or(Value::Nil)
}

pub fn map<const N: usize>(entries: [(&str, Value); N]) -> Value {
    Value::Map(entries.into_iter().map(|(key, value)| (key.into(), value)).collect())
}

fn is_behind(request: &Request) -> bool {
    !matches!(
        Clock::deserialize(request.args.clone()),
        Ok(Clock::Advance { stopped_ns: 0 })
    )
}
