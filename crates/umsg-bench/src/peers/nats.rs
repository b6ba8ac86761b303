//! NATS: subjects on a server of our own, over the loopback interface. Its protocol is lines of text, each message after one.
//!
//! It does not hold a sender back: a receiver that stays behind is thrown out in the end. So a stream has a window, as programs that must
//! not lose anything build it: the receiver says on a subject of its own how far it is.

use std::cell::Cell;
use std::fs;
use std::net::TcpStream;

use super::scratch::Scratch;
use super::server::Server;
use super::wire::{self, Wire};
use super::{Abilities, Link, Peer, Receiver, SIZE, Sender, Way, whole};
use crate::backends::{Errno, Spec};
use crate::failure::Failure;

/// Messages that a stream's sender writes at once.
const BATCH: u64 = 64;

/// Every how many messages a stream's receiver says so, as many times as fit into the window.
const CREDITS: u64 = 4;

pub const NAME: &str = "NATS";

/// A server without persistence.
pub struct Nats {
    server: Server,
    /// Host and port.
    address: String,
    subjects: Cell<u32>,
}

impl Nats {
    /// On a port that the system chooses.
    ///
    /// # Errors
    /// If it is not installed or does not start.
    pub fn start(scratch: &Scratch, cpus: Vec<usize>) -> Result<Self, Failure> {
        let mut ports = None;
        let mut server = Server::start("nats-server", scratch, cpus, |command, directory| {
            command
                .args(["--addr", "127.0.0.1", "--port", "-1", "--ports_file_dir"])
                .arg(directory);
            ports = Some(directory.to_owned());
        })?;
        let ports = ports.unwrap_or_default();
        let address = server.wait_for(|id| {
            let text = fs::read_to_string(ports.join(format!("nats-server_{id}.ports")))?;
            let address = address(&text).ok_or_else(|| Failure::new("no address yet"))?;
            open(&address)?;
            Ok(address)
        })?;
        Ok(Self {
            server,
            address,
            subjects: Cell::new(0),
        })
    }
}

/// Host and port of the first URL of clients in what the server has written about its ports.
fn address(ports: &str) -> Option<String> {
    let (_, rest) = ports.split_once("nats://")?;
    let (address, _) = rest.split_once('"')?;
    Some(address.to_owned())
}

impl Peer for Nats {
    type Link = Subject;

    const ABILITIES: Abilities = Abilities {
        polls: false,
        ..Abilities::ALL
    };

    fn name(&self) -> &'static str {
        NAME
    }

    fn about(&self) -> String {
        format!(
            "{}, core subjects over loopback TCP, without persistence; a stream writes {BATCH} messages at once, as its client libraries do, \
             and its receiver says how far it is, because nothing else holds a sender back",
            self.server.version()
        )
    }

    fn make(&self, spec: &Spec) -> Result<Subject, Failure> {
        let number = self.subjects.get();
        self.subjects.set(number + 1);
        Ok(Subject {
            address: self.address.clone(),
            name: format!("subject-{number}"),
            window: spec.depth.into(),
        })
    }

    fn server_cpu(&self) -> u64 {
        self.server.cpu()
    }
}

/// A subject, and one for how far the receiver is.
pub struct Subject {
    address: String,
    name: String,
    window: u64,
}

impl Subject {
    fn credits(&self) -> String {
        format!("{}.credits", self.name)
    }

    /// After how many messages the receiver says how far it is; 0: never.
    fn step(&self, way: Way) -> u64 {
        match way {
            Way::Piped => self.window / CREDITS,
            _ => 0,
        }
    }
}

impl Link for Subject {
    type Sender<'a> = Publisher;
    type Receiver<'a> = Subscriber;

    fn sender(&self, way: Way) -> Result<Publisher, Failure> {
        let mut wire = open(&self.address)?;
        let step = self.step(way);
        if step > 0 {
            subscribe(&mut wire, &self.credits())?;
        }
        Ok(Publisher {
            wire,
            head: format!("PUB {} {SIZE}\r\n", self.name).into(),
            step,
            window: self.window,
            waiting: 0,
            unseen: 0,
        })
    }

    fn receiver(&self, way: Way) -> Result<Subscriber, Failure> {
        let mut wire = open(&self.address)?;
        subscribe(&mut wire, &self.name)?;
        Ok(Subscriber {
            wire,
            credit: format!("PUB {} 0\r\n\r\n", self.credits()).into(),
            step: self.step(way),
            received: 0,
        })
    }
}

