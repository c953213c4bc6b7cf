//! Clients whose machine or network is gone: nobody says goodbye for them.

#![allow(clippy::unwrap_used)]

mod common;

use std::fs::File;
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};

use common::{Client, Daemon, Stream, TOKEN, get, map};
use nix::sched::{CloneFlags, setns, unshare};
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, Uid};

const DAEMON: &str = "10.83.0.1";
const CLIENT: &str = "10.83.0.2";

/// A network namespace for this thread and all that it starts, and one of the client's machine, with a cable in between.
struct Cable {
    client_machine: Child,
    ours: File,
}

impl Cable {
    /// `None`, with the reason printed: this machine does not let us.
    fn new() -> Option<Self> {
        if !Uid::effective().is_root() {
            eprintln!("skipped: network namespaces need root");
            return None;
        }
        if run("ip", &["-V"]).is_err() || run("nsenter", &["-V"]).is_err() {
            eprintln!("skipped: ip or nsenter is not installed");
            return None;
        }
        if let Err(error) = unshare(CloneFlags::CLONE_NEWNET) {
            eprintln!("skipped: no network namespace can be made: {error}");
            return None;
        }
        let ours = File::open("/proc/thread-self/ns/net").unwrap();
        let mut other = Command::new("unshare");
        other
            .args(["-n", "sh", "-c", "echo made; exec sleep 600"])
            .stdout(Stdio::piped());
        let mut client_machine = other.spawn().unwrap();
        std::io::Read::read_exact(client_machine.stdout.as_mut().unwrap(), &mut [0; 5]).unwrap();
        let cable = Cable { client_machine, ours };
        let pid = cable.client_machine.id().to_string();
        if let Err(why) = run(
            "ip",
            &[
                "link", "add", "near", "type", "veth", "peer", "name", "far", "netns", &pid,
            ],
        ) {
            eprintln!("skipped: this kernel makes no virtual cable: {why}");
            return None;
        }
        let hardware = "02:00:00:00:00:02";
        cable.there(&["link", "set", "far", "address", hardware, "up"]);
        cable.there(&["address", "add", &format!("{CLIENT}/24"), "dev", "far"]);
        run("ip", &["address", "add", &format!("{DAEMON}/24"), "dev", "near"]).unwrap();
        run("ip", &["link", "set", "near", "up"]).unwrap();
        // No question who has the address, which would fail when it is gone: packets go there, and nothing comes back.
        run(
            "ip",
            &[
                "neighbour",
                "replace",
                CLIENT,
                "lladdr",
                hardware,
                "dev",
                "near",
                "nud",
                "permanent",
            ],
        )
        .unwrap();
        Some(cable)
    }

    fn there(&self, arguments: &[&str]) {
        let pid = self.client_machine.id().to_string();
        run("nsenter", &[&["-t", &pid, "-n", "ip"], arguments].concat()).unwrap();
    }

    /// A client on the other machine.
    fn client(&self, daemon: &Daemon) -> Client {
        self.client_through(daemon, |stream| stream)
    }

    fn client_through<S: Stream + 'static>(&self, daemon: &Daemon, through: impl FnOnce(TcpStream) -> S) -> Client {
        let theirs = File::open(format!("/proc/{}/ns/net", self.client_machine.id())).unwrap();
        setns(&theirs, CloneFlags::CLONE_NEWNET).unwrap();
        let stream = TcpStream::connect(daemon.tcp.as_ref().unwrap());
        setns(&self.ours, CloneFlags::CLONE_NEWNET).unwrap();
        Client::greet(through(stream.unwrap()), |hello| hello.token = Some(TOKEN.to_owned())).unwrap()
    }

    /// Whatever is sent there from now on meets silence.
    fn cut(&self) {
        self.there(&["address", "del", &format!("{CLIENT}/24"), "dev", "far"]);
    }
}

impl Drop for Cable {
    fn drop(&mut self) {
        let _ = self.client_machine.kill();
        let _ = self.client_machine.wait();
    }
}

fn run(program: &str, arguments: &[&str]) -> Result<(), String> {
    let output = Command::new(program)
        .args(arguments)
        .output()
        .map_err(|error| error.to_string())?;
    match output.status.success() {
        true => Ok(()),
        false => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
    }
}

fn plain_daemon() -> Daemon {
    Daemon::start_with(&["--insecure-tcp", "--tcp", &format!("{DAEMON}:0")])
}

fn vanished(daemon: &Daemon) -> Option<u64> {
    let stats = daemon.client().call("host.stats", map([]));
    get(get(&stats, "counters"), "vanishedPeers").as_u64()
}

#[test]
fn client_whose_network_is_gone_loses_its_sandboxes_though_nothing_was_under_way() {
    let Some(cable) = Cable::new() else { return };
    let daemon = plain_daemon();
    let mut client = cable.client(&daemon);
    client.boot(&daemon, "");
    client.checkpoint(&daemon, "");
    daemon.wait_for_vmms(2);
    cable.cut();
    daemon.wait_for_vmms(0);
    assert_eq!(vanished(&daemon), Some(1));
}

#[test]
fn client_whose_network_is_gone_loses_its_sandboxes_though_something_was_on_its_way() {
    let Some(cable) = Cable::new() else { return };
    let daemon = plain_daemon();
    let mut client = cable.client(&daemon);
    client.boot(&daemon, "");
    client.boot(&daemon, "");
    daemon.wait_for_vmms(2);
    cable.cut();
    // The daemon tells its owner that a sandbox has ended, and tells it again and again.
    kill(Pid::from_raw(daemon.vmms()[0]), Signal::SIGKILL).unwrap();
    daemon.wait_for_vmms(0);
    assert_eq!(vanished(&daemon), Some(1));
}

#[test]
fn client_whose_network_is_gone_loses_its_sandboxes_under_tls_too() {
    let Some(cable) = Cable::new() else { return };
    let daemon = Daemon::start_with(&["--tcp", &format!("{DAEMON}:0")]);
    let mut client = cable.client_through(&daemon, |stream| common::tls::secure(&daemon, stream, DAEMON).unwrap());
    client.boot(&daemon, "");
    client.boot(&daemon, "");
    daemon.wait_for_vmms(2);
    cable.cut();
    kill(Pid::from_raw(daemon.vmms()[0]), Signal::SIGKILL).unwrap();
    daemon.wait_for_vmms(0);
    assert_eq!(vanished(&daemon), Some(1));
}

#[test]
fn client_that_is_silent_for_long_keeps_its_sandboxes() {
    let Some(cable) = Cable::new() else { return };
    let daemon = plain_daemon();
    let mut client = cable.client(&daemon);
    let sandbox = client.boot(&daemon, "");
    std::thread::sleep(std::time::Duration::from_secs(8));
    assert!(client.agent(&sandbox, "ping").is_ok());
    assert_eq!(vanished(&daemon), Some(0));
}
