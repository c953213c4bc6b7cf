//! A daemon over the fake VMM, and a client, for tests.

// Each test file is a crate of its own and uses a part of this.
#![allow(dead_code, clippy::unwrap_used)]

pub mod exposition;
pub mod tls;

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use coppice_wire::client::{CLIENT_PROTOCOL, DaemonFrame, Failure, Greeting, Hello, Request};
use coppice_wire::frame::{read_message, write_message};
use coppice_wire::{Value, encode_frame};

/// Longer than anything here takes on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(20);

pub const TOKEN: &str = "0123456789abcdef0123456789abcdef";

static COUNT: AtomicU32 = AtomicU32::new(0);

/// A running `coppiced serve`; killed and cleaned up when dropped.
pub struct Daemon {
    pub child: Child,
    pub directory: PathBuf,
    pub socket: PathBuf,
    pub tcp: Option<String>,
    /// Of the certificate that it shows TCP clients.
    pub fingerprint: Option<String>,
    /// Address of `/metrics`.
    pub metrics: Option<String>,
}

impl Daemon {
    pub fn start() -> Self {
        Self::start_with(&[])
    }

    /// With more arguments; `--tcp` gets a token file by itself.
    pub fn start_with(arguments: &[&str]) -> Self {
        Self::start_with_env(&[], arguments)
    }

    pub fn start_with_env(environment: &[(&str, &str)], arguments: &[&str]) -> Self {
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let directory = std::env::temp_dir().join(format!("coppiced-test-{}-{number}", std::process::id()));
        let _ = fs::remove_dir_all(&directory);
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&directory)
            .unwrap();
        Self::start_command(directory, environment, arguments)
    }

    pub fn start_in(directory: PathBuf, arguments: &[&str]) -> Self {
        Self::start_command(directory, &[], arguments)
    }

    fn start_command(directory: PathBuf, environment: &[(&str, &str)], arguments: &[&str]) -> Self {
        let socket = directory.join("host.sock");
        let mut command = command(&directory);
        command.envs(environment.iter().copied());
        command.arg("--unix").arg(&socket).args(arguments);
        let wants_tcp = arguments.contains(&"--tcp");
        if wants_tcp {
            let file = directory.join("token");
            fs::write(&file, TOKEN).unwrap();
            command.arg("--token-file").arg(file);
        }
        let log = fs::File::create(directory.join("log")).unwrap();
        let mut child = command.stdout(Stdio::piped()).stderr(log).spawn().unwrap();
        let wants_metrics = arguments.contains(&"--metrics");
        let lines = listening_lines(&mut child, 1 + usize::from(wants_tcp) + usize::from(wants_metrics));
        let http = |line: &String| {
            line.strip_prefix("http://")?
                .strip_suffix("/metrics")
                .map(str::to_owned)
        };
        let metrics = lines.iter().find_map(http);
        let mut others = lines.iter().filter(|line| http(line).is_none());
        let tcp = others.find(|line| !line.starts_with("unix:"));
        let (tcp, fingerprint) = match tcp.and_then(|line| line.strip_prefix("tls://")) {
            Some(line) => line
                .split_once(' ')
                .map(|(address, digest)| (Some(address.to_owned()), Some(digest.to_owned())))
                .unwrap(),
            None => (tcp.cloned(), None),
        };
        Daemon {
            child,
            directory,
            socket,
            tcp,
            fingerprint,
            metrics,
        }
    }

    pub fn client(&self) -> Client {
        self.client_with(|_| {})
    }

    pub fn client_with(&self, change: impl FnOnce(&mut Hello)) -> Client {
        let stream = UnixStream::connect(&self.socket).unwrap();
        Client::greet(stream, change).unwrap_or_else(|refused| panic!("refused: {refused:?}"))
    }

    pub fn pid(&self) -> i32 {
        self.child.id() as i32
    }

    pub fn signal(&self, signal: nix::sys::signal::Signal) {
        nix::sys::signal::kill(nix::unistd::Pid::from_raw(self.pid()), signal).unwrap();
    }

    /// Waits for the daemon's end.
    pub fn wait(&mut self) -> ExitStatus {
        let begin = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            assert!(begin.elapsed() < PATIENCE, "the daemon does not end");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Processes of the fake VMM that this daemon started.
    pub fn vmms(&self) -> Vec<i32> {
        children_of(self.pid())
    }

    pub fn wait_for_vmms(&self, count: usize) {
        let begin = Instant::now();
        while self.vmms().len() != count {
            assert!(
                begin.elapsed() < PATIENCE,
                "{} VMMs instead of {count}\n{}",
                self.vmms().len(),
                self.log()
            );
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    pub fn log(&self) -> String {
        fs::read_to_string(self.directory.join("log")).unwrap_or_default()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(&self.directory);
    }
}

/// `coppiced serve` with everything but an endpoint.
pub fn command(directory: &Path) -> Command {
    let vmm = env!("CARGO_BIN_EXE_fake-vmm");
    for name in ["vmlinux", "initrd"] {
        fs::write(directory.join(name), name).unwrap();
    }
    let mut command = Command::new(env!("CARGO_BIN_EXE_coppiced"));
    command.arg("serve").arg("--vmm").arg(vmm);
    command
        .arg("--kernel")
        .arg(directory.join("vmlinux"))
        .arg("--initrd")
        .arg(directory.join("initrd"));
    command.arg("--state-dir").arg(directory.join("state"));
    command.env("COPPICE_LOG", "debug");
    command
}

fn listening_lines(child: &mut Child, count: usize) -> Vec<String> {
    let mut stdout = child.stdout.take().unwrap();
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        let mut text = String::new();
        let mut byte = [0];
        while text.lines().count() < count || !text.ends_with('\n') {
            if stdout.read(&mut byte).unwrap_or(0) == 0 {
                return;
            }
            text.push(byte[0] as char);
        }
        let _ = sender.send(text);
    });
    let text = receiver
        .recv_timeout(PATIENCE)
        .expect("the daemon does not say that it listens");
    let prefix = "coppiced: listening on ";
    text.lines()
        .map(|line| line.strip_prefix(prefix).unwrap_or_else(|| panic!("{line}")).to_owned())
        .collect()
}

