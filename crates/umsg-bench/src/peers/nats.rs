//! NATS: subjects on a separate server, over the loopback interface, with the client library of NATS for Rust.
//!
//! NATS has no back-pressure: the server disconnects a slow receiver. So a stream has a window, as in programs that must not lose messages: the
//! receiver reports its position on a second subject.

use std::cell::Cell;
use std::fmt::Display;
use std::fs;

use async_nats::client::RequestErrorKind;
use async_nats::{Client, ConnectOptions, Subject, Subscriber};
use bytes::Bytes;
use futures_util::StreamExt as _;
use tokio::runtime::{self, Runtime};

use super::scratch::Scratch;
use super::server::Server;
use super::{Abilities, Link, Peer, Receiver, Sender, Way, whole};
use crate::backends::{Errno, Spec};
use crate::failure::Failure;

/// The number of times that a stream's receiver reports its position for each window of messages.
const CREDITS: u64 = 4;

pub const NAME: &str = "NATS";

/// A server without persistence.
pub struct Nats {
    server: Server,
    /// The host and the port of the server.
    address: String,
    subjects: Cell<u32>,
}

impl Nats {
    /// Starts the server on a port that the system chooses.
    ///
    /// # Errors
    /// Fails if the server is not installed or does not start.
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
            Connection::open(&address)?;
            Ok(address)
        })?;
        Ok(Self {
            server,
            address,
            subjects: Cell::new(0),
        })
    }
}

/// Returns host and port of the first client URL in the server's file of ports.
fn address(ports: &str) -> Option<String> {
    let (_, rest) = ports.split_once("nats://")?;
    let (address, _) = rest.split_once('"')?;
    Some(address.to_owned())
}

impl Peer for Nats {
    type Link = Channel;

    const ABILITIES: Abilities = Abilities {
        polls: false,
        ..Abilities::ALL
    };

    fn name(&self) -> &'static str {
        NAME
    }

    fn about(&self) -> String {
        format!(
            "{}, by the crate async-nats over loopback TCP, core subjects, without persistence; a stream leaves it to the library how many \
             messages it writes at once, and its receiver says how far it is, because nothing else holds a sender back",
            self.server.version()
        )
    }

    fn make(&self, spec: &Spec) -> Result<Channel, Failure> {
        let number = self.subjects.get();
        self.subjects.set(number + 1);
        Ok(Channel {
            address: self.address.clone(),
            name: format!("subject-{number}"),
            window: spec.depth.into(),
        })
    }

    fn server_cpu(&self) -> u64 {
        self.server.cpu()
    }
}

/// A subject for messages, and a second subject on which the receiver reports its position.
pub struct Channel {
    address: String,
    name: String,
    window: u64,
}

impl Channel {
    fn credits(&self) -> String {
        format!("{}.credits", self.name)
    }

    /// Returns the number of messages after which the receiver reports its position; 0 for never.
    fn step(&self, way: Way) -> u64 {
        match way {
            Way::Piped => self.window / CREDITS,
            _ => 0,
        }
    }
}

impl Link for Channel {
    type Sender<'a> = Publishing;
    type Receiver<'a> = Receiving;

    fn sender(&self, way: Way) -> Result<Publishing, Failure> {
        let mut connection = Connection::open(&self.address)?;
        let step = self.step(way);
        if step > 0 {
            connection.subscribe(self.credits())?;
        }
        Ok(Publishing {
            connection,
            subject: self.name.clone().into(),
            step,
            window: self.window,
            unseen: 0,
        })
    }

    fn receiver(&self, way: Way) -> Result<Receiving, Failure> {
        let mut connection = Connection::open(&self.address)?;
        connection.subscribe(self.name.clone())?;
        Ok(Receiving {
            connection,
            credits: self.credits().into(),
            step: self.step(way),
            received: 0,
        })
    }
}

/// A client, and the thread's runtime, in which the client's tasks run while a call waits.
struct Connection {
    runtime: Runtime,
    client: Client,
    /// The subject that the connection receives from, if any.
    messages: Option<Subscriber>,
}

