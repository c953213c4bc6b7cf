//! Files that are written in several requests: each is there as a whole after the last, or not at all.

use std::collections::HashMap;

use coppice_wire::Value;
use serde::Serialize;

use crate::args::Args;
use crate::context::Context;
use crate::files::{FileError, Replacement, Result, take_mode, to_path};
use crate::outbox::{Empty, RequestKey};

/// Uploads that may be under way at once; beyond it the one that was written to the longest ago is dropped, since whoever
/// wrote it may be gone.
const MAX_UPLOADS: usize = 64;

#[derive(Serialize)]
struct Begun {
    upload: u64,
}

#[derive(Default)]
pub struct Uploads {
    open: HashMap<u64, Upload>,
    last: u64,
    /// Counts requests.
    now: u64,
}

struct Upload {
    replacement: Replacement,
    used: u64,
}

impl Uploads {
    pub fn begin(&mut self, context: &mut Context, key: RequestKey, args: Value) -> Result<()> {
        let mut args = Args::new(args)?;
        let path = to_path(args.path("path")?);
        args.finish()?;
        let replacement = Replacement::begin(path)?;
        if self.open.len() >= MAX_UPLOADS {
            self.drop_oldest();
        }
        self.last += 1;
        let used = self.tick();
        self.open.insert(self.last, Upload { replacement, used });
        context.outbox.ok(key, &Begun { upload: self.last });
        Ok(())
    }

    fn tick(&mut self) -> u64 {
        self.now += 1;
        self.now
    }

    fn drop_oldest(&mut self) {
        let oldest = self.open.iter().min_by_key(|(_, upload)| upload.used);
        if let Some(number) = oldest.map(|(number, _)| *number) {
            self.open.remove(&number);
        }
    }

    pub fn write(&mut self, context: &mut Context, key: RequestKey, args: Value) -> Result<()> {
        let mut args = Args::new(args)?;
        let upload = args.integer("upload", 1..=u64::MAX)?;
        let data = args.bytes("data")?;
        args.finish()?;
        let used = self.tick();
        let found = self.open.get_mut(&upload).ok_or(FileError::NoUpload(upload))?;
        found.used = used;
        found.replacement.write(&data)?;
        context.outbox.ok(key, &Empty {});
        Ok(())
    }

    pub fn commit(&mut self, context: &mut Context, key: RequestKey, args: Value) -> Result<()> {
        let mut args = Args::new(args)?;
        let upload = args.integer("upload", 1..=u64::MAX)?;
        let mode = take_mode(&mut args)?;
        args.finish()?;
        let found = self.open.remove(&upload).ok_or(FileError::NoUpload(upload))?;
        found.replacement.commit(mode)?;
        context.outbox.ok(key, &Empty {});
        Ok(())
    }

    pub fn abort(&mut self, context: &mut Context, key: RequestKey, args: Value) -> Result<()> {
        let mut args = Args::new(args)?;
        let upload = args.integer("upload", 1..=u64::MAX)?;
        args.finish()?;
        self.open.remove(&upload);
        context.outbox.ok(key, &Empty {});
        Ok(())
    }

    /// A new life has begun: nobody will go on with what another one was writing.
    pub fn disown(&mut self) {
        self.open.clear();
    }
}
