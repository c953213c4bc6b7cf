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
    /// The request that began it, where that is answered at its end only.
    holder: Option<RequestKey>,
}

impl Uploads {
    pub fn begin(&mut self, context: &mut Context, key: RequestKey, args: Value) -> Result<()> {
        let mut args = Args::new(args)?;
        let path = to_path(args.path("path")?);
        let is_held = args.flag("held")?;
        args.finish()?;
        let replacement = Replacement::begin(path)?;
        if self.open.len() >= MAX_UPLOADS {
            self.drop_oldest(context);
        }
        self.last += 1;
        let upload = Upload {
            replacement,
            used: self.tick(),
            holder: is_held.then_some(key),
        };
        self.open.insert(self.last, upload);
        if is_held {
            context.outbox.chunk(key, "started", self.last.to_string().as_bytes());
        } else {
            context.outbox.ok(key, &Begun { upload: self.last });
        }
        Ok(())
    }

    /// Whoever began it is gone, or wants it no more: nothing is left of it.
    pub fn cancel(&mut self, context: &mut Context, target: RequestKey) -> bool {
        let found = self.open.iter().find(|(_, upload)| upload.holder == Some(target));
        let Some(number) = found.map(|(number, _)| *number) else {
            return false;
        };
        self.open.remove(&number);
        context.outbox.failure(target, FileError::Cancelled);
        true
    }

    fn tick(&mut self) -> u64 {
        self.now += 1;
        self.now
    }

    fn drop_oldest(&mut self, context: &mut Context) {
        let oldest = self.open.iter().min_by_key(|(_, upload)| upload.used);
        if let Some(number) = oldest.map(|(number, _)| *number) {
            let holder = self.open.remove(&number).and_then(|upload| upload.holder);
            if let Some(holder) = holder {
                context.outbox.failure(holder, FileError::NoUpload(number));
            }
        }
    }

    fn end(context: &mut Context, number: u64, holder: Option<RequestKey>) {
        if let Some(holder) = holder {
            context.outbox.ok(holder, &Begun { upload: number });
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
        Self::end(context, upload, found.holder);
        found.replacement.commit(mode)?;
        context.outbox.ok(key, &Empty {});
        Ok(())
    }

    pub fn abort(&mut self, context: &mut Context, key: RequestKey, args: Value) -> Result<()> {
        let mut args = Args::new(args)?;
        let upload = args.integer("upload", 1..=u64::MAX)?;
        args.finish()?;
        if let Some(found) = self.open.remove(&upload) {
            Self::end(context, upload, found.holder);
        }
        context.outbox.ok(key, &Empty {});
        Ok(())
    }

    /// A new life has begun: nobody will go on with what another one was writing.
    pub fn disown(&mut self) {
        self.open.clear();
    }
}
