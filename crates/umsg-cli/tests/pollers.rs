//! Tests programs under `umsg run` that sleep in epoll_wait while the command delays messages, and while processes of the command are killed.

mod support;

use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, Command};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use support::compiler::Workshop;
use support::{Site, end, start};
use umsg_testkit::artefacts::drop_in;

const STUCK: Duration = Duration::from_secs(60);

/// A program that prints the messages of a queue until the end of the message stream. A second argument selects edge-triggered events.
const POLLER: &str = r#"#include <errno.h>
#include <fcntl.h>
#include <mqueue.h>
#include <stdio.h>
#include <sys/epoll.h>

int main(int argc, char **argv)
{
    mqd_t queue = mq_open(argv[1], O_RDONLY | O_NONBLOCK);
    int set = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN | (argc > 2 ? EPOLLET : 0)};
    char buffer[8192];
    if (queue == (mqd_t)-1 || epoll_ctl(set, EPOLL_CTL_ADD, queue, &event) != 0)
        return 1;
    puts("polls");
    for (;;) {
        fflush(stdout);
        /* A stop interrupts epoll_wait. */
        if (epoll_wait(set, &event, 1, -1) != 1 && errno != EINTR)
            return 2;
        ssize_t length;
        while ((length = mq_receive(queue, buffer, sizeof buffer, NULL)) >= 0)
            printf("%.*s\n", (int)length, buffer);
        if (errno == EPIPE)
            return 0;
        if (errno != EAGAIN)
            return 3;
    }
}
"#;

/// A site with a queue, and the program that polls the queue.
struct Stage {
    site: Site,
    program: PathBuf,
    _workshop: Workshop,
}

impl Stage {
    fn new(attributes: &[&str]) -> Stage {
        let (site, workshop) = (Site::new(), Workshop::new());
        site.umsg(&[&["create", "/q"], attributes].concat()).text();
        Stage {
            site,
            program: workshop.compile("poller", POLLER, &[]),
            _workshop: workshop,
        }
    }

    /// Starts the program, and waits until it polls the queue.
    fn poll(&self, arguments: &[&str]) -> Poller {
        let program = self.program.to_str().unwrap();
        let all = [&["run", "--", program, "/q"], arguments].concat();
        let mut command = self.site.command(&all);
        let mut child = start(command.env("UMSG_PRELOAD", drop_in()));
        let (line, lines) = channel();
        let output = BufReader::new(child.stdout.take().unwrap());
        thread::spawn(move || output.lines().try_for_each(|text| line.send(text.unwrap())));
        let poller = Poller { child, lines };
        assert_eq!(poller.line(), "polls");
        poller
    }

    fn send(&self, message: &str, options: &[&str]) {
        let all = [&["send", "/q", message], options].concat();
        self.site.umsg(&all).text();
    }

    /// Starts a worker that leases the next message until the worker is killed.
    fn lease(&self) -> Child {
        let mut command = self
            .site
            .command(&["recv", "/q", "--exec", "sleep", "1000"]);
        let worker = start(&mut command);
        self.site.wait_for("/q", "leased", 1);
        worker
    }
}

/// The polling program. `umsg run` has executed it in its own process.
struct Poller {
    child: Child,
    lines: Receiver<String>,
}

impl Poller {
    fn line(&self) -> String {
        self.lines
            .recv_timeout(STUCK)
            .expect("the poller is asleep")
    }

    /// Waits until the program sleeps in epoll_wait. Before this, it may have a lock of the queue.
    fn wait_for_sleep(&self) {
        let switches = || {
            let status = format!("/proc/{}/status", self.child.id());
            let status = std::fs::read_to_string(status).unwrap();
            let mut lines = status.lines();
            let count = lines.find(|line| line.starts_with("voluntary_ctxt_switches:"));
            let count = count.map(str::to_owned);
            count.filter(|_| status.contains("\nState:\tS"))
        };
        let start = Instant::now();
        loop {
            let before = switches();
            thread::sleep(Duration::from_millis(20));
            if before.is_some() && before == switches() {
                return;
            }
            assert!(start.elapsed() < STUCK, "the poller stays awake");
        }
    }

    fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        let status = Command::new("kill").args(["-s", name, &pid]).status();
        assert!(status.unwrap().success());
    }
}

impl Drop for Poller {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn kill(mut child: Child) {
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn a_program_in_epoll_wait_is_told_of_messages_that_are_delayed_later() {
    for arguments in [&[][..], &["edges"]] {
        let stage = Stage::new(&[]);
        let poller = stage.poll(arguments);
        for message in ["first", "second"] {
            stage.send(message, &["--after", "200ms"]);
            assert_eq!(poller.line(), message);
        }
    }
}

#[test]
fn a_program_in_epoll_wait_is_told_that_a_worker_was_killed() {
    let stage = Stage::new(&[]);
    stage.send("job", &[]);
    let worker = stage.lease();
    let poller = stage.poll(&[]);
    kill(worker);
    assert_eq!(poller.line(), "job");
}

#[test]
fn a_program_that_polls_before_the_first_lease_is_told_that_the_worker_was_killed() {
    for arguments in [&[][..], &["edges"]] {
        let stage = Stage::new(&[]);
        let poller = stage.poll(arguments);
        // The poller is stopped until the worker has leased the message. Otherwise the poller would receive it.
        poller.wait_for_sleep();
        poller.signal("STOP");
        stage.send("job", &[]);
        let worker = stage.lease();
        poller.signal("CONT");
        // In this time, the poller checks the queue, finds it empty, and sleeps.
        thread::sleep(Duration::from_millis(100));
        kill(worker);
        assert_eq!(poller.line(), "job");
    }
}

#[test]
fn the_end_of_a_killed_producer_is_told_and_shown_and_refuses_messages() {
    let stage = Stage::new(&["--close-with-last-producer"]);
    let produce = || {
        let producer = ["send", "/q", "--lines", "--producer"];
        let mut child = start(&mut stage.site.command(&producer));
        let input = child.stdin.as_mut().unwrap();
        input.write_all(b"line\n").unwrap();
        child
    };
    let mut poller = stage.poll(&[]);
    let producer = produce();
    assert_eq!(poller.line(), "line");
    kill(producer);
    assert_eq!(poller.lines.recv_timeout(STUCK).ok(), None, "its end");
    assert!(poller.child.wait().unwrap().success());

    // No process polls or receives.
    stage.site.umsg(&["close", "/q", "--reopen"]).text();
    let producer = produce();
    stage.site.wait_for("/q", "messages", 1);
    kill(producer);
    let status = stage.site.umsg(&["stat", "/q", "--json"]).json();
    assert_eq!(
        (&status["send_closed"], &status["producers"]),
        (&true.into(), &0.into())
    );
    let refused = end(start(&mut stage.site.command(&["send", "/q", "late"])));
    assert_ne!(refused.code, Some(0), "{refused:?}");
    assert_eq!(stage.site.umsg(&["recv", "/q", "--all"]).text(), "line\n");
}
