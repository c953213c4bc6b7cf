//! Runs one program (a carrier's QEMU) in a directory of its own, and leaves nothing when it ends.
//!
//! The program dies with the keeper, whatever kills the keeper. Standard input is a leash: until its other end has said
//! `keep`, the end of it (the starter died, or gave up) ends the program too. The program's standard output is kept as a
//! console log of bounded size.

mod console;
mod keep;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;

/// Keep a carrier.
#[derive(Debug, Parser)]
#[command(version)]
struct Arguments {
    /// Directory of this carrier alone. It is removed when the program has ended.
    #[arg(long)]
    directory: PathBuf,
    /// Where the end of the console is kept after that.
    #[arg(long)]
    last_console: Option<PathBuf>,
    /// Bytes of console kept while the program runs; up to twice as many for a moment.
    #[arg(long, default_value_t = 1024 * 1024)]
    console_limit: u64,
    /// The program and its arguments.
    #[arg(last = true, required = true)]
    command: Vec<String>,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let kept = keep::keep(&arguments.command, &arguments.directory, arguments.console_limit);
    let removed = keep::remove(&arguments.directory, arguments.last_console.as_deref());
    match kept.and_then(|code| removed.map(|()| code)) {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            eprintln!("coppice-keeper: {error}");
            ExitCode::FAILURE
        }
    }
}