/// Connects.
fn open(address: &str) -> Result<Wire<TcpStream>, Failure> {
    let stream = TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    let mut wire = Wire::new(stream);
    let hello = b"CONNECT {\"verbose\":false,\"pedantic\":false}\r\n";
    settle(&mut wire, hello)?;
    Ok(wire)
}

/// When it comes back, whoever publishes reaches this connection.
fn subscribe(wire: &mut Wire<TcpStream>, subject: &str) -> Result<(), Failure> {
    settle(wire, format!("SUB {subject} 1\r\n").as_bytes())
}

/// Tells the server something, and waits until it is done.
fn settle(wire: &mut Wire<TcpStream>, command: &[u8]) -> Result<(), Failure> {
    wire.out.extend_from_slice(command);
    wire.out.extend_from_slice(b"PING\r\n");
    let done = wire.write().and_then(|()| {
        loop {
            let line = wire.read_line()?;
            if line == b"PONG" {
                return Ok(());
            }
            // Others may publish already; nobody counts on what comes before we are there.
            if let Some(length) = length_of(line) {
                wire.read_text(&mut vec![0; length])?;
            }
        }
    });
    done.map_err(|errno| Failure::queue(format_args!("NATS says {:?}", wire.last_line()), errno))
}

/// The length of the message that follows this line, if one does.
fn length_of(line: &[u8]) -> Option<usize> {
    let words = line.strip_prefix(b"MSG ")?;
    wire::number(words.rsplit(|&byte| byte == b' ').next()?)
}

/// Reads up to the next message, whose text goes into the buffer. Gives its length.
fn read_message(wire: &mut Wire<TcpStream>, buffer: &mut [u8]) -> Result<usize, Errno> {
    let length = loop {
        let line = wire.read_line()?;
        if let Some(length) = length_of(line) {
            break length;
        }
        if line == b"PING" {
            wire.out.extend_from_slice(b"PONG\r\n");
            wire.write()?;
        }
    };
    let text = buffer.get_mut(..length).ok_or(Errno(libc::EMSGSIZE))?;
    wire.read_text(text)?;
    Ok(length)
}

/// Publishes.
pub struct Publisher {
    wire: Wire<TcpStream>,
    head: Vec<u8>,
    step: u64,
    window: u64,
    /// Messages that have not been written yet.
    waiting: u64,
    /// Messages of which the receiver has not said that it has them.
    unseen: u64,
}

impl Sender for Publisher {
    fn send(&mut self, message: &[u8]) -> Result<(), Errno> {
        for part in [&self.head[..], message, b"\r\n"] {
            self.wire.out.extend_from_slice(part);
        }
        self.waiting += 1;
        if self.step == 0 {
            return self.flush();
        }
        self.unseen += 1;
        if self.waiting == BATCH || self.unseen == self.window {
            self.flush()?;
        }
        while self.unseen >= self.window {
            read_message(&mut self.wire, &mut [])?;
            self.unseen -= self.step;
        }
        Ok(())
    }

    fn try_send(&mut self, message: &[u8]) -> Result<(), Errno> {
        self.send(message)
    }

    fn flush(&mut self) -> Result<(), Errno> {
        self.waiting = 0;
        self.wire.write()
    }
}

/// Is subscribed.
pub struct Subscriber {
    wire: Wire<TcpStream>,
    credit: Vec<u8>,
    step: u64,
    received: u64,
}

impl Receiver for Subscriber {
    fn receive(&mut self, buffer: &mut [u8]) -> Result<(), Errno> {
        read_message(&mut self.wire, buffer).and_then(whole)?;
        self.received += 1;
        if self.step > 0 && self.received.is_multiple_of(self.step) {
            self.wire.out.extend_from_slice(&self.credit);
            self.wire.write()?;
        }
        Ok(())
    }

    fn try_receive(&mut self, buffer: &mut [u8]) -> Result<(), Errno> {
        self.receive(buffer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_port_is_found_in_what_the_server_writes() {
        let ports = r#"{"nats": ["nats://127.0.0.1:43211", "nats://[::1]:43211"]}"#;
        assert_eq!(address(ports).unwrap(), "127.0.0.1:43211");
        assert_eq!(address("{}"), None);
    }

    #[test]
    fn a_line_that_announces_a_message_ends_with_its_length() {
        assert_eq!(length_of(b"MSG subject-1 1 64"), Some(64));
        assert_eq!(length_of(b"MSG subject-1 1 answers.7 0"), Some(0));
        assert_eq!(length_of(b"PING"), None);
    }
}
