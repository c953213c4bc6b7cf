//! Names of signals, as programs and people write them.

use nix::sys::signal::Signal;

/// Signals above the named ones are the real-time signals.
const FIRST_REALTIME: i32 = 34;

/// `SIGKILL`; real-time signals as `SIGRTMIN+2`.
pub fn name(signal: i32) -> String {
    match Signal::try_from(signal) {
        Ok(known) => known.as_str().to_owned(),
        Err(_) if signal >= FIRST_REALTIME => format!("SIGRTMIN+{}", signal - FIRST_REALTIME),
        Err(_) => format!("SIG{signal}"),
    }
}

/// The number of `SIGINT` or `INT`; `None` where there is no such signal.
pub fn number(name: &str) -> Option<i32> {
    let full = if name.starts_with("SIG") {
        name.to_owned()
    } else {
        format!("SIG{name}")
    };
    full.parse::<Signal>().ok().map(|signal| signal as i32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn number_given_either_form_of_a_name_is_the_same() {
        assert_eq!(number("SIGINT"), Some(2));
        assert_eq!(number("INT"), Some(2));
        assert_eq!(number("NOSUCH"), None);
    }

    #[test]
    fn name_of_a_realtime_signal_counts_from_the_first() {
        assert_eq!(name(36), "SIGRTMIN+2");
        assert_eq!(name(9), "SIGKILL");
    }
}
