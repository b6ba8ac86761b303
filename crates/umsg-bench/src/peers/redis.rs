//! Redis: a list on a server of our own, over a Unix socket. Its protocol is text with lengths (RESP).

use std::cell::Cell;
use std::io::Write as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use super::scratch::Scratch;
use super::server::Server;
use super::wire::{self, Wire};
use super::{Abilities, Link, Peer, Receiver, Sender, Way, whole};
use crate::backends::{Errno, Spec};
use crate::failure::Failure;

/// Commands on their way at once where several are.
const WINDOW: u32 = 64;

pub const NAME: &str = "Redis";

/// A server that keeps nothing on disk.
pub struct Redis {
    server: Server,
    socket: PathBuf,
    lists: Cell<u32>,
}

impl Redis {
    /// # Errors
    /// If it is not installed or does not start.
    pub fn start(scratch: &Scratch, cpus: Vec<usize>) -> Result<Self, Failure> {
        let mut socket = PathBuf::new();
        let mut server = Server::start("redis-server", scratch, cpus, |command, directory| {
            socket = directory.join("socket");
            command
                .args(["--port", "0", "--save", "", "--appendonly", "no"])
                .args(["--unixsocketperm", "700", "--unixsocket"])
                .arg(&socket);
        })?;
        server.wait_for(|_| ask(&mut open(&socket)?, &[b"PING"], "+PONG"))?;
        Ok(Self {
            server,
            socket,
            lists: Cell::new(0),
        })
    }
}

impl Peer for Redis {
    type Link = List;

    const ABILITIES: Abilities = Abilities {
        polls: false,
        ..Abilities::ALL
    };

    fn name(&self) -> &'static str {
        NAME
    }

    fn about(&self) -> String {
        format!(
            "{}, LPUSH and BRPOP over a Unix socket, nothing kept on disk; a stream has {WINDOW} commands on their way at once, and its list no bound",
            self.server.version()
        )
    }

    fn make(&self, _spec: &Spec) -> Result<List, Failure> {
        let number = self.lists.get();
        self.lists.set(number + 1);
        Ok(List {
            socket: self.socket.clone(),
            key: format!("list-{number}"),
        })
    }

    fn server_cpu(&self) -> u64 {
        self.server.cpu()
    }
}

/// A list, which begins with its first element and ends with its last.
pub struct List {
    socket: PathBuf,
    key: String,
}

impl Link for List {
    type Sender<'a> = Pusher;
    type Receiver<'a> = Popper;

    fn sender(&self, way: Way) -> Result<Pusher, Failure> {
        Ok(Pusher {
            wire: open(&self.socket)?,
            key: self.key.clone().into(),
            window: window(way),
            waiting: 0,
            unanswered: 0,
        })
    }

    fn receiver(&self, way: Way) -> Result<Popper, Failure> {
        Ok(Popper {
            wire: open(&self.socket)?,
            key: self.key.clone().into(),
            window: window(way),
            asked: 0,
        })
    }
}

fn open(socket: &Path) -> Result<Wire<UnixStream>, Failure> {
    Ok(Wire::new(UnixStream::connect(socket)?))
}

fn window(way: Way) -> u32 {
    match way {
        Way::Piped => WINDOW,
        _ => 1,
    }
}

/// Sends a command and waits for this answer.
fn ask(wire: &mut Wire<UnixStream>, words: &[&[u8]], answer: &str) -> Result<(), Failure> {
    say(&mut wire.out, words);
    match wire.write().and_then(|()| wire.read_line()) {
        Ok(line) if line == answer.as_bytes() => Ok(()),
        _ => Err(Failure::new(format!("Redis says {:?}", wire.last_line()))),
    }
}

/// Adds a command: an array of strings, each with its length.
fn say(out: &mut Vec<u8>, words: &[&[u8]]) {
    // Writing to memory does not fail.
    let _ = write!(out, "*{}\r\n", words.len());
    for word in words {
        let _ = write!(out, "${}\r\n", word.len());
        out.extend_from_slice(word);
        out.extend_from_slice(b"\r\n");
    }
}

/// Pushes at the left end.
pub struct Pusher {
    wire: Wire<UnixStream>,
    key: Vec<u8>,
    window: u32,
    /// Commands that have not been written yet.
    waiting: u32,
    /// Commands that have, and wait for their answers.
    unanswered: u32,
}

impl Pusher {
    fn write(&mut self) -> Result<(), Errno> {
        self.unanswered += self.waiting;
        self.waiting = 0;
        self.wire.write()
    }

    /// Reads answers until no more than so many are left.
    fn settle(&mut self, left: u32) -> Result<(), Errno> {
        while self.unanswered > left {
            self.wire.read_line()?;
            self.unanswered -= 1;
        }
        Ok(())
    }
}

impl Sender for Pusher {
    fn send(&mut self, message: &[u8]) -> Result<(), Errno> {
        say(&mut self.wire.out, &[b"LPUSH", &self.key, message]);
        self.waiting += 1;
        if self.waiting >= self.window.div_ceil(2) {
            self.write()?;
            self.settle(self.window / 2)?;
        }
        Ok(())
    }

    fn try_send(&mut self, message: &[u8]) -> Result<(), Errno> {
        self.send(message)
    }

    fn flush(&mut self) -> Result<(), Errno> {
        self.write()?;
        self.settle(0)
    }
}

/// Pops at the right end.
pub struct Popper {
    wire: Wire<UnixStream>,
    key: Vec<u8>,
    window: u32,
    /// Commands without an answer.
    asked: u32,
}

impl Receiver for Popper {
    fn receive(&mut self, buffer: &mut [u8]) -> Result<(), Errno> {
        if self.asked <= self.window / 2 {
            for _ in self.asked..self.window {
                // Zero seconds are for ever.
                say(&mut self.wire.out, &[b"BRPOP", &self.key, b"0"]);
            }
            self.asked = self.window;
            self.wire.write()?;
        }
        // An array of the key, in two lines, and the element.
        for _ in 0..3 {
            self.wire.read_line()?;
        }
        let line = self.wire.read_line()?;
        let length = line.strip_prefix(b"$").and_then(wire::number);
        whole(length.unwrap_or(0))?;
        self.asked -= 1;
        self.wire.read_text(buffer)
    }

    fn try_receive(&mut self, buffer: &mut [u8]) -> Result<(), Errno> {
        self.receive(buffer)
    }
}
