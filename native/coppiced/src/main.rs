//! `coppiced`: owns VMM processes, images and checkpoints of one host, and serves clients.

#![cfg_attr(test, allow(clippy::unwrap_used))]

mod carrier;
mod checkpoints;
mod cli;
mod defaults;
mod disks;
mod errors;
mod extents;
mod graveyard;
mod host;
mod ids;
mod images;
mod lifecycle;
mod limits;
mod logging;
mod machine;
mod memory;
mod methods;
mod metrics;
mod outbox;
mod reaper;
mod serve;
mod server;
mod session;
mod stats;
mod usage;
mod values;

use std::process::ExitCode;

use clap::Parser;

use crate::cli::{Cli, Command};

/// The daemon makes many small objects for each request, and the default allocator of a static program is slow at it.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Serve(arguments) => logging::start()
            .map_err(|error| error.to_string())
            .and_then(|()| serve::run(*arguments).map_err(|error| error.to_string())),
        Command::Carrier => carrier::run(),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            logging::last_words(&message);
            ExitCode::FAILURE
        }
    }
}
