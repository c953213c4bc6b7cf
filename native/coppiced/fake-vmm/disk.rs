//! The descriptors of a disk that the daemon hands over.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;

use coppice_wire::Value;

use crate::agent::map;

#[derive(Default)]
pub struct Disk {
    blank: Option<File>,
    writable: Option<File>,
    readable: Option<File>,
    refused: u64,
}

impl Disk {
    pub fn blank(&mut self, descriptor: Option<OwnedFd>) {
        self.blank = descriptor.map(File::from);
    }

    /// Writes something, so that it is seen that the file works.
    pub fn take(&mut self, granted: bool, writable: Option<OwnedFd>, readable: Option<OwnedFd>) {
        self.refused += u64::from(!granted);
        self.writable = writable.map(File::from);
        self.readable = readable.map(File::from);
        if let Some(file) = &self.writable {
            let _ = file.write_all_at(b"written", 0);
        }
    }

    /// As a VMM does: what was written stays, and can't be written any more.
    pub fn freeze(&mut self) {
        self.writable = None;
    }

    pub fn blocks(&self) -> u64 {
        u64::from(self.readable.is_some())
    }

    /// `blankBytes`, `blankIsReadOnly`; whether there is a `writable` file; `contents` of the `readable` one and whether it
    /// `isReadOnly`; how many wishes were `refused`.
    pub fn state(&self) -> Value {
        let read_only = |file: &Option<File>| file.as_ref().is_some_and(|file| file.write_at(b"x", 0).is_err());
        let length = |file: &File| file.metadata().map_or(0, |metadata| metadata.len());
        let mut contents = [0; 7];
        let readable = self
            .readable
            .as_ref()
            .and_then(|file| file.read_at(&mut contents, 0).ok());
        map([
            ("blankBytes", self.blank.as_ref().map_or(0, length).into()),
            ("blankIsReadOnly", read_only(&self.blank).into()),
            ("writable", self.writable.is_some().into()),
            (
                "contents",
                String::from_utf8_lossy(&contents[..readable.unwrap_or(0)])
                    .as_ref()
                    .into(),
            ),
            ("isReadOnly", read_only(&self.readable).into()),
            ("refused", self.refused.into()),
        ])
    }
}
