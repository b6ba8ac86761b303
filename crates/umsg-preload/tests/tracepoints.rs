//! Tests the static tracepoints: bpftrace attaches to each tracepoint, and a program with the drop-in runs through each tracepoint.

mod support;

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

use support::{Namespace, compile, finish, library};
use umsg::posix::OpenOptions;
use umsg_testkit::run::{on_the_path, skip};
use umsg_testkit::users::is_root;

/// A time longer than bpftrace takes to attach.
const PATIENCE: Duration = Duration::from_secs(60);

/// The time without a line of bpftrace after which no further line is awaited.
const SILENCE: Duration = Duration::from_millis(500);

/// The number of times that the program passes each tracepoint. A blocked thread gets its message, or its room, from the other process, and passes
/// only the tracepoints of the wait. It may sleep several times in one wait.
const PASSES: &[(&str, usize)] = &[
    ("send", 3),
    ("receive", 2),
    ("msg_send", 1),
    ("msg_receive", 1),
    ("wait_begin", 2),
    ("wait_end", 2),
    ("event", 1),
];

/// The tracepoints of docs/guide/see.md, with the format of their arguments.
const TRACEPOINTS: &[(&str, &str, &str)] = &[
    ("send", "%lx %d %d", "arg0, arg1, arg2"),
    ("receive", "%lx %d %d", "arg0, arg1, arg2"),
    ("msg_send", "%lx %d %d", "arg0, arg1, arg2"),
    ("msg_receive", "%lx %d %d", "arg0, arg1, arg2"),
    ("wait_begin", "%lx %d", "arg0, arg1"),
    ("wait_end", "%lx %d", "arg0, arg1"),
    ("event", "- %d %d", "arg0, arg1"),
];

/// The arguments that bpftrace has printed for one pass of a tracepoint: an address, and numbers.
type Hit = (String, Vec<i64>);

/// A running bpftrace, which prints a line each time a process passes a tracepoint.
struct Tracer {
    process: Child,
    lines: Receiver<String>,
}

impl Tracer {
    fn start() -> Tracer {
        let library = library().display();
        let probes = TRACEPOINTS.iter().map(|(name, form, arguments)| {
            format!(
                "usdt:{library}:umsg:{name} {{ printf(\"hit %d {name} {form}\\n\", pid, {arguments}); }}\n"
            )
        });
        let script: String = probes.collect();
        // bpftrace warns about tracepoints in functions that the linker has left out, in thousands of lines.
        let mut tracer = Command::new("bpftrace");
        tracer.args(["-B", "none", "-e", &script]);
        tracer.stdout(Stdio::piped()).stderr(Stdio::null());
        let mut process = tracer.spawn().unwrap();
        let output = BufReader::new(process.stdout.take().unwrap());
        let (sender, lines) = mpsc::channel();
        thread::spawn(move || {
            let mut lines = output.lines().map_while(Result::ok);
            lines.try_for_each(|line| sender.send(line))
        });
        Tracer { process, lines }
    }

    /// Returns the tracepoints that an ended process has passed, with the arguments of each pass. bpftrace prints a pass some time later. So the
    /// function waits for the `least` number of passes of each tracepoint, at most for `patience`. Then it waits until bpftrace prints nothing.
    fn hits(
        &self,
        pid: u32,
        least: &[(&str, usize)],
        patience: Duration,
    ) -> BTreeMap<String, Vec<Hit>> {
        let mut found: BTreeMap<String, Vec<Hit>> = BTreeMap::new();
        let end = Instant::now() + patience;
        loop {
            let has = |&(name, count): &(&str, usize)| found.get(name).map_or(0, Vec::len) >= count;
            let silence = match least.iter().all(has) {
                true => SILENCE,
                false => end.saturating_duration_since(Instant::now()).max(SILENCE),
            };
            let Ok(line) = self.lines.recv_timeout(silence) else {
                break;
            };
            let words: Vec<&str> = line.split(' ').collect();
            if words.first() != Some(&"hit") || words[1] != pid.to_string() {
                continue;
            }
            let numbers = words[4..].iter().map(|word| word.parse().unwrap());
            let hit = (words[3].to_owned(), numbers.collect());
            found.entry(words[2].to_owned()).or_default().push(hit);
        }
        found
    }
}

impl Drop for Tracer {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
fn a_tracer_sees_each_tracepoint_with_its_arguments() {
    if on_the_path("bpftrace").is_none() {
        return skip("bpftrace");
    }
    let works = || {
        let mut probe = Command::new("bpftrace");
        finish(probe.args(["-e", "BEGIN { exit(); }"]))
            .status
            .success()
    };
    if !is_root() || !works() {
        eprintln!("skipped: bpftrace needs root, and a kernel with BPF and uprobes");
        return;
    }
    let namespace = Namespace::new();
    let place = umsg::Namespace::at(namespace.path()).unwrap();
    let mut options = OpenOptions::new();
    options
        .read(true)
        .write(true)
        .create(true)
        .namespace(&place);
    options.max_messages(1).message_size(64);
    let _traced = options.open("/traced").unwrap();
    options.time_to_live(Duration::from_millis(1));
    let _short = options.open("/short").unwrap();

    let tracer = Tracer::start();
    let begin = Instant::now();
    let run = |least, patience| {
        let mut program = namespace.command(compile("tracepoints"));
        let mut program = program.arg("all").spawn().unwrap();
        assert!(program.wait().unwrap().success());
        tracer.hits(program.id(), least, patience)
    };
    // bpftrace attaches to one tracepoint after another, and does not report when it has attached to all. So the test waits for hits.
    loop {
        let hits = run(&[], SILENCE);
        if hits.len() == TRACEPOINTS.len() {
            break;
        }
        assert!(begin.elapsed() < PATIENCE, "{hits:?}");
    }
    let hits = run(PASSES, PATIENCE);
    let said = format!("{hits:?}");
    let of = |name: &str| {
        hits.get(name)
            .unwrap_or_else(|| panic!("no {name}: {said}"))
    };
    let numbers = |name: &str| {
        let mut numbers: Vec<_> = of(name).iter().map(|hit| hit.1.clone()).collect();
        numbers.sort_unstable();
        numbers
    };
    // The arguments are bytes and priority, or bytes and type; the list in which the thread waits; the kind of the event and its process.
    assert_eq!(numbers("send"), [[3, 2], [4, 1], [5, 7]], "{said}");
    assert_eq!(numbers("receive"), [[4, 0], [5, 7]], "{said}");
    assert_eq!(numbers("msg_send"), [[6, 42]], "{said}");
    assert_eq!(numbers("msg_receive"), [[6, 42]], "{said}");
    // A thread may sleep several times in one wait, so repeated hits count once.
    for name in ["wait_begin", "wait_end"] {
        let mut lists = numbers(name);
        lists.dedup();
        assert_eq!(lists, [[1], [3]], "{name}: {said}");
    }
    assert_eq!(numbers("event"), [[3, 0]], "{said}");
    // Each tracepoint of a queue has the queue's address as an argument.
    let received = &of("receive")[0].0;
    let mut elsewhere = ["send", "wait_begin", "wait_end"].map(|name| {
        let hits = of(name).iter().filter(|hit| hit.1 != [3, 2]);
        hits.filter(|hit| hit.0 != *received).count()
    });
    elsewhere.sort_unstable();
    assert_eq!(elsewhere, [0; 3], "{said}");
    assert_eq!(of("msg_send")[0].0, of("msg_receive")[0].0, "{said}");
    assert_ne!(received.as_str(), "0", "{said}");
}
