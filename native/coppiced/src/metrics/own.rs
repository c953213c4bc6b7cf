//! What the daemon's own process takes, under the names that Prometheus gives such figures.

use std::fs;
use std::io;

use crate::metrics::exposition::{Exposition, Kind};

const KIB: u64 = 1024;

/// What can't be read is left out: `/proc` may be hidden.
pub fn render(text: &mut Exposition) {
    if let Ok(open) = open_files() {
        text.single(
            "process_open_fds",
            Kind::Gauge,
            "Files that the daemon has open.",
            open as u64,
        );
    }
    if let Some(bytes) = resident_bytes() {
        let help = "Memory of the daemon itself, without its VMMs.";
        text.single("process_resident_memory_bytes", Kind::Gauge, help, bytes);
    }
}

/// Less the one that counts them.
fn open_files() -> io::Result<usize> {
    Ok(fs::read_dir("/proc/self/fd")?.count().saturating_sub(1))
}

fn resident_bytes() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let kib = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib = kib.trim().strip_suffix(" kB")?.parse::<u64>().ok()?;
    Some(kib * KIB)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_memory_is_some_megabytes() {
        let bytes = resident_bytes().unwrap();
        assert!((KIB * KIB..1 << 32).contains(&bytes), "{bytes}");
    }

    #[test]
    fn own_files_are_at_least_the_three_that_every_process_begins_with() {
        assert!(open_files().unwrap() >= 3);
    }
}
