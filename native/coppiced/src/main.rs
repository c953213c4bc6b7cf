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
use tracing_subscriber::EnvFilter;

use crate::cli::{Cli, Command};

fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Serve(arguments) => {
            start_logging();
            serve::run(*arguments).map_err(|error| error.to_string())
        }
        Command::Carrier => carrier::run(),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("coppiced: {message}");
            ExitCode::FAILURE
        }
    }
}

/// Text on stderr; `COPPICE_LOG` filters it (default `info`).
fn start_logging() {
    let filter = EnvFilter::try_from_env("COPPICE_LOG").unwrap_or_else(|_| EnvFilter::new("info"));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(false)
        .init();
}
