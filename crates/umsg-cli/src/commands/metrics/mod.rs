//! `umsg metrics`.
//!
//! | what | where |
//! |---|---|
//! | the queues and rings, and their figures | [`sample`](super::sample) |
//! | the names, the help and the figures of the metrics | [`families`] |
//! | their text | [`text`] |
//! | HTTP | [`serve`] |

mod bridges;
mod families;
mod serve;
mod text;

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;
use glob::Pattern;

use super::sample::gather::Gatherer;
use crate::cli::Cli;
use crate::failure::{Code, Failure, Result, say};
use crate::output::new_file::{Bounded, NewFile};
use crate::{output, values};
use serve::Loopback;
use text::{Form, Text, Texts};

/// The time after which the command tries again to open a queue that could not be opened.
const RETRY: Duration = Duration::from_secs(60);

/// Print the state of all queues and rings as metrics for Prometheus
///
/// Without an option, the command prints the metrics once, in the OpenMetrics text format. With --write, the command writes the metrics to a file for
/// the textfile collector of node_exporter; the file is replaced when the new one is complete. With --listen, the command serves the metrics over
/// HTTP at /metrics until a signal ends the command.
///
/// The command takes no lock of a queue, changes no queue and receives no message, so it delays no other process. The counters are stored in the
/// queues, so a restart of this command does not reset them. The command opens each queue once and keeps it mapped as long as the queue exists.
///
/// Each queue has the labels "kind" (posix, sysv or ring) and "queue". "queue" is the queue's name: /orders, key:0x00001234, id:32769 for a System V
/// queue without a key, or ring:/jobs. --match and --max-queues limit the number of queues. "umsg_queues_left_out" counts the queues without metrics,
/// by reason: "limit" (--max-queues), "permission", "corrupted", "name" (not UTF-8) and "unusable". After a minute, the command tries again to open
/// the queues that it could not open. Queues that --match excludes are not counted.
///
/// If the command has no permission to read a queue, the queue has no metrics. For the queues of all users, run the command as root.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  umsg metrics                          print all metrics once
  umsg metrics --match '/orders*' --match 'ring:*'
  umsg metrics --listen 127.0.0.1:9464  for Prometheus; port 0 takes a free port
  umsg metrics --write /var/lib/prometheus/node-exporter/umsg.prom --every 15s")]
pub struct Metrics {
    /// Serve the metrics over HTTP at this address of the loopback interface, such as 127.0.0.1:9464
    #[arg(long, value_name = "ADDRESS", value_parser = serve::loopback)]
    listen: Option<Loopback>,
    /// Write the metrics to this file, which is replaced if it exists
    #[arg(long, value_name = "FILE", conflicts_with = "listen")]
    write: Option<PathBuf>,
    /// With --write: write the file again after each interval of this length, such as 15 (seconds) or 1m
    #[arg(long, value_name = "TIME", value_parser = values::duration, requires = "write")]
    every: Option<Duration>,
    /// Print metrics only of queues and rings whose label "queue" matches a pattern with * and ?; may be given several times
    #[arg(long = "match", value_name = "PATTERN", value_parser = values::pattern)]
    patterns: Vec<Pattern>,
    /// Print metrics of at most this many queues and rings, the first ones by kind and name
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = values::size)]
    max_queues: u64,
}

impl Metrics {
    pub fn perform(&self, cli: &Cli) -> Result {
        let most = usize::try_from(self.max_queues).unwrap_or(usize::MAX);
        let mut texts = Texts::of(Gatherer::new(cli, &self.patterns, most, RETRY));
        match (&self.listen, &self.write) {
            (Some(address), _) => serve::run(address, texts),
            (None, Some(path)) => self.write(path, &mut texts),
            (None, None) => {
                let mut out = output::standard()?;
                texts.of_now(Form::OpenMetrics)?.write_to(&mut out)?;
                Ok(out.flush()?)
            }
        }
    }

    fn write(&self, path: &Path, texts: &mut Texts<'_>) -> Result {
        write(path, texts)?;
        let Some(interval) = self.every else {
            return Ok(());
        };
        let mut complaint = String::new();
        loop {
            let begin = Instant::now();
            thread::sleep(interval);
            // The error is printed, and the command continues, because the cause may end: a full disk, or a namespace that is created again.
            let line = write(path, texts).map_or_else(|failure| failure.line(), |()| String::new());
            if line != complaint && !line.is_empty() {
                say(&line);
            }
            complaint = line;
            // A pause of 10 ms, so that an interval of 0 does not occupy a processor.
            if begin.elapsed() < Duration::from_millis(10) {
                thread::sleep(Duration::from_millis(10));
            }
        }
    }
}

/// Writes all metrics to a file. The textfile collector reads the older text format of Prometheus.
fn write(path: &Path, texts: &mut Texts<'_>) -> Result {
    let text = texts.of_now(Form::Prometheus)?;
    store(path, &text).map_err(|error| {
        let line = format_args!("{}: {error}; choose another file", path.display());
        Failure::new(Code::Failed, line)
    })
}

fn store(path: &Path, text: &Text) -> io::Result<()> {
    // If the path is a symbolic link, the target of the link is replaced. A device or a pipe can't be replaced.
    let target = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    if fs::metadata(&target).is_ok_and(|metadata| !metadata.is_file()) {
        return text.write_to(&mut File::options().write(true).open(&target)?);
    }
    let new = NewFile::beside(&target, "metrics", 0o644)?;
    text.write_to(&mut Bounded::new(&new.file))?;
    new.replace(&target)
}
