//! The command line.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};

use crate::suite::Suite;
use crate::trial::Trial;

/// umsg and the kernel's own message queues, side by side
#[derive(Parser, Debug)]
#[command(
    version,
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    after_help = "\
Examples:
  umsg-bench mqueue                 the table published in 2012, on this machine
  umsg-bench stream --json          throughput between two processes, for a program to read
  umsg-bench msg                    System V queues: pairs of threads on one queue, receiving by type
  umsg-bench everyday               what a program does around its messages, through the C calls
  umsg-bench everyday --only mq_notify
                                    the rows of mq_notify alone
  umsg-bench realtime --seconds 300 --rounds 5
                                    the longest calls of SCHED_FIFO threads, over five minutes a row and side
  umsg-bench peers                  what else one would use, with the same work, and who is stuck when one of two is killed
  umsg-bench all --quick            everything, in less than four minutes, with less certain figures
  umsg-bench all --json figures.json --html figures.html
                                    everything, kept, and as a page to look at
  umsg-bench report figures.json --html figures.html --markdown figures.md
                                    a page and a document from figures that were kept

The kernel allows an unprivileged process queues of 10 messages; its column is measured at the
deepest queue that it allows the caller (RLIMIT_MSGQUEUE and /proc/sys/fs/mqueue, which are never
changed), and the output says how deep that was. A System V queue of more than 16,384 bytes it makes for
root only: then in an IPC namespace that belongs to the measurement.

Peers are taken where they are installed: g++ and libboost-dev, redis-server and nats-server of Debian, which are started
for the measurement only, on a socket and a port of their own; iceoryx2 is built by `cargo xtask bench peers`. The others are
left out, with a line that says how to get them.

A ratio says how many times better umsg is than the kernel in the same run: above 1, umsg is faster.
A row is \"not resolved\" if the rounds differ too much for its figures, or its goal, to mean anything.
Progress goes to standard error.

--json without a file, or with -, writes to standard output in place of the tables. It is one object:
\"format\" (a number that changes if the meaning of a field does), \"date\", \"program\", \"machine\", \"suites\",
\"rows\", \"latencies\", and \"published\", the tables that were published with what is measured here beside them."
)]
pub struct Cli {
    #[command(subcommand)]
    pub task: Option<Task>,
    /// The suites to measure
    #[arg(required = true)]
    suite: Option<Suite>,
    /// Write the figures to a file, or to standard output in place of the tables
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = "-")]
    pub json: Option<PathBuf>,
    #[command(flatten)]
    pub pages: Pages,
    /// Shorter rounds, and fewer of the slow cases
    #[arg(long)]
    pub quick: bool,
    /// Rounds to take medians over [default: 7, with --quick 5]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: Option<u32>,
    /// Measure each row of realtime on each side for this many seconds [default: 10, with --quick 2]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=3600))]
    pub seconds: Option<u32>,
    /// Measure only the rows whose names contain this text (upper or lower case), in stream, batch, pingpong, poll, everyday or realtime
    #[arg(long, value_name = "TEXT")]
    pub only: Option<String>,
    /// The drop-in library to measure [default: libumsg_preload.so next to this program]
    #[arg(long, value_name = "FILE")]
    pub dropin: Option<PathBuf>,
    /// Give the kernel's queues no more than this many messages, even if the kernel allows more
    #[arg(long, value_name = "N", default_value_t = u32::MAX, hide_default_value = true,
          value_parser = clap::value_parser!(u32).range(2..))]
    pub kernel_depth: u32,
    /// Give up, and clean up, after this many minutes
    #[arg(long, value_name = "N", default_value_t = 60,
          value_parser = clap::value_parser!(u64).range(1..=1440))]
    minutes: u64,
}

/// Tasks of the program other than suites.
#[derive(Subcommand, Debug)]
pub enum Task {
    /// Make a page or a document from figures that --json has kept
    Report {
        /// The file that `umsg-bench all --json FILE` has written
        figures: PathBuf,
        #[command(flatten)]
        pages: Pages,
    },
    /// Measure the bridge beside its client, async-nats: builds and runs the example `speed` of umsg-bridge. UMSG_TEST_NATS names nats-server
    Bridge {
        /// The number of messages in a round
        #[arg(default_value_t = 100_000)]
        messages: u64,
        /// The number of rounds
        #[arg(default_value_t = 5)]
        rounds: u32,
    },
    /// Measure one case in this process
    #[command(hide = true)]
    Trial(Trial),
}

/// The files that show the figures.
#[derive(Args, Debug, Default)]
pub struct Pages {
    /// Write a self-contained page with tables and plots
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Write a document in Markdown
    #[arg(long, value_name = "FILE")]
    pub markdown: Option<PathBuf>,
    /// Put this text in Markdown at the end of the document
    #[arg(long, value_name = "FILE", requires = "markdown")]
    pub attempts: Option<PathBuf>,
}

impl Cli {
    /// Returns the suites to run, one after another.
    pub fn suites(&self) -> Vec<Suite> {
        self.suite.map(Suite::expand).unwrap_or_default()
    }

    /// Returns whether tables are printed. The tables are omitted if the figures go to standard output.
    pub fn tables(&self) -> bool {
        self.json
            .as_ref()
            .is_none_or(|file| file.as_os_str() != "-")
    }

    pub fn rounds(&self) -> u32 {
        self.rounds.unwrap_or(if self.quick { 5 } else { 7 })
    }

    /// Returns the maximum time of the whole run.
    pub fn deadline(&self) -> Duration {
        Duration::from_secs(self.minutes * 60)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Cli, clap::Error> {
        Cli::try_parse_from(line.split(' '))
    }

    #[test]
    fn figures_go_to_a_file_or_in_place_of_the_tables() {
        let cli = parse("umsg-bench all --json figures.json").unwrap();
        assert!(cli.tables());
        assert_eq!(cli.suites().len(), 15);
        for line in ["umsg-bench msg --json", "umsg-bench msg --json -"] {
            assert!(!parse(line).unwrap().tables(), "{line}");
        }
    }

    #[test]
    fn seconds_are_a_positive_number() {
        let cli = parse("umsg-bench realtime --seconds 300").unwrap();
        assert_eq!(
            (cli.seconds, cli.suites()),
            (Some(300), vec![Suite::Realtime])
        );
        assert!(parse("umsg-bench realtime --seconds 0").is_err());
    }

    #[test]
    fn a_report_measures_nothing() {
        let cli = parse("umsg-bench report a.json --html a.html").unwrap();
        assert!(cli.suites().is_empty());
        assert!(matches!(cli.task, Some(Task::Report { .. })));
        assert!(parse("umsg-bench").is_err());
    }
}
