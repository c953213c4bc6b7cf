//! What is written to stderr: lines of text for people, or JSON for collectors of logs.

use std::env::{self, VarError};
use std::sync::atomic::{AtomicBool, Ordering};

use tracing_subscriber::EnvFilter;

const FORMAT: &str = "COPPICE_LOG_FORMAT";

static IS_JSON: AtomicBool = AtomicBool::new(false);

#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("{FORMAT} must be `text` or `json`, not `{0}`")]
pub struct LogFormatError(String);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Format {
    Text,
    /// One object a line, the fields of the event beside its message.
    Json,
}

/// `COPPICE_LOG` filters (default `info`), `COPPICE_LOG_FORMAT` says in which form.
pub fn start() -> Result<(), LogFormatError> {
    let format = format_of(env::var(FORMAT))?;
    let filter = EnvFilter::try_from_env("COPPICE_LOG").unwrap_or_else(|_| EnvFilter::new("info"));
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(false);
    match format {
        Format::Text => builder.init(),
        Format::Json => {
            IS_JSON.store(true, Ordering::Relaxed);
            builder.json().flatten_event(true).init();
        }
    }
    Ok(())
}

/// Why the program ends.
pub fn last_words(message: &str) {
    if IS_JSON.load(Ordering::Relaxed) {
        tracing::error!(reason = message, "The daemon ends");
    } else {
        eprintln!("coppiced: {message}");
    }
}

fn format_of(given: Result<String, VarError>) -> Result<Format, LogFormatError> {
    match given.as_deref() {
        Err(VarError::NotPresent) | Ok("" | "text") => Ok(Format::Text),
        Ok("json") => Ok(Format::Json),
        Ok(other) => Err(LogFormatError(other.to_owned())),
        Err(VarError::NotUnicode(_)) => Err(LogFormatError("(not text)".to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn format_given_nothing_is_text_and_given_nonsense_is_refused() {
        assert_eq!(format_of(Err(VarError::NotPresent)), Ok(Format::Text));
        assert_eq!(format_of(Ok("json".to_owned())), Ok(Format::Json));
        let refused = format_of(Ok("yaml".to_owned())).unwrap_err().to_string();
        assert!(refused.contains("`yaml`") && refused.contains("json"), "{refused}");
    }
}
