//! A log whose size is bounded: what is oldest goes.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// Current part of the log.
pub const CURRENT: &str = "console.log";
/// The part before it.
pub const PREVIOUS: &str = "console.previous.log";

pub struct Console {
    directory: PathBuf,
    file: File,
    written: u64,
    limit: u64,
}

impl Console {
    pub fn create(directory: &Path, limit: u64) -> io::Result<Self> {
        let file = File::create(directory.join(CURRENT))?;
        Ok(Self {
            directory: directory.to_owned(),
            file,
            written: 0,
            limit: limit.max(1),
        })
    }

    /// Not buffered: whoever diagnoses a boot that hangs reads the file now.
    pub fn write(&mut self, data: &[u8]) -> io::Result<()> {
        if self.written >= self.limit {
            let current = self.directory.join(CURRENT);
            std::fs::rename(&current, self.directory.join(PREVIOUS))?;
            self.file = File::create(current)?;
            self.written = 0;
        }
        self.file.write_all(data)?;
        self.written = self.written.saturating_add(data.len() as u64);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn console_over_its_limit_keeps_the_newest_parts() {
        let directory = std::env::temp_dir().join(format!("coppice-keeper-console-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let mut console = Console::create(&directory, 10).unwrap();
        for part in [b"0123456789", b"abcdefghij", b"ABCDEFGHIJ"] {
            console.write(part).unwrap();
        }
        assert_eq!(std::fs::read(directory.join(CURRENT)).unwrap(), b"ABCDEFGHIJ");
        assert_eq!(std::fs::read(directory.join(PREVIOUS)).unwrap(), b"abcdefghij");
        std::fs::remove_dir_all(&directory).unwrap();
    }
}
