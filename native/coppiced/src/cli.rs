//! The command line.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::defaults::{MAX_CONSOLE_RATE, MIN_CONSOLE_RATE, MIN_CPUS};
use crate::limits::CgroupChoice;

#[derive(Debug, Parser)]
#[command(
    name = "coppiced",
    version,
    about = "Host daemon of Coppice: owns VMM processes, images and checkpoints"
)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Serve clients on this machine.
    ///
    /// Example: coppiced serve --unix /run/coppice/host.sock --vmm ./coppice-vmm --kernel vmlinux --initrd guest.cpio
    /// --state-dir /var/lib/coppice
    Serve(Box<ServeArgs>),
    /// Be the init process of an emulated host. Only as process 1; takes its configuration from a disk.
    Carrier,
}

#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("endpoint").required(true).multiple(true).args(["unix", "tcp"]))]
pub struct ServeArgs {
    /// Unix socket to listen on; its directory must have mode 0700 and is created where it is missing.
    #[arg(long, value_name = "PATH")]
    pub unix: Option<PathBuf>,
    /// TCP address to listen on. One that is not of loopback is served with TLS.
    #[arg(long, value_name = "ADDR:PORT", requires = "token_file")]
    pub tcp: Option<SocketAddr>,
    /// File that holds the token which TCP clients must send (16 to 256 bytes; blanks around it are ignored).
    #[arg(long, value_name = "FILE", requires = "tcp")]
    pub token_file: Option<PathBuf>,
    /// Certificate for TLS, PEM, with those that it was signed by. Default: one of the daemon's own, whose fingerprint is
    /// printed when it listens.
    #[arg(long, value_name = "FILE", requires = "tcp", requires = "tls_key")]
    pub tls_certificate: Option<PathBuf>,
    /// The certificate's key, PEM.
    #[arg(long, value_name = "FILE", requires = "tls_certificate")]
    pub tls_key: Option<PathBuf>,
    /// Serve TLS on a loopback address too.
    #[arg(long, requires = "tcp")]
    pub tls: bool,
    /// Do without TLS where TCP clients come over a network: whoever is on the way can read the token and everything else.
    #[arg(long, requires = "tcp", conflicts_with_all = ["tls", "tls_certificate"])]
    pub insecure_tcp: bool,
    /// Serve GET /metrics over HTTP at this address, for scrapers; a port alone is one of this machine's loopback.
    ///
    /// Nobody is asked for a token there.
    #[arg(long, value_name = "[ADDR:]PORT", value_parser = metrics_address)]
    pub metrics: Option<SocketAddr>,
    /// The VMM program.
    #[arg(long, value_name = "PATH")]
    pub vmm: PathBuf,
    /// Guest kernel: an uncompressed vmlinux ELF.
    #[arg(long, value_name = "PATH")]
    pub kernel: PathBuf,
    /// Guest initramfs with the agent as /init.
    #[arg(long, value_name = "PATH")]
    pub initrd: PathBuf,
    /// Directory of this daemon's own; one daemon at a time.
    #[arg(long, value_name = "PATH")]
    pub state_dir: PathBuf,
    /// Directory for the contents of guests' disks: files without names, which are gone with the sandboxes and
    /// checkpoints that hold them. Default: `extents` in the state directory.
    #[arg(long, value_name = "PATH")]
    pub extents_dir: Option<PathBuf>,
    /// Shut down when no client was connected for this long. Absent: never.
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=31_536_000))]
    pub idle_exit: Option<u64>,
    /// What this host calls itself to clients.
    #[arg(long, value_enum, default_value_t = HostKind::Kvm)]
    pub host_kind: HostKind,
    /// Most sandboxes alive at once.
    #[arg(long, value_name = "N", default_value_t = crate::defaults::MAX_SANDBOXES,
          value_parser = clap::value_parser!(u32).range(1..=65_536))]
    pub max_sandboxes: u32,
    /// Memory that new sandboxes must leave free. Default: a sixteenth of the machine, 64 MiB to 1 GiB.
    #[arg(long, value_name = "MIB")]
    pub memory_reserve_mib: Option<u64>,
    /// Space that guests' disks must leave free where their files lie. Below it guests get I/O errors, and no guest starts
    /// with a disk. Default: a sixteenth of the file system, 64 MiB to 4 GiB.
    #[arg(long, value_name = "MIB")]
    pub disk_reserve_mib: Option<u64>,
    /// Where to make cgroups (version 2) for sandboxes with limits: `auto` (where the daemon runs, if nothing else runs
    /// there, as in a systemd service with Delegate=yes), `none`, or a directory that is this daemon's alone.
    #[arg(long, value_name = "auto|none|DIR", default_value = "auto", value_parser = cgroup_choice)]
    pub cgroup: CgroupChoice,
    /// Memory that any sandbox may add to what its checkpoint has. Absent: as much as there is.
    #[arg(long, value_name = "MIB", value_parser = clap::value_parser!(u32).range(8..=65_536))]
    pub sandbox_memory_mib: Option<u32>,
    /// Processors that any sandbox may keep busy, such as 0.5. Needs cgroups. Absent: as many as there are.
    #[arg(long, value_name = "N", value_parser = processors)]
    pub sandbox_cpus: Option<f64>,
    /// What any sandbox's console may say in a second; more is dropped, with a mark.
    #[arg(long, value_name = "BYTES", default_value_t = MAX_CONSOLE_RATE,
          value_parser = clap::value_parser!(u32).range(i64::from(MIN_CONSOLE_RATE)..=i64::from(MAX_CONSOLE_RATE)))]
    pub sandbox_console_rate: u32,
}

