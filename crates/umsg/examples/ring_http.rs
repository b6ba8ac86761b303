//! An acceptor hands TCP connections to workers: each worker has a ring, and gets the descriptor with the message.
//!
//! Without arguments, the program serves on a port of its own, requests some pages from itself, checks the answers and ends.
//! With a port (0 for any free one), it serves until it is killed: `ring_http 8080`, then `curl -i http://localhost:8080/hello`.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::thread::JoinHandle;
use umsg::ring::{Options, Post, Ring, Sender, Until};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

const WORKERS: usize = 3;
/// The `user_data` of a message with a connection, and of the message that ends a worker.
const CONNECTION: u64 = 1;
const END: u64 = 2;

struct Worker {
    sender: Sender,
    thread: JoinHandle<Result<u64>>,
}

fn main() -> Result<()> {
    let port = match std::env::args().nth(1) {
        Some(port) => port.parse()?,
        None => 0,
    };
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port))?;
    let address = listener.local_addr()?;
    println!("http://{address}/");
    let alone = std::env::args().len() == 1;
    let client = alone.then(|| std::thread::spawn(move || ask(address.port())));
    let workers = (0..WORKERS).map(hire).collect::<Result<Vec<_>>>()?;
    for (count, connection) in listener.incoming().enumerate() {
        // The worker gets a duplicate of the descriptor. The descriptor of `connection` is closed when `connection` is dropped.
        let worker = &workers[count % WORKERS];
        worker
            .sender
            .send_fd(&Post::new(CONNECTION), connection?.as_fd(), Until::Forever)?;
        if client.as_ref().is_some_and(JoinHandle::is_finished) {
            break;
        }
    }
    for worker in &workers {
        worker.sender.send(&Post::new(END))?;
    }
    let mut served = 0;
    for worker in workers {
        served += worker.thread.join().expect("no panic")?;
    }
    if let Some(client) = client {
        let asked = client.join().expect("no panic")?;
        println!("{asked} pages asked for, {served} connections served");
        assert!(served >= asked);
    }
    Ok(())
}

fn hire(number: usize) -> Result<Worker> {
    let ring = Options::new().entries(64).create()?;
    let sender = ring.sender();
    let thread = std::thread::spawn(move || work(ring, number));
    Ok(Worker { sender, thread })
}

/// Serves one connection after another, until the message that ends the worker.
fn work(mut ring: Ring, number: usize) -> Result<u64> {
    let mut served = 0;
    loop {
        let message = ring.receive()?;
        if message.user_data == END {
            return Ok(served);
        }
        let descriptor = message
            .descriptor
            .ok_or("a connection without its descriptor")?;
        // The worker ignores an error, for example of a client that has closed its connection.
        let _ = serve(TcpStream::from(descriptor), number);
        served += 1;
    }
}

fn serve(mut stream: TcpStream, worker: usize) -> std::io::Result<()> {
    let mut line = String::new();
    let mut request = BufReader::new(&stream);
    request.read_line(&mut line)?;
    // The header lines are read, too: closing the connection with unread bytes would reset it.
    let mut header = String::new();
    while request.read_line(&mut header)? > 2 {
        header.clear();
    }
    let path = line.split(' ').nth(1).unwrap_or("/").to_owned();
    let body = format!("you asked for {path}\n");
    let length = body.len();
    write!(
        stream,
        "HTTP/1.1 200 OK\r\nContent-Length: {length}\r\nConnection: close\r\nWorker: {worker}\r\n\r\n{body}"
    )
}

/// Requests pages, and then connects once more, so that the acceptor notices the end.
fn ask(port: u16) -> Result<u64> {
    let mut pages = 0;
    for page in 0..30 {
        let answer = get(port, &format!("/page/{page}"))?;
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
        assert!(
            answer.ends_with(&format!("you asked for /page/{page}\n")),
            "{answer}"
        );
        pages += 1;
    }
    std::thread::spawn(move || {
        std::thread::sleep(std::time::Duration::from_millis(50));
        TcpStream::connect((Ipv4Addr::LOCALHOST, port))
    });
    Ok(pages)
}

fn get(port: u16, path: &str) -> Result<String> {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
    write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}
