//! The daemon's life: from its endpoints to the last VMM's end.

use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use nix::sys::prctl;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::LocalSet;

use crate::defaults::SHUTDOWN_DEADLINE;
use crate::host::{Config, Host};
use crate::ids::RandomError;
use crate::metrics;
use crate::reaper::child_signals;
use crate::server::listener::{Entrance, Lobby, accept_tcp, accept_unix};
use crate::server::unix_socket::{SocketError, UnixSocket};

/// After the last VMM has ended, connections may still be written to for this long.
const LAST_WORDS: Duration = Duration::from_millis(300);

/// Where clients connect.
pub struct Endpoints {
    pub unix: Option<std::path::PathBuf>,
    pub tcp: Option<(SocketAddr, Entrance)>,
    /// Where scrapers connect.
    pub metrics: Option<SocketAddr>,
}

#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    #[error(transparent)]
    Socket(#[from] SocketError),
    #[error("Address {address} can't be listened on: {source}")]
    Tcp { address: SocketAddr, source: io::Error },
    #[error("The daemon can't start: {0}")]
    System(#[from] io::Error),
    #[error(transparent)]
    Random(#[from] RandomError),
}

/// Serves until a signal, a client or idleness ends it.
pub fn serve(config: Config, endpoints: Endpoints) -> Result<(), ServeError> {
    // VMMs that outlive the one that forked them become this process's children, never init's.
    prctl::set_child_subreaper(true).map_err(io::Error::from)?;
    raise_descriptor_limit();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let tasks = LocalSet::new();
    tasks.block_on(&runtime, serve_until_ordered(config, endpoints))
}

async fn serve_until_ordered(config: Config, endpoints: Endpoints) -> Result<(), ServeError> {
    let host = Host::new(config)?;
    let lobby = Rc::new(Lobby::default());
    let children = child_signals()?;
    tokio::task::spawn_local({
        let host = Rc::clone(&host);
        async move { host.reaper.run(children).await }
    });
    spawn_signals(&host)?;
    let mut accepting = tokio::task::JoinSet::new();
    let mut socket = None;
    if let Some(path) = endpoints.unix {
        let bound = Rc::new(UnixSocket::bind(&path)?);
        accepting.spawn_local(accept_unix(Rc::clone(&host), Rc::clone(&bound), Rc::clone(&lobby)));
        println!("coppiced: listening on unix:{}", path.display());
        socket = Some(bound);
    }
    if let Some((address, entrance)) = endpoints.tcp {
        let failed = |source| ServeError::Tcp { address, source };
        let listener = TcpListener::bind(address).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        match &entrance.tls {
            Some(tls) => println!("coppiced: listening on tls://{address} {}", tls.fingerprint),
            None => println!("coppiced: listening on {address}"),
        }
        accepting.spawn_local(accept_tcp(Rc::clone(&host), listener, entrance, Rc::clone(&lobby)));
    }
    if let Some(address) = endpoints.metrics {
        let bound = metrics::bind(address).await;
        let (listener, address) = bound.map_err(|source| ServeError::Tcp { address, source })?;
        accepting.spawn_local(metrics::serve(Rc::clone(&host), listener));
        println!("coppiced: listening on http://{address}/metrics");
    }
    spawn_idle_watch(&host);
    let reason = host.shutting_down().await;
    tracing::info!(reason, "Shutting down");
    accepting.shutdown().await;
    drop(socket);
    host.close_everything(SHUTDOWN_DEADLINE).await;
    // Clients that wait for an answer, such as the one to host.shutdown, still get it.
    let _ = tokio::time::timeout(LAST_WORDS, lobby.empty()).await;
    tracing::info!("Down");
    Ok(())
}

fn spawn_signals(host: &Rc<Host>) -> io::Result<()> {
    for (kind, name) in [
        (SignalKind::terminate(), "SIGTERM"),
        (SignalKind::interrupt(), "SIGINT"),
    ] {
        let mut signals = signal(kind)?;
        let host = Rc::clone(host);
        tokio::task::spawn_local(async move {
            signals.recv().await;
            host.shut_down(name);
        });
    }
    Ok(())
}

/// Orders the end when no client was connected for long enough. Shared templates do not count: they can be made again.
fn spawn_idle_watch(host: &Rc<Host>) {
    let Some(limit) = host.config.idle_exit else {
        return;
    };
    let host = Rc::clone(host);
    tokio::task::spawn_local(async move {
        let mut connections = host.connections.subscribe();
        loop {
            // The sender lives in the host, so neither can fail.
            let _ = connections.wait_for(|count| *count == 0).await;
            let busy = tokio::time::timeout(limit, connections.wait_for(|count| *count > 0))
                .await
                .is_ok();
            if !busy {
                return host.shut_down(format!("no client for {} s", limit.as_secs()));
            }
        }
    });
}

/// Each sandbox and each connection needs a descriptor.
fn raise_descriptor_limit() {
    if let Ok((_, hard)) = getrlimit(Resource::RLIMIT_NOFILE) {
        // A lower limit only means fewer sandboxes.
        let _ = setrlimit(Resource::RLIMIT_NOFILE, hard, hard);
    }
}
