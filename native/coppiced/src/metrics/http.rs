//! `GET /metrics` for scrapers: as little of HTTP/1.1 as they need.

use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

use crate::host::Host;
use crate::metrics::render;

/// A scraper's request has some hundred bytes.
const MAX_REQUEST_BYTES: usize = 8 * 1024;

/// From accept to the last byte of the answer.
const DEADLINE: Duration = Duration::from_secs(5);

/// A monitoring system has one connection, or two; more wait in the kernel's queue.
const MAX_CONNECTIONS: usize = 8;

const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

pub async fn bind(address: SocketAddr) -> io::Result<(TcpListener, SocketAddr)> {
    let listener = TcpListener::bind(address).await?;
    let address = listener.local_addr()?;
    if !address.ip().is_loopback() {
        tracing::warn!(%address, "Metrics can be read by whoever reaches this address");
    }
    Ok((listener, address))
}

/// Answers for ever.
pub async fn serve(host: Rc<Host>, listener: TcpListener) {
    let places = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    loop {
        // Never closed, so this always gets a permit.
        let Ok(place) = Arc::clone(&places).acquire_owned().await else {
            return;
        };
        match listener.accept().await {
            Ok((stream, _)) => {
                let host = Rc::clone(&host);
                tokio::task::spawn_local(async move {
                    // Who is late, or gone, gets no answer.
                    let _ = tokio::time::timeout(DEADLINE, exchange(&host, stream)).await;
                    drop(place);
                });
            }
            Err(error) => {
                tracing::warn!(%error, "A scraper's connection can't be accepted");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

async fn exchange(host: &Host, mut stream: impl AsyncRead + AsyncWrite + Unpin) -> io::Result<()> {
    let reply = match read_head(&mut stream).await? {
        Some(head) => answer(&head, || render(host).map_err(|error| error.to_string())),
        None => Reply::refusal("431 Request Header Fields Too Large", "The request is too large"),
    };
    stream.write_all(&reply.into_bytes()).await?;
    stream.shutdown().await?;
    // To close a socket with unread bytes would reset it, and the answer could be lost.
    let mut rest = [0; 1024];
    while stream.read(&mut rest).await? > 0 {}
    Ok(())
}

/// The request up to its first empty line; `None` where it is too long.
async fn read_head(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<Option<String>> {
    let mut head = Vec::new();
    let mut buffer = [0; 1024];
    loop {
        let read = stream.read(&mut buffer).await?;
        if read == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        head.extend_from_slice(&buffer[..read]);
        if head.len() > MAX_REQUEST_BYTES {
            return Ok(None);
        }
        if head.windows(4).any(|window| window == b"\r\n\r\n") {
            return Ok(Some(String::from_utf8_lossy(&head).into_owned()));
        }
    }
}

struct Reply {
    status: &'static str,
    extra: &'static str,
    body: String,
    /// `HEAD`: headers alone.
    is_head: bool,
}

impl Reply {
    fn refusal(status: &'static str, why: &str) -> Self {
        Reply {
            status,
            extra: "",
            body: format!("{why}\n"),
            is_head: false,
        }
    }

    fn into_bytes(self) -> Vec<u8> {
        let Reply {
            status, extra, body, ..
        } = &self;
        let length = body.len();
        let head = format!(
            "HTTP/1.1 {status}\r\nContent-Type: {CONTENT_TYPE}\r\nContent-Length: {length}\r\n{extra}Connection: close\r\n\r\n"
        );
        match self.is_head {
            true => head.into_bytes(),
            false => (head + body).into_bytes(),
        }
    }
}

fn answer(head: &str, metrics: impl FnOnce() -> Result<String, String>) -> Reply {
    let line = head.lines().next().unwrap_or_default();
    let parts: Vec<&str> = line.split(' ').collect();
    let [method, target, version] = parts[..] else {
        return Reply::refusal("400 Bad Request", "The first line is not a request");
    };
    if !version.starts_with("HTTP/1.") {
        return Reply::refusal("505 HTTP Version Not Supported", "Only HTTP/1.1 is spoken here");
    }
    if target.split('?').next() != Some("/metrics") {
        return Reply::refusal("404 Not Found", "There is nothing here but /metrics");
    }
    if method != "GET" && method != "HEAD" {
        return Reply {
            extra: "Allow: GET, HEAD\r\n",
            ..Reply::refusal("405 Method Not Allowed", "Only GET and HEAD")
        };
    }
    match metrics() {
        Ok(body) => Reply {
            status: "200 OK",
            extra: "",
            body,
            is_head: method == "HEAD",
        },
        Err(reason) => Reply::refusal("500 Internal Server Error", &reason),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(line: &str) -> String {
        let reply = answer(&format!("{line}\r\n\r\n"), || Ok("x 1\n".to_owned()));
        reply.status[..3].to_owned()
    }

    #[test]
    fn only_get_and_head_of_metrics_are_answered() {
        assert_eq!(status("GET /metrics HTTP/1.1"), "200");
        assert_eq!(status("GET /metrics?a=b HTTP/1.0"), "200");
        assert_eq!(status("HEAD /metrics HTTP/1.1"), "200");
        assert_eq!(status("POST /metrics HTTP/1.1"), "405");
        assert_eq!(status("GET / HTTP/1.1"), "404");
        assert_eq!(status("GET /metrics/x HTTP/1.1"), "404");
        assert_eq!(status("GET /metrics HTTP/2"), "505");
        assert_eq!(status("hello"), "400");
    }

    #[test]
    fn head_is_told_the_length_without_the_body() {
        let reply = answer("HEAD /metrics HTTP/1.1\r\n\r\n", || Ok("x 1\n".to_owned()));
        let text = String::from_utf8(reply.into_bytes()).unwrap();
        assert!(
            text.contains("Content-Length: 4\r\n") && text.ends_with("\r\n\r\n"),
            "{text}"
        );
    }

    #[tokio::test]
    async fn request_given_in_pieces_is_read_to_its_end_and_one_without_end_is_given_up() {
        let (mut near, mut far) = tokio::io::duplex(64 * 1024);
        far.write_all(b"GET /metrics HT").await.unwrap();
        far.write_all(b"TP/1.1\r\n\r\n").await.unwrap();
        assert!(read_head(&mut near).await.unwrap().is_some());
        far.write_all(&vec![b'a'; MAX_REQUEST_BYTES + 1]).await.unwrap();
        assert!(read_head(&mut near).await.unwrap().is_none());
    }
}
