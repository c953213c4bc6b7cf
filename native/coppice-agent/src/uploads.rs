//! Files that are written in several requests: each is there as a whole after the last, or not at all.

use std::collections::HashMap;

use coppice_wire::Value;
use serde::Serialize;

use crate::args::Args;
use crate::context::Context;
use crate::files::{FileError, Replacement, Result, take_mode, to_path};
use crate::outbox::{Empty, RequestKey};

/// Uploads that may be under way at once.
const MAX_UPLOADS: usize = 64;

#[derive(Serialize)]
struct Begun {
    upload: u64,
}

#[derive(Default)]
pub struct Uploads {
    open: HashMap<u64, Replacement>,
    last: u64,
}

impl Uploads {
    pub fn begin(&mut self, context: &mut Context, key: RequestKey, args: Value) -> Result<()> {
        let mut args = Args::new(args)?;
        let path = to_path(args.path("path")?);
        args.finish()?;
        if self.open.len() >= MAX_UPLOADS {
            return Err(FileError::TooMany);
        }
        let replacement = Replacement::begin(path)?;
        self.last += 1;
        self.open.insert(self.last, replacement);
        context.outbox.ok(key, &Begun { upload: self.last });
        Ok(())
    }

    pub fn write(&mut self, context: &mut Context, key: RequestKey, args: Value) -> Result<()> {
        let mut args = Args::new(args)?;
        let upload = args.integer("upload", 1..=u64::MAX)?;
        let data = args.bytes("data")?;
        args.finish()?;
        let replacement = self.open.get_mut(&upload).ok_or(FileError::NoUpload(upload))?;
        replacement.write(&data)?;
        context.outbox.ok(key, &Empty {});
        Ok(())
    }

    pub fn commit(&mut self, context: &mut Context, key: RequestKey, args: Value) -> Result<()> {
        let mut args = Args::new(args)?;
        let upload = args.integer("upload", 1..=u64::MAX)?;
        let mode = take_mode(&mut args)?;
        args.finish()?;
        let replacement = self.open.remove(&upload).ok_or(FileError::NoUpload(upload))?;
        replacement.commit(mode)?;
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
