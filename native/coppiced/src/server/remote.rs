//! The other end of a TCP connection: who it is, and whether anybody is there.
//!
//! A client whose machine or network is gone says no goodbye. While nothing is under way the kernel asks it (keepalive);
//! while something is, the kernel sends that again and asks nothing, so it is looked how long ago the peer acknowledged
//! anything. `TCP_USER_TIMEOUT` would do the second, but takes a peer that is there and does not read for one that is gone: a
//! client that computes for some seconds while its guests print would lose them.

use std::io;
use std::net::{IpAddr, Ipv6Addr};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::time::Duration;

use nix::sys::socket::{setsockopt, sockopt};
use tokio::net::TcpStream;

/// A silent peer is asked after this long, then at this interval, and is gone after so many questions: 4 s in all.
const KEEP_ALIVE_IDLE_S: u32 = 2;
const KEEP_ALIVE_INTERVAL_S: u32 = 1;
const KEEP_ALIVE_PROBES: u32 = 2;

/// How often it is looked whether what was sent is acknowledged.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// A peer that acknowledged nothing for this long, while the kernel sent it something again and again, is gone.
const UNACKNOWLEDGED: Duration = Duration::from_secs(3);

/// A whole machine that was stopped for a while finds its last acknowledgement old, but has sent nothing again yet.
const MIN_RETRANSMISSIONS: u8 = 2;

/// Where a connection comes from. All addresses of one IPv6 network (/64) are one source: whoever has one has all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Source(IpAddr);

impl Source {
    pub fn of(address: IpAddr) -> Self {
        Source(match address.to_canonical() {
            IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() >> 64 << 64).into(),
            address @ IpAddr::V4(_) => address,
        })
    }
}

impl std::fmt::Display for Source {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        match self.0 {
            IpAddr::V4(address) => address.fmt(f),
            IpAddr::V6(address) => write!(f, "{address}/64"),
        }
    }
}

pub struct Remote {
    pub source: Source,
    socket: OwnedFd,
}

impl Remote {
    /// Has the kernel ask the peer from now on.
    pub fn of(stream: &TcpStream, address: IpAddr) -> io::Result<Self> {
        setsockopt(stream, sockopt::KeepAlive, &true)?;
        setsockopt(stream, sockopt::TcpKeepIdle, &KEEP_ALIVE_IDLE_S)?;
        setsockopt(stream, sockopt::TcpKeepInterval, &KEEP_ALIVE_INTERVAL_S)?;
        setsockopt(stream, sockopt::TcpKeepCount, &KEEP_ALIVE_PROBES)?;
        Ok(Remote {
            source: Source::of(address),
            socket: stream.as_fd().try_clone_to_owned()?,
        })
    }

    /// Returns when what was sent finds nobody any more.
    pub async fn vanished(&self) {
        loop {
            tokio::time::sleep(LOOK_INTERVAL).await;
            // A socket that can't be looked at has failed: reading from it says so.
            if transmission(&self.socket).is_ok_and(|transmission| transmission.is_lost()) {
                return;
            }
        }
    }
}

/// What the kernel knows of what was sent and is not acknowledged.
#[derive(Debug, Clone, Copy)]
struct Transmission {
    unacknowledged: u32,
    /// Of the same bytes, without an acknowledgement in between.
    retransmissions: u8,
    since_last_acknowledgement: Duration,
}

impl Transmission {
    fn is_lost(self) -> bool {
        self.unacknowledged > 0
            && self.retransmissions >= MIN_RETRANSMISSIONS
            && self.since_last_acknowledgement >= UNACKNOWLEDGED
    }
}

fn transmission(socket: &OwnedFd) -> io::Result<Transmission> {
    // SAFETY: `tcp_info` is plain numbers, for all of which zero is a value.
    let mut info: libc::tcp_info = unsafe { std::mem::zeroed() };
    let mut length = size_of::<libc::tcp_info>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `length` bytes, which `info` has, and the socket is open.
    let answer = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            (&raw mut info).cast(),
            &raw mut length,
        )
    };
    if answer != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(Transmission {
        unacknowledged: info.tcpi_unacked,
        retransmissions: info.tcpi_retransmits,
        since_last_acknowledgement: Duration::from_millis(info.tcpi_last_ack_recv.into()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::sys::socket::getsockopt;
    use tokio::io::AsyncWriteExt;
    use tokio::net::TcpListener;

    async fn accepted() -> (TcpStream, TcpStream, Remote) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let far = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (near, address) = listener.accept().await.unwrap();
        let remote = Remote::of(&near, address.ip()).unwrap();
        (near, far, remote)
    }

    #[tokio::test]
    async fn peer_of_an_accepted_connection_is_asked_and_given_up_within_five_seconds() {
        let (near, _far, _remote) = accepted().await;
        assert!(getsockopt(&near, sockopt::KeepAlive).unwrap());
        let idle = getsockopt(&near, sockopt::TcpKeepIdle).unwrap();
        let interval = getsockopt(&near, sockopt::TcpKeepInterval).unwrap();
        let probes = getsockopt(&near, sockopt::TcpKeepCount).unwrap();
        assert!(idle + interval * probes < 5, "{idle} {interval} {probes}");
        // With it the kernel would not count probes, and would give up peers that do not read.
        assert_eq!(getsockopt(&near, sockopt::TcpUserTimeout).unwrap(), 0);
    }

    #[tokio::test]
    async fn peer_that_does_not_read_is_not_lost() {
        let (mut near, _far, remote) = accepted().await;
        let flood = vec![0; 1024 * 1024];
        while tokio::time::timeout(Duration::from_millis(200), near.write_all(&flood))
            .await
            .is_ok()
        {}
        let seconds = tokio::time::timeout(UNACKNOWLEDGED + 2 * LOOK_INTERVAL, remote.vanished());
        assert!(seconds.await.is_err(), "{:?}", transmission(&remote.socket));
    }

    #[test]
    fn transmission_is_lost_only_where_it_was_repeated_and_nothing_came_back() {
        let lost = Transmission {
            unacknowledged: 1,
            retransmissions: 3,
            since_last_acknowledgement: Duration::from_secs(4),
        };
        assert!(lost.is_lost());
        for kept in [
            Transmission {
                unacknowledged: 0,
                ..lost
            },
            Transmission {
                retransmissions: 1,
                ..lost
            },
            Transmission {
                since_last_acknowledgement: Duration::from_secs(1),
                ..lost
            },
        ] {
            assert!(!kept.is_lost(), "{kept:?}");
        }
    }

    #[test]
    fn source_of_an_ipv6_address_is_its_network_and_of_a_mapped_one_its_ipv4_address() {
        let source = |text: &str| Source::of(text.parse().unwrap());
        assert_eq!(source("2001:db8::1"), source("2001:db8::ffff:2"));
        assert_ne!(source("2001:db8::1"), source("2001:db8:0:1::1"));
        assert_eq!(source("::ffff:192.0.2.1"), source("192.0.2.1"));
        assert_ne!(source("192.0.2.1"), source("192.0.2.2"));
        assert_eq!(source("2001:db8::1").to_string(), "2001:db8::/64");
    }
}
