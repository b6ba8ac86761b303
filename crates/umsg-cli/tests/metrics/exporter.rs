//! A running `umsg metrics --listen`, and an HTTP client.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use super::support::patients::Killed;
use super::support::{Site, start};

/// The time after which a wait fails the test.
const PATIENCE: Duration = Duration::from_secs(120);

/// A server that is killed at the end of the test.
pub struct Exporter {
    process: Killed,
    pub address: SocketAddr,
}

impl Exporter {
    pub fn start(site: &Site, more: &[&str]) -> Exporter {
        let arguments = [&["metrics", "--listen", "127.0.0.1:0"], more].concat();
        let mut process = Killed(start(&mut site.command(&arguments)));
        let mut line = String::new();
        let output = process.0.stdout.take().unwrap();
        BufReader::new(output).read_line(&mut line).unwrap();
        let address = line.trim().strip_prefix("http://").unwrap();
        let address = address.strip_suffix("/metrics").unwrap().parse().unwrap();
        Exporter { process, address }
    }

    pub fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream
    }

    /// Returns the whole answer to a request.
    pub fn get(&self, method: &str, path: &str, headers: &str) -> String {
        let mut stream = self.connect();
        let request =
            format!("{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{headers}\r\n");
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    /// Returns the metrics. Joins the text if the server sends it in chunks.
    #[track_caller]
    pub fn metrics(&self) -> String {
        let answer = self.get("GET", "/metrics", "");
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 200 "), "{answer}");
        match head.contains("chunked") {
            true => joined(body),
            false => body.to_owned(),
        }
    }

    /// Returns the lines of the server's /proc/PID/maps that belong to the namespace's files.
    pub fn mappings(&self, site: &Site) -> String {
        let maps = std::fs::read_to_string(format!("/proc/{}/maps", self.process.0.id()));
        let (maps, path) = (maps.unwrap(), site.path().to_str().unwrap());
        let lines = maps.lines().filter(|line| line.contains(path));
        lines.collect::<Vec<_>>().join("\n")
    }
}

/// Joins the chunks of a body.
fn joined(mut body: &str) -> String {
    let mut whole = String::new();
    loop {
        let (len, rest) = body.split_once("\r\n").unwrap();
        let len = usize::from_str_radix(len, 16).unwrap();
        if len == 0 {
            return whole;
        }
        whole.push_str(&rest[..len]);
        body = rest[len..].strip_prefix("\r\n").unwrap();
    }
}

/// Waits until a condition holds.
#[track_caller]
pub fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !holds() {
        assert!(begin.elapsed() < PATIENCE, "not in time: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}
