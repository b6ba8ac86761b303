//! `umsg bench-queue`.
//!
//! The command creates a queue and starts its own program again for each sender and receiver, so that they are processes, as in real use. Then it
//! adds up the results of these processes.
//!
//! | what | where |
//! |---|---|
//! | a sender, a receiver, and the lines between them and the command | [`role`] |
//! | latencies | [`latency`] |
//! | the result as text and as JSON | [`report`] |

mod latency;
mod report;
mod role;

use std::io::{BufRead, BufReader, Write};
use std::os::fd::AsFd;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;
use umsg::Namespace;
use umsg::posix::{OpenOptions, Queue};

use crate::cli::Cli;
use crate::ending::{Ending, wait_for};
use crate::failure::{Code, Explain, Failure, Result};
use crate::output::{self, Format, json};
use crate::waiting::Wait;
use crate::{inherited, place, values};
use report::Report;
use role::{Received, Role, Sent};

/// The maximum time until a process is ready, and until it ends after the last message.
const PATIENCE: Duration = Duration::from_secs(30);
/// The interval at which the command checks for a signal.
const GLANCE: Duration = Duration::from_millis(50);
/// The time from the start signal to the first message. By then, each process is awake.
const START: Duration = Duration::from_millis(50);

/// Send messages through a new queue at a given rate, and print how long they take
///
/// The command creates a POSIX queue with the given depth. One process sends messages of the given size at the given rate, and another process
/// receives the messages. --senders and --receivers start more processes. The command prints the distribution of the latency, and removes the queue
/// at the end.
///
/// "latency" is the time from the call that sends a message to the end of the call that receives it. The rate gives each send a planned time. "from
/// schedule" is the time from the planned time of the send to the end of the receive. This time includes the delay of a late sender. A sender is late
/// if the queue is full or the machine is busy. If the two times differ much, the rate is too high for this depth, or for this machine.
///
/// "blocked" counts sends that found the queue full, and receives that found the queue empty. The CPU times of the senders and of the receivers
/// include the time that they spin. Senders also use CPU time to keep the rate.
///
/// Measure on the machine and at the load of your programs. The receivers do nothing with the messages; a real program adds the time of its own work.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  umsg bench-queue
  umsg bench-queue --rate 200K --size 1K --depth 4K --time 10
  umsg bench-queue --rate 0                as fast as possible
  umsg bench-queue --receivers 4 --wait blocking --json")]
pub struct BenchQueue {
    /// Messages per second, of all senders together; 0: as many as the queue accepts
    #[arg(long, short, value_name = "N", default_value = "10000", value_parser = values::size, allow_hyphen_values = true)]
    rate: u64,
    /// The size of a message in bytes, at least 16
    #[arg(long, short, value_name = "BYTES", default_value = "64", value_parser = size)]
    size: u32,
    /// The length of the measurement
    #[arg(long, short, value_name = "TIME", default_value = "5s", value_parser = time)]
    time: Duration,
    /// The depth of the queue: its maximum number of messages
    #[arg(long, short, value_name = "N", default_value = "1024", value_parser = values::small_size)]
    depth: u32,
    /// The number of processes that send
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=64))]
    senders: u32,
    /// The number of processes that receive
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=64))]
    receivers: u32,
    /// How the processes wait
    #[arg(long, value_enum, value_name = "HOW", default_value_t = Wait::Adaptive)]
    wait: Wait,
    #[command(flatten)]
    format: Format,
    /// The role of this process, if another `umsg bench-queue` has started it
    #[arg(long, value_enum, hide = true, requires = "queue")]
    role: Option<Role>,
    #[arg(long, hide = true)]
    queue: Option<String>,
}

/// Parses the size of a message. Each message carries two timestamps, so its size has a minimum.
fn size(text: &str) -> Result<u32, String> {
    match values::small_size(text)? {
        bytes if (bytes as usize) < role::HEAD => Err(format!(
            "a message carries two timestamps: give {} bytes or more",
            role::HEAD
        )),
        bytes => Ok(bytes),
    }
}

fn time(text: &str) -> Result<Duration, String> {
    match values::duration(text)? {
        time if time.is_zero() => Err("give a time above 0, such as 5s".to_owned()),
        time if time > Duration::from_secs(24 * 3600) => {
            Err("give a time of at most a day".to_owned())
        }
        time => Ok(time),
    }
}

/// A sender or receiver process, with its input and output. The process is killed if the command ends first.
struct Part {
    child: Child,
    output: BufReader<ChildStdout>,
}

impl Drop for Part {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl BenchQueue {
    pub fn perform(&self, cli: &Cli) -> Result {
        let namespace = place::namespace(cli)?;
        if let (Some(role), Some(name)) = (self.role, &self.queue) {
            return role.perform(&namespace, name, &self.load());
        }
        self.format.check()?;
        let ending = Ending::prepare().map_err(|error| failed(&error))?;
        let report = thread::scope(|scope| {
            let worker = scope.spawn(|| {
                let report = self.measure(&namespace, &ending);
                ending.finish();
                report
            });
            ending.supervise();
            worker
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })?;
        let mut out = output::standard()?;
        match self.format.json {
            true => json::print(&mut out, &report)?,
            false => report.print(&mut out)?,
        }
        Ok(out.flush()?)
    }

    /// Returns the settings of each process. The senders share the rate equally.
    fn load(&self) -> role::Load {
        role::Load {
            rate: self.rate as f64 / f64::from(self.senders),
            size: self.size as usize,
            time: self.time,
            waiting: self.wait.into(),
        }
    }

