//! Metrics over HTTP, on the loopback interface.
//!
//! One thread at a time reads the queues. Several threads send, so that a client that reads slowly does not delay other clients. If a send makes no
//! progress for [`PATIENCE`], the kernel ends it.

use std::io::{self, Write};
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use rustix::net::sockopt::{Timeout, set_socket_timeout};
use tiny_http::{Header, Method, Request, Response, Server, StatusCode};

use super::text::{Form, Text, Texts};
use crate::failure::{Code, Failure, Result, say};
use crate::output;

/// The number of threads that answer requests.
const SENDERS: usize = 4;
/// The maximum time for which a client may read nothing.
const PATIENCE: Duration = Duration::from_secs(30);

const PATH: &str = "/metrics";
const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
const PROMETHEUS: &str = "text/plain; version=0.0.4; charset=utf-8";
const PLAIN: &str = "text/plain; charset=utf-8";

/// An address of the loopback interface.
#[derive(Clone, Copy, Debug)]
pub struct Loopback(SocketAddr);

/// Parses an address and a port. Only addresses of the loopback interface are permitted: the metrics show the names of queues, which are meant for
/// users of this machine only.
pub fn loopback(text: &str) -> Result<Loopback, String> {
    let address: SocketAddr = text
        .parse()
        .map_err(|_| "give an address and a port, such as 127.0.0.1:9464".to_owned())?;
    match address.ip().is_loopback() {
        true => Ok(Loopback(address)),
        false => Err(
            "not an address of the loopback interface; give one such as 127.0.0.1:9464, and let a proxy with authentication serve other machines"
                .to_owned(),
        ),
    }
}

/// Serves until the process ends.
pub fn run(address: &Loopback, mut texts: Texts<'_>) -> Result {
    let failed = |error: &dyn std::fmt::Display| {
        let line = format_args!("{}: {error}; choose another port", address.0);
        Failure::new(Code::Failed, line)
    };
    let listener = TcpListener::bind(address.0).map_err(|error| failed(&error))?;
    // The connections that are accepted inherit this socket option.
    let _ = set_socket_timeout(&listener, Timeout::Send, Some(PATIENCE));
    let bound = listener.local_addr().map_err(|error| failed(&error))?;
    let server = Server::from_listener(listener, None).map_err(|error| failed(&error))?;
    // Opens the queues now, so that the first scrape takes no longer than later scrapes. A failure is reported to the first client.
    let _ = texts.of_now(Form::OpenMetrics);
    // The socket is ready before this line is printed, so that a program that waits for the line can connect.
    let mut out = output::standard()?;
    writeln!(out, "http://{bound}{PATH}")?;
    out.flush()?;
    drop(out);
    let site = Site {
        texts: Mutex::new(texts),
        complaint: Mutex::new(String::new()),
    };
    thread::scope(|scope| {
        for _ in 1..SENDERS {
            scope.spawn(|| site.serve(&server));
        }
        site.serve(&server)
    })
}

struct Site<'a> {
    texts: Mutex<Texts<'a>>,
    /// The last failure that was printed. The same failure is not printed again.
    complaint: Mutex<String>,
}

impl Site<'_> {
    fn serve(&self, server: &Server) -> Result {
        loop {
            let request = server.recv().map_err(|error| {
                let line = format_args!("HTTP: {error}; start the command again");
                Failure::new(Code::Failed, line)
            });
            let request = match request {
                Ok(request) => request,
                // The listening socket has failed, so the other threads get the same error.
                Err(failure) => {
                    failure.report();
                    std::process::exit(Code::Failed as i32);
                }
            };
            // An error means that the client has closed the connection.
            let _ = self.answer(request);
        }
    }

    fn answer(&self, request: Request) -> io::Result<()> {
        let path = request.url().split('?').next().unwrap_or_default();
        if !matches!(request.method(), Method::Get | Method::Head) {
            // The function answers before it reads the rest of the request's body, which may never come.
            return request.respond(refusal());
        }
        let (code, kind, text) = match path {
            PATH => self.metrics(&request),
            "/" => plain(200, &format!("The metrics of umsg are at {PATH}.")),
            _ => plain(404, &format!("The metrics are at {PATH}.")),
        };
        let headers = Header::from_bytes("Content-Type", kind).into_iter();
        let head = Response::new(
            StatusCode(code),
            headers.collect(),
            io::empty(),
            Some(text.len()),
            None,
        );
        send(request, head.with_chunked_threshold(usize::MAX), &text)
    }

    fn metrics(&self, request: &Request) -> Answer {
        let (form, kind) = match wants_openmetrics(request) {
            true => (Form::OpenMetrics, OPENMETRICS),
            false => (Form::Prometheus, PROMETHEUS),
        };
        let text = self
            .texts
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .of_now(form);
        let mut complaint = self
            .complaint
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        match text {
            Ok(text) => {
                complaint.clear();
                (200, kind, text)
            }
            Err(failure) => {
                let line = failure.line();
                if line != *complaint {
                    say(&line);
                    complaint.clone_from(&line);
                }
                plain(503, &line)
            }
        }
    }
}

/// Returns the answer to a request with a method other than GET or HEAD.
fn refusal() -> Response<io::Cursor<Vec<u8>>> {
    let refusal = Response::from_string("Use GET.\n").with_status_code(405);
    let headers = [("Content-Type", PLAIN), ("Allow", "GET, HEAD")];
    headers
        .iter()
        .filter_map(|(name, value)| Header::from_bytes(*name, *value).ok())
        .fold(refusal, Response::with_header)
}

/// An answer: a status code, a content type, and the text.
type Answer = (u16, &'static str, Arc<Text>);

fn plain(code: u16, line: &str) -> Answer {
    (code, PLAIN, Arc::new(Text::plain(format!("{line}\n"))))
}

/// Sends the head of a response, and also the text if the method is GET. The function sends the text itself, because tiny_http would send it in parts
/// of 8 KiB, with a system call for each part.
fn send(request: Request, head: Response<io::Empty>, text: &Text) -> io::Result<()> {
    let is_head_only = *request.method() == Method::Head;
    let version = request.http_version().clone();
    let mut writer = request.into_writer();
    // The empty list stands for the headers of the request. If tiny_http knew these headers, the head could announce a chunked body.
    head.raw_print(&mut writer, version, &[], true, None)?;
    if !is_head_only {
        text.write_to(&mut writer)?;
    }
    writer.flush()
}

fn wants_openmetrics(request: &Request) -> bool {
    request.headers().iter().any(|header| {
        header.field.equiv("Accept")
            && header
                .value
                .as_str()
                .contains("application/openmetrics-text")
    })
}
