//! Redis: a list on a separate server, over a Unix socket, with the client library of Redis for Rust.

use std::cell::Cell;
use std::path::{Path, PathBuf};

use redis::{Client, Cmd, Connection, Pipeline, RedisError};

use super::scratch::Scratch;
use super::server::Server;
use super::{Abilities, Link, Peer, Receiver, Sender, Way, whole};
use crate::backends::{Errno, Spec};
use crate::failure::Failure;

/// The number of messages that a stream moves by one round trip to the server.
const BATCH: usize = 64;

pub const NAME: &str = "Redis";

/// A server that keeps nothing on disk.
pub struct Redis {
    server: Server,
    socket: PathBuf,
    lists: Cell<u32>,
}

impl Redis {
    /// # Errors
    /// Fails if the server is not installed or does not start.
    pub fn start(scratch: &Scratch, cpus: Vec<usize>) -> Result<Self, Failure> {
        let mut socket = PathBuf::new();
        let mut server = Server::start("redis-server", scratch, cpus, |command, directory| {
            socket = directory.join("socket");
            command
                .args(["--port", "0", "--save", "", "--appendonly", "no"])
                .args(["--unixsocketperm", "700", "--unixsocket"])
                .arg(&socket);
        })?;
        server.wait_for(|_| {
            let pong: String = redis::cmd("PING")
                .query(&mut open(&socket)?)
                .map_err(failure)?;
            (pong == "PONG")
                .then_some(())
                .ok_or_else(|| Failure::new(format!("Redis answers {pong:?} to PING")))
        })?;
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
            "{}, by the crate redis over a Unix socket, nothing kept on disk; LPUSH and BRPOP, in a stream pipelines of {BATCH} LPUSH and \
             BLMPOP of up to {BATCH} messages; the list has no bound",
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

/// A list of Redis. The server creates the list with its first element, and removes the list with its last element.
pub struct List {
    socket: PathBuf,
    key: String,
}

impl Link for List {
    type Sender<'a> = Pusher;
    type Receiver<'a> = Popper;

    fn sender(&self, way: Way) -> Result<Pusher, Failure> {
        Ok(Pusher {
            connection: open(&self.socket)?,
            key: self.key.clone(),
            batch: batch(way),
            pipeline: Pipeline::with_capacity(BATCH),
        })
    }

    fn receiver(&self, way: Way) -> Result<Popper, Failure> {
        let take = match batch(way) {
            // A time-out of zero seconds means no time-out.
            1 => redis::cmd("BRPOP").arg(&self.key).arg(0).take(),
            count => redis::cmd("BLMPOP")
                .arg((0, 1, &self.key, "RIGHT", "COUNT", count))
                .take(),
        };
        Ok(Popper {
            connection: open(&self.socket)?,
            take,
            is_single: batch(way) == 1,
            received: Vec::new(),
        })
    }
}

fn open(socket: &Path) -> Result<Connection, Failure> {
    let client = Client::open(format!("unix://{}", socket.display())).map_err(failure)?;
    let connection = client.get_connection().map_err(failure)?;
    // No time-out for reads: a blocking pop waits until a message comes.
    connection.set_read_timeout(None).map_err(failure)?;
    Ok(connection)
}

/// Returns the number of messages that an end moves by one round trip.
fn batch(way: Way) -> usize {
    match way {
        Way::Piped => BATCH,
        _ => 1,
    }
}

fn failure(error: RedisError) -> Failure {
    Failure::new(format!("Redis: {error}"))
}

fn errno(error: &RedisError) -> Errno {
    Errno(match error.is_io_error() {
        true => libc::EPIPE,
        false => libc::EPROTO,
    })
}

/// The sending end, which pushes messages at the left end of the list.
pub struct Pusher {
    connection: Connection,
    key: String,
    batch: usize,
    /// Commands that have not been sent yet.
    pipeline: Pipeline,
}

impl Sender for Pusher {
    fn send(&mut self, message: &[u8]) -> Result<(), Errno> {
        self.pipeline.lpush(&self.key, message).ignore();
        match self.pipeline.len() < self.batch {
            true => Ok(()),
            false => self.flush(),
        }
    }

    fn try_send(&mut self, message: &[u8]) -> Result<(), Errno> {
        self.send(message)
    }

    fn flush(&mut self) -> Result<(), Errno> {
        let sent = self.pipeline.exec(&mut self.connection);
        self.pipeline.clear();
        sent.map_err(|error| errno(&error))
    }
}

/// The receiving end, which pops messages at the right end of the list.
pub struct Popper {
    connection: Connection,
    take: Cmd,
    is_single: bool,
    /// The messages that a pop returned, in reverse order.
    received: Vec<Vec<u8>>,
}

impl Popper {
    /// Waits for messages.
    fn pop(&mut self) -> Result<(), RedisError> {
        // The server's answer also has the name of the list, which is ignored.
        if self.is_single {
            let (_, message): (String, Vec<u8>) = self.take.query(&mut self.connection)?;
            self.received.push(message);
        } else {
            let (_, messages): (String, Vec<Vec<u8>>) = self.take.query(&mut self.connection)?;
            self.received.extend(messages.into_iter().rev());
        }
        Ok(())
    }
}

impl Receiver for Popper {
    fn receive(&mut self, buffer: &mut [u8]) -> Result<(), Errno> {
        if self.received.is_empty() {
            self.pop().map_err(|error| errno(&error))?;
        }
        let message = self.received.pop().unwrap_or_default();
        whole(message.len())?;
        let room = buffer.get_mut(..message.len());
        room.ok_or(Errno(libc::EMSGSIZE))?.copy_from_slice(&message);
        Ok(())
    }

    fn try_receive(&mut self, buffer: &mut [u8]) -> Result<(), Errno> {
        self.receive(buffer)
    }
}
