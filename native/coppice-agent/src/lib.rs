//! The agent: PID 1 of every guest. It starts programs, drives terminals, moves files, and takes on a new identity after
//! each fork, as the host asks through one stream of frames (`docs/protocol.md`).
//!
//! One thread, one event loop (`agent`): a fork of the guest copies whatever it is doing, and everything that it does is
//! at a message boundary or can be taken up where it stood.

#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod agent;
pub mod args;
pub mod boot;
pub mod context;
pub mod exec;
pub mod failure;
pub mod file_jobs;
pub mod files;
pub mod identity;
pub mod outbox;
pub mod poller;
pub mod port;
pub mod procfs;
pub mod ptys;
pub mod signals;
pub mod slab;
pub mod spawn;
pub mod sys;
pub mod terminal;
pub mod tick;
pub mod uploads;
pub mod user;