fn cgroup_choice(given: &str) -> Result<CgroupChoice, String> {
    match given {
        "auto" => Ok(CgroupChoice::Auto),
        "none" => Ok(CgroupChoice::None),
        directory if directory.starts_with('/') => Ok(CgroupChoice::Delegated(PathBuf::from(directory))),
        _ => Err("expected auto, none, or an absolute path".to_owned()),
    }
}

fn processors(given: &str) -> Result<f64, String> {
    let number = given
        .parse()
        .ok()
        .filter(|number: &f64| *number >= MIN_CPUS && number.is_finite());
    number.ok_or_else(|| format!("expected a number of at least {MIN_CPUS}"))
}

/// An address with a port, or a port of loopback: what listens for more than this machine says so.
fn metrics_address(given: &str) -> Result<SocketAddr, String> {
    if let Ok(port) = given.parse() {
        return Ok(SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
    }
    given
        .parse()
        .map_err(|_| "expected a port, or an address with a port such as 192.0.2.7:9105 or [::1]:9105".to_owned())
}

impl ServeArgs {
    pub fn idle_exit(&self) -> Option<Duration> {
        self.idle_exit.map(Duration::from_secs)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum HostKind {
    Kvm,
    Carrier,
}

impl HostKind {
    /// What guests' kernels are told beside what every guest is told. An emulated CPU has no speculation to guard against,
    /// and translates code by its address: where each program loads elsewhere, everything is translated anew.
    pub fn guest_command_line(self) -> &'static str {
        match self {
            HostKind::Kvm => "",
            HostKind::Carrier => "mitigations=off norandmaps",
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            HostKind::Kvm => "kvm",
            HostKind::Carrier => "carrier",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn command_line_definition_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn metrics_given_a_port_alone_are_for_this_machine() {
        assert_eq!(
            metrics_address("9105"),
            Ok(SocketAddr::from((Ipv4Addr::LOCALHOST, 9105)))
        );
        assert_eq!(
            metrics_address("0.0.0.0:1"),
            Ok(SocketAddr::from((Ipv4Addr::UNSPECIFIED, 1)))
        );
        assert_eq!(metrics_address("[::1]:1").map(|address| address.is_ipv6()), Ok(true));
        for wrong in ["", "70000", "localhost:1", "0.0.0.0"] {
            assert!(metrics_address(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn serve_given_no_endpoint_is_refused() {
        let arguments = [
            "coppiced",
            "serve",
            "--vmm",
            "v",
            "--kernel",
            "k",
            "--initrd",
            "i",
            "--state-dir",
            "s",
        ];
        assert!(Cli::try_parse_from(arguments).is_err());
    }

    #[test]
    fn serve_given_tcp_without_a_token_is_refused() {
        let arguments = "coppiced serve --tcp 127.0.0.1:1 --vmm v --kernel k --initrd i --state-dir s".split(' ');
        assert!(Cli::try_parse_from(arguments).is_err());
    }
}