/// Processes whose parent is `pid` and that have not ended.
pub fn children_of(pid: i32) -> Vec<i32> {
    let mut children = Vec::new();
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        let Some(child) = entry.file_name().to_str().and_then(|name| name.parse::<i32>().ok()) else {
            continue;
        };
        let stat = fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
        let fields: Vec<&str> = stat.rsplit(") ").next().unwrap_or_default().split(' ').collect();
        if fields.first() != Some(&"Z") && fields.get(1) == Some(&pid.to_string().as_str()) {
            children.push(child);
        }
    }
    children
}

pub trait Stream: Read + Write + Send {
    fn set_patience(&self);
}

impl Stream for UnixStream {
    fn set_patience(&self) {
        self.set_read_timeout(Some(PATIENCE)).unwrap();
    }
}

impl Stream for TcpStream {
    fn set_patience(&self) {
        self.set_read_timeout(Some(PATIENCE)).unwrap();
    }
}

/// One connection; answers are kept until somebody asks for them.
pub struct Client {
    pub stream: Box<dyn Stream>,
    pub session: String,
    next_id: u64,
    kept: Vec<DaemonFrame>,
}

pub fn hello() -> Hello {
    Hello {
        protocol: CLIENT_PROTOCOL,
        client: "test".to_owned(),
        token: None,
        session: None,
        realtime_ns: None,
    }
}

impl Client {
    pub fn greet(mut stream: impl Stream + 'static, change: impl FnOnce(&mut Hello)) -> Result<Self, Box<Failure>> {
        stream.set_patience();
        let mut hello = hello();
        change(&mut hello);
        write_message(&mut stream, &hello).unwrap();
        match read_message::<Greeting>(&mut stream).unwrap().unwrap() {
            Greeting::Refused(failure) => Err(Box::new(failure)),
            Greeting::Welcome(welcome) => {
                let session = welcome.session;
                Ok(Client {
                    stream: Box::new(stream),
                    session,
                    next_id: 1,
                    kept: Vec::new(),
                })
            }
        }
    }

    /// Sends a request and returns its id.
    pub fn send(&mut self, method: &str, params: Value) -> u64 {
        self.send_with(method, params, None)
    }

    pub fn send_with(&mut self, method: &str, params: Value, deadline_ms: Option<u64>) -> u64 {
        let id = self.next_id;
        self.next_id += 1;
        let request = Request {
            id,
            method: method.to_owned(),
            params,
            deadline_ms,
        };
        write_message(&mut self.stream, &request).unwrap();
        id
    }

    pub fn cancel(&mut self, id: u64) {
        let frame = encode_frame(&map([("cancel", id.into())])).unwrap();
        self.stream.write_all(&frame).unwrap();
    }