impl Connection {
    fn open(address: &str) -> Result<Self, Failure> {
        let runtime = runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let options = ConnectOptions::new().read_buffer_capacity(u16::MAX);
        let client = runtime
            .block_on(options.connect(address))
            .map_err(failure)?;
        Ok(Self {
            runtime,
            client,
            messages: None,
        })
    }

    /// Subscribes to a subject. After the return, messages on the subject reach this connection.
    fn subscribe(&mut self, subject: String) -> Result<(), Failure> {
        let subscribed = self.runtime.block_on(self.client.subscribe(subject));
        self.messages = Some(subscribed.map_err(failure)?);
        self.settle()
    }

    /// Waits until the server has handled all requests of this connection so far, by a request to a subject without subscribers. The server handles
    /// the requests of a connection in order, and answers at once that the subject has no subscriber.
    fn settle(&self) -> Result<(), Failure> {
        let answer = self
            .runtime
            .block_on(self.client.request("nobody", Bytes::new()));
        match answer.map_err(|error| error.kind()) {
            Err(RequestErrorKind::NoResponders) => Ok(()),
            other => Err(failure(format!("{other:?} instead of no responders"))),
        }
    }

    fn publish(&self, subject: &Subject, message: Bytes, is_flushed: bool) -> Result<(), Errno> {
        self.runtime.block_on(async {
            let sent = self.client.publish(subject.clone(), message).await;
            sent.map_err(|_| Errno(libc::EPIPE))?;
            match is_flushed {
                true => self.client.flush().await.map_err(|_| Errno(libc::EPIPE)),
                false => Ok(()),
            }
        })
    }

    /// Waits for a message.
    fn next(&mut self) -> Result<Bytes, Errno> {
        let messages = self.messages.as_mut().ok_or(Errno(libc::ENOTCONN))?;
        let message = self.runtime.block_on(messages.next());
        Ok(message.ok_or(Errno(libc::EPIPE))?.payload)
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        // The drop of a subscription starts a task, which needs the runtime.
        let _context = self.runtime.enter();
        self.messages = None;
    }
}

fn failure(error: impl Display) -> Failure {
    Failure::new(format!("NATS: {error}"))
}

/// The sending end, which publishes to its subject.
pub struct Publishing {
    connection: Connection,
    subject: Subject,
    step: u64,
    window: u64,
    /// The number of messages that the receiver has not acknowledged.
    unseen: u64,
}

impl Sender for Publishing {
    fn send(&mut self, message: &[u8]) -> Result<(), Errno> {
        let message = Bytes::copy_from_slice(message);
        self.connection
            .publish(&self.subject, message, self.step == 0)?;
        if self.step == 0 {
            return Ok(());
        }
        self.unseen += 1;
        while self.unseen >= self.window {
            self.connection.next()?;
            self.unseen -= self.step;
        }
        Ok(())
    }

    fn try_send(&mut self, message: &[u8]) -> Result<(), Errno> {
        self.send(message)
    }

    fn flush(&mut self) -> Result<(), Errno> {
        // A flush of the library alone may leave some data to a task that runs only during later calls.
        self.connection.settle().map_err(|_| Errno(libc::EPIPE))
    }
}

/// The receiving end, which has subscribed to its subject.
pub struct Receiving {
    connection: Connection,
    credits: Subject,
    step: u64,
    received: u64,
}

impl Receiver for Receiving {
    fn receive(&mut self, buffer: &mut [u8]) -> Result<(), Errno> {
        let message = self.connection.next()?;
        whole(message.len())?;
        let room = buffer.get_mut(..message.len());
        room.ok_or(Errno(libc::EMSGSIZE))?.copy_from_slice(&message);
        self.received += 1;
        if self.step > 0 && self.received.is_multiple_of(self.step) {
            self.connection.publish(&self.credits, Bytes::new(), true)?;
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
}
