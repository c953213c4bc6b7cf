//! The arguments of `exec`.

use coppice_wire::Value;

use crate::args::{Args, ArgsError};
use crate::exec::error::ExecError;
use crate::spawn::Program;
use crate::user;

/// Output kept of both streams together where the request does not say.
const DEFAULT_OUTPUT_LIMIT_BYTES: u64 = 16 * 1024 * 1024;

/// The same for a program in the background, whose output waits in the agent's memory until somebody asks for it.
const DEFAULT_BACKGROUND_LIMIT_BYTES: u64 = 1024 * 1024;
const MAX_BACKGROUND_LIMIT_BYTES: u64 = 16 * 1024 * 1024;

const MAX_OUTPUT_LIMIT_BYTES: u64 = 1 << 40;

/// 30 days: longer than anything lives, short enough for arithmetic in nanoseconds.
pub const MAX_TIMEOUT_MS: u64 = 30 * 24 * 3_600 * 1_000;

const MAX_NAME_BYTES: usize = 128;

pub struct ExecRequest {
    pub program: Program,
    pub stdin: Vec<u8>,
    /// More is to come by `exec.write`.
    pub stdin_open: bool,
    pub timeout_ms: Option<u64>,
    pub room: u64,
    pub name: Option<String>,
    pub background: bool,
    /// Output that may be sent before `exec.window` grants more.
    pub window: Option<u64>,
}

/// `argv`, `env`, `cwd` and `user`, which every program has, on a terminal or not.
pub fn take_program(args: &mut Args) -> Result<Program, ExecError> {
    let argv = args.argv()?;
    let env = args.env()?;
    let cwd = args.optional_c_string("cwd")?;
    let user = args.optional_string("user")?;
    Ok(Program {
        argv,
        env,
        cwd,
        user: user.map(|user| user::find(&user)).transpose()?,
    })
}

pub fn take_name(args: &mut Args) -> Result<String, ArgsError> {
    let name = args.string("name")?;
    check_name(&name)?;
    Ok(name)
}

fn check_name(name: &str) -> Result<(), ArgsError> {
    if (1..=MAX_NAME_BYTES).contains(&name.len()) {
        return Ok(());
    }
    let reason = format!("it must have 1 to {MAX_NAME_BYTES} bytes");
    Err(refused("name", reason))
}

pub fn refused(field: &str, reason: String) -> ArgsError {
    ArgsError::Refused {
        field: field.to_owned(),
        reason,
    }
}

impl ExecRequest {
    pub fn parse(args: Value) -> Result<Self, ExecError> {
        let mut args = Args::new(args)?;
        let program = take_program(&mut args)?;
        let stdin = args.optional_bytes("stdin")?.unwrap_or_default();
        let stdin_open = args.flag("stdinOpen")?;
        let timeout_ms = args.optional_integer("timeoutMs", 1..=MAX_TIMEOUT_MS)?;
        let name = args.optional_string("name")?;
        let background = args.flag("background")?;
        let (default, max) = match background {
            true => (DEFAULT_BACKGROUND_LIMIT_BYTES, MAX_BACKGROUND_LIMIT_BYTES),
            false => (DEFAULT_OUTPUT_LIMIT_BYTES, MAX_OUTPUT_LIMIT_BYTES),
        };
        let room = args.optional_integer("outputLimitBytes", 0..=max)?.unwrap_or(default);
        let window = args.optional_integer("windowBytes", 1..=MAX_OUTPUT_LIMIT_BYTES)?;
        args.finish()?;
        if let Some(name) = &name {
            check_name(name)?;
        }
        let needs_name = [
            (background, "background"),
            (stdin_open, "stdinOpen"),
            (window.is_some(), "windowBytes"),
        ];
        let nameless = needs_name.into_iter().find(|(given, _)| *given && name.is_none());
        if let Some((_, field)) = nameless {
            let reason = "it needs a 'name', by which later requests find the process";
            return Err(refused(field, reason.to_owned()).into());
        }
        if background && window.is_some() {
            return Err(refused("windowBytes", "a background process has none".into()).into());
        }
        Ok(Self {
            program,
            stdin,
            stdin_open,
            timeout_ms,
            room,
            name,
            background,
            window,
        })
    }
}
