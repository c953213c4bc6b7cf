//! The carrier's network: one interface with a fixed address behind QEMU's user network, which only forwards one port.

use std::fs;
use std::io;
use std::mem;
use std::net::Ipv4Addr;
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::{Duration, Instant};

use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket};

/// What QEMU's user network gives its first guest.
const ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 0, 2, 15);
const NETMASK: Ipv4Addr = Ipv4Addr::new(255, 255, 255, 0);

/// The driver may still be probing.
const INTERFACE_WAIT: Duration = Duration::from_secs(5);
const POLL: Duration = Duration::from_millis(10);

#[derive(Debug, thiserror::Error)]
pub enum NetworkError {
    #[error("No network interface appeared within {} s", INTERFACE_WAIT.as_secs())]
    NoInterface,
    #[error("Interface {name} can't be configured ({step}): {source}")]
    Configure {
        name: String,
        step: &'static str,
        source: io::Error,
    },
}

pub fn configure() -> Result<(), NetworkError> {
    let name = wait_for_interface()?;
    let failed = |step| {
        let name = name.clone();
        move |source| NetworkError::Configure { name, step, source }
    };
    let family = AddressFamily::Inet;
    let control = socket(family, SockType::Datagram, SockFlag::SOCK_CLOEXEC, None);
    let control = control.map_err(io::Error::from).map_err(failed("socket"))?;
    bring_up(&control, "lo").map_err(failed("loopback"))?;
    set_address(&control, &name, libc::SIOCSIFADDR, ADDRESS).map_err(failed("address"))?;
    set_address(&control, &name, libc::SIOCSIFNETMASK, NETMASK).map_err(failed("netmask"))?;
    bring_up(&control, &name).map_err(failed("up"))
}

fn wait_for_interface() -> Result<String, NetworkError> {
    let begin = Instant::now();
    loop {
        let entries = fs::read_dir("/sys/class/net").into_iter().flatten().flatten();
        let mut names = entries.filter_map(|entry| entry.file_name().into_string().ok());
        match names.find(|name| name != "lo") {
            Some(name) => return Ok(name),
            None if begin.elapsed() > INTERFACE_WAIT => return Err(NetworkError::NoInterface),
            None => std::thread::sleep(POLL),
        }
    }
}

fn request(name: &str) -> io::Result<libc::ifreq> {
    // SAFETY: ifreq is a plain C structure of integers and byte arrays; all zeros is a valid value of every field.
    let mut request: libc::ifreq = unsafe { mem::zeroed() };
    if name.len() >= request.ifr_name.len() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    Ok(request)
}

fn set_address(control: &OwnedFd, name: &str, which: libc::Ioctl, address: Ipv4Addr) -> io::Result<()> {
    let mut request = request(name)?;
    let inet = libc::sockaddr_in {
        sin_family: libc::AF_INET as libc::sa_family_t,
        sin_port: 0,
        sin_addr: libc::in_addr {
            s_addr: u32::from(address).to_be(),
        },
        sin_zero: [0; 8],
    };
    // SAFETY: sockaddr_in and sockaddr are both 16 bytes of plain integers, made to be cast into each other.
    request.ifr_ifru.ifru_addr = unsafe { mem::transmute::<libc::sockaddr_in, libc::sockaddr>(inet) };
    ioctl(control, which, &mut request)
}

fn bring_up(control: &OwnedFd, name: &str) -> io::Result<()> {
    let mut request = request(name)?;
    request.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as libc::c_short;
    ioctl(control, libc::SIOCSIFFLAGS, &mut request)
}

fn ioctl(control: &OwnedFd, which: libc::Ioctl, request: &mut libc::ifreq) -> io::Result<()> {
    // SAFETY: `which` is one of the SIOCSIF… requests, which read one ifreq; `request` is one, exclusively borrowed for
    // the call, and `control` is an open socket.
    let result = unsafe { libc::ioctl(control.as_raw_fd(), which, request as *mut libc::ifreq) };
    match result {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn request_given_a_name_that_is_too_long_refuses() {
        assert!(request("eth0").is_ok());
        assert!(request("an-interface-name-of-more-than-fifteen").is_err());
    }
}
