//! The examples run, and check themselves. A whole `cargo test` builds them as well; for `--test examples` alone, run `cargo
//! build --examples` first.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

fn path(example: &str) -> PathBuf {
    // The examples are beside the directory of the tests.
    let tests = std::env::current_exe().unwrap();
    let built = tests.ancestors().nth(2).unwrap();
    built.join("examples").join(example)
}

fn run(example: &str) {
    let path = path(example);
    let output = Command::new(&path)
        .output()
        .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let text = String::from_utf8_lossy(&output.stdout);
    eprintln!("{text}");
    assert!(
        output.status.success(),
        "{}: {}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
}

#[test]
fn a_killed_worker_loses_no_job() {
    run("work_queue");
}

#[test]
fn a_logger_never_waits_and_counts_what_it_drops() {
    run("logger");
}

#[test]
fn images_go_through_three_processes_in_place() {
    run("image_pipeline");
}

#[test]
fn connections_are_handed_to_workers_and_answered() {
    run("ring_http");
}

#[test]
fn a_pool_of_threads_is_fed_by_rings() {
    run("ring_pool");
}

#[test]
fn a_ring_and_an_io_uring_are_waited_for_together() {
    run("ring_and_io_uring");
}

#[cfg(feature = "tokio")]
#[test]
fn clients_are_answered_by_tasks_of_tokio() {
    run("async_queue");
}

/// A server that serves until it is dropped.
struct Server(Child);

impl Server {
    /// Starts the server, and returns it with its address.
    fn start() -> (Server, String) {
        let mut server = Command::new(path("ring_http"));
        let mut server = server.arg("0").stdout(Stdio::piped()).spawn().unwrap();
        let mut url = String::new();
        let mut said = BufReader::new(server.stdout.take().unwrap());
        said.read_line(&mut url).unwrap();
        (Server(server), url.trim_end().to_owned())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

/// Requests pages, each by a separate connection. Returns curl's output with the headers. None without curl.
fn curl(arguments: &[&str], url: &str) -> Option<String> {
    let mut curl = Command::new("curl");
    // The user's settings and a proxy have no effect.
    curl.args(["-q", "--noproxy", "*", "--silent", "--show-error", "--fail"]);
    curl.args(["--max-time", "60", "--include"]);
    match curl.args(arguments).arg(url).output() {
        Ok(output) => {
            let errors = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{}: {errors}", output.status);
            Some(String::from_utf8(output.stdout).unwrap())
        }
        Err(error) => {
            assert!(std::env::var_os("CI").is_none(), "curl: {error}");
            let _ = writeln!(std::io::stderr(), "skipped: curl: {error}");
            None
        }
    }
}

#[test]
fn curl_is_answered_by_each_worker_in_turn() {
    let (_server, url) = Server::start();
    let Some(said) = curl(&[], &format!("{url}page/[1-9]")) else {
        return;
    };
    let workers: Vec<&str> = said
        .lines()
        .filter_map(|line| line.strip_prefix("Worker: "))
        .collect();
    assert_eq!(workers, ["0", "1", "2", "0", "1", "2", "0", "1", "2"]);
    for page in 1..=9 {
        let body = format!("you asked for /page/{page}\n");
        assert_eq!(said.matches(&body).count(), 1, "{said}");
    }
}

#[test]
fn many_connections_of_curl_at_once_are_all_answered() {
    let (_server, url) = Server::start();
    let at_once = ["--parallel", "--parallel-immediate", "--parallel-max", "25"];
    let Some(said) = curl(&at_once, &format!("{url}[1-100]?q=[a-b]")) else {
        return;
    };
    assert_eq!(said.matches("HTTP/1.1 200 OK").count(), 200);
    assert_eq!(said.matches("you asked for /").count(), 200);
}