    fn measure(&self, namespace: &Namespace, ending: &Ending) -> Result<Report> {
        let name = format!("/umsg-bench-queue-{}", std::process::id());
        // The queue is removed when its last user ends, even if all users are killed.
        let queue = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .exclusive(true)
            .max_messages(self.depth)
            .message_size(self.size)
            .remove_on_last_close(true)
            .close_with_last_producer(true)
            .namespace(namespace)
            .open(&name)
            .map_err(|error| Failure::of(&name, error))?;
        let start = |role| self.start(role, namespace, &name, ending);
        let parts = |role, count: u32| (0..count).map(|_| start(role)).collect::<Result<Vec<_>>>();
        let mut receivers = parts(Role::Receive, self.receivers)?;
        let mut senders = parts(Role::Send, self.senders)?;
        for part in receivers.iter_mut().chain(&mut senders) {
            part.line(ending, PATIENCE)?;
        }
        let begin = role::now() + START.as_nanos() as u64;
        for part in &mut senders {
            part.tell(begin)?;
        }
        let patience = self.time + START + PATIENCE;
        let sent: Vec<Sent> = lines(&mut senders, ending, patience)?;
        let received: Vec<Received> = lines(&mut receivers, ending, patience)?;
        Ok(self.report(&queue, &sent, received))
    }

    fn start(
        &self,
        role: Role,
        namespace: &Namespace,
        name: &str,
        ending: &Ending,
    ) -> Result<Part> {
        let mut command = Command::new("/proc/self/exe");
        let number = |number: u64| number.to_string();
        command
            .arg("--dir")
            .arg(namespace.path())
            .arg("bench-queue");
        command.args([
            "--queue",
            name,
            "--role",
            role.name(),
            "--wait",
            self.wait.name(),
        ]);
        command.args([
            "--rate",
            &number(self.rate),
            "--size",
            &number(self.size.into()),
        ]);
        command.args(["--senders", &number(self.senders.into())]);
        command.args(["--time", &format!("{}", self.time.as_secs_f64())]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        inherited::restore_on_exec(&mut command);
        inherited::end_with_this_thread(&mut command);
        ending.unblock_in(&mut command);
        let mut child = command.spawn().map_err(|error| failed(&error))?;
        let output = child.stdout.take();
        let output = output
            .ok_or_else(|| failed(&"there is no pipe from the sender or receiver process"))?;
        let output = BufReader::new(output);
        Ok(Part { child, output })
    }

    fn report(&self, queue: &Queue, sent: &[Sent], received: Vec<Received>) -> Report {
        let counted = queue.status().statistics;
        let mut report = Report {
            rate: self.rate,
            size: self.size,
            depth: self.depth,
            senders: self.senders,
            receivers: self.receivers,
            wait: self.wait.name(),
            seconds: sent.iter().fold(0.0, |most, sent| sent.seconds.max(most)),
            sent: sent.iter().map(|sent| sent.messages).sum(),
            received: received.iter().map(|received| received.messages).sum(),
            sends_blocked: counted.sends_blocked,
            receives_blocked: counted.receives_blocked,
            sender_cpu_seconds: sent.iter().map(|sent| sent.cpu_seconds).sum(),
            receiver_cpu_seconds: received.iter().map(|received| received.cpu_seconds).sum(),
            ..Report::default()
        };
        let mut latency = latency::Latencies::new();
        let mut from_schedule = latency::Latencies::new();
        for received in received {
            latency.add(&received.latency);
            from_schedule.add(&received.from_schedule);
        }
        report.latency = latency.figures();
        report.from_schedule = from_schedule.figures();
        report
    }
}

impl Part {
    /// Returns the next line of the process, unless a signal comes first.
    fn line(&mut self, ending: &Ending, patience: Duration) -> Result<String> {
        let begin = Instant::now();
        while self.output.buffer().is_empty()
            && !wait_for([self.output.get_ref().as_fd()], Some(GLANCE))[0]
        {
            if ending.is_asked() {
                return Err(Failure::new(Code::Failed, "ended by a signal"));
            }
            if begin.elapsed() > patience {
                return Err(failed(&"a sender or receiver process does not answer"));
            }
        }
        let mut line = String::new();
        match self.output.read_line(&mut line) {
            Ok(0) if ending.is_asked() => Err(Failure::new(Code::Failed, "ended by a signal")),
            // The process has already printed the reason on standard error.
            Ok(0) => Err(failed(&"a sender or receiver process has ended early")),
            Ok(_) => Ok(line),
            Err(error) => Err(failed(&error)),
        }
    }

    /// Tells a sender when to begin.
    fn tell(&mut self, begin: u64) -> Result {
        let input = self.child.stdin.take();
        let mut input = input.ok_or_else(|| failed(&"a process has no input"))?;
        writeln!(input, "{begin}").map_err(|error| failed(&error))
    }
}

/// Reads the result of each process.
fn lines<T: serde::de::DeserializeOwned>(
    parts: &mut [Part],
    ending: &Ending,
    patience: Duration,
) -> Result<Vec<T>> {
    let one = |part: &mut Part| {
        let line = part.line(ending, patience)?;
        serde_json::from_str(&line).map_err(|error| failed(&error))
    };
    parts.iter_mut().map(one).collect()
}

fn failed(error: &dyn std::fmt::Display) -> Failure {
    let line = format_args!("bench-queue: {error}; run the command again");
    Failure::new(Code::Failed, line)
}

/// Converts an error of a queue in a sender or receiver process to a failure.
fn of_queue(error: impl Explain) -> Failure {
    Failure::of("bench-queue", error)
}
