//! Says on one line of JSON whether /dev/kvm can run Linux: `{"usable": …, "reason": …}`. An openable /dev/kvm proves
//! nothing: some are emulations that run the first instructions of a kernel, and no more. So a small guest is run.

mod guest;
mod machine;

use std::io::Write;
use std::process::ExitCode;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

/// The guest takes a millisecond where KVM is real; one that hangs does not end by itself.
const DEADLINE: Duration = Duration::from_secs(5);

enum News {
    Stage(&'static str),
    End(Result<(), machine::ProbeError>),
}

fn main() -> ExitCode {
    let (send, news) = channel();
    let begin = Instant::now();
    thread::spawn(move || {
        let stages = send.clone();
        let end = machine::run(&|stage| {
            // The other end is gone only when the process ends.
            let _ = stages.send(News::Stage(stage));
        });
        let _ = send.send(News::End(end));
    });
    let mut stage = "its start";
    let reason = loop {
        match news.recv_timeout(DEADLINE.saturating_sub(begin.elapsed())) {
            Ok(News::Stage(next)) => stage = next,
            Ok(News::End(Ok(()))) => break None,
            Ok(News::End(Err(error))) => break Some(error.to_string()),
            Err(RecvTimeoutError::Timeout) => break Some(format!("Guest hangs during {stage}")),
            Err(RecvTimeoutError::Disconnected) => break Some(format!("Probe died during {stage}")),
        }
    };
    let usable = reason.is_none();
    let reason = reason.unwrap_or_else(|| "Guest ran as it should".to_owned());
    let line = format!(
        "{{\"usable\":{usable},\"reason\":\"{}\",\"microseconds\":{}}}\n",
        escape(&reason),
        begin.elapsed().as_micros()
    );
    // Ends the thread that may be inside a guest that hangs, too.
    match std::io::stdout().write_all(line.as_bytes()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

fn escape(text: &str) -> String {
    text.chars()
        .flat_map(|c| if c.is_control() { ' ' } else { c }.escape_default())
        .collect::<String>()
        .replace("\\'", "'")
}