    /// The final answer of a request, and how many bytes of output came before it.
    pub fn answer(&mut self, id: u64) -> (Result<Value, Failure>, usize) {
        let mut bytes = 0;
        let mut kept = std::mem::take(&mut self.kept).into_iter();
        loop {
            let frame = match kept.next() {
                Some(frame) => frame,
                None => read_message(&mut self.stream)
                    .unwrap()
                    .expect("the daemon closed the connection"),
            };
            match frame {
                DaemonFrame::Chunk { id: of, chunk } if of == id => bytes += chunk.data.len(),
                DaemonFrame::Result { id: of, result, .. } if of == id => {
                    self.kept.extend(kept);
                    return (Ok(result), bytes);
                }
                DaemonFrame::Error { id: of, error } if of == id => {
                    self.kept.extend(kept);
                    return (Err(error), bytes);
                }
                other => self.kept.push(other),
            }
        }
    }

    /// The next event with that name.
    pub fn event(&mut self, name: &str) -> Value {
        let position = self
            .kept
            .iter()
            .position(|frame| matches!(frame, DaemonFrame::Event { event, .. } if event == name));
        if let Some(position) = position
            && let DaemonFrame::Event { params, .. } = self.kept.remove(position)
        {
            return params;
        }
        loop {
            match read_message(&mut self.stream)
                .unwrap()
                .expect("the daemon closed the connection")
            {
                DaemonFrame::Event { event, params } if event == name => return params,
                other => self.kept.push(other),
            }
        }
    }

    pub fn try_call(&mut self, method: &str, params: Value) -> Result<Value, Failure> {
        let id = self.send(method, params);
        self.answer(id).0
    }

    pub fn call(&mut self, method: &str, params: Value) -> Value {
        self.try_call(method, params)
            .unwrap_or_else(|error| panic!("{method}: {error:?}"))
    }

    /// Attaches an image with these faults, and boots it.
    pub fn boot(&mut self, daemon: &Daemon, faults: &str) -> String {
        let params = self.image(daemon, faults);
        text(&self.call("sandbox.boot", params), "sandbox")
    }

    /// Parameters to boot an image with these faults.
    pub fn image(&mut self, daemon: &Daemon, faults: &str) -> Value {
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = daemon.directory.join(format!("image-{number}"));
        fs::write(&path, faults).unwrap();
        let id = format!("image-{number}");
        let source = map([("path", path.to_str().unwrap().into())]);
        self.call("image.attach", map([("id", id.as_str().into()), ("source", source)]));
        map([
            ("image", id.as_str().into()),
            ("memoryMiB", 128.into()),
            ("vcpus", 1.into()),
            ("timeoutMs", 10_000.into()),
        ])
    }

    pub fn park(&mut self, sandbox: &str) -> String {
        text(
            &self.call("sandbox.park", map([("sandbox", sandbox.into())])),
            "checkpoint",
        )
    }

    /// Boots and parks.
    pub fn checkpoint(&mut self, daemon: &Daemon, faults: &str) -> String {
        let sandbox = self.boot(daemon, faults);
        self.park(&sandbox)
    }

    /// Results of a fork, in order.
    pub fn fork(&mut self, checkpoint: &str, n: u64) -> Vec<Result<String, Value>> {
        let params = map([("checkpoint", checkpoint.into()), ("n", n.into())]);
        children(&self.call("sandbox.fork", params))
    }

    pub fn fork_one(&mut self, checkpoint: &str) -> String {
        self.fork(checkpoint, 1)
            .remove(0)
            .unwrap_or_else(|error| panic!("{error}"))
    }

    pub fn agent(&mut self, sandbox: &str, op: &str) -> Result<Value, Failure> {
        self.try_call("sandbox.call", call(sandbox, op, map([])))
    }
}

pub fn call(sandbox: &str, op: &str, args: Value) -> Value {
    map([("sandbox", sandbox.into()), ("op", op.into()), ("args", args)])
}

pub fn children(answer: &Value) -> Vec<Result<String, Value>> {
    let children = get(answer, "children").as_array().unwrap();
    let outcome = |child: &Value| match get(child, "ok").as_bool().unwrap() {
        true => Ok(text(child, "sandbox")),
        false => Err(get(child, "error").clone()),
    };
    children.iter().map(outcome).collect()
}

pub fn map<const N: usize>(entries: [(&str, Value); N]) -> Value {
    Value::Map(entries.into_iter().map(|(key, value)| (key.into(), value)).collect())
}

pub fn get<'a>(value: &'a Value, name: &str) -> &'a Value {
    let entries = value.as_map().unwrap_or_else(|| panic!("{value} is no map"));
    let entry = entries.iter().find(|(key, _)| key.as_str() == Some(name));
    &entry.unwrap_or_else(|| panic!("no {name} in {value}")).1
}

pub fn text(value: &Value, name: &str) -> String {
    get(value, name).as_str().unwrap().to_owned()
}

pub fn number(value: &Value, name: &str) -> u64 {
    get(value, name).as_u64().unwrap()
}
