//! `umsg top`.
//!
//! ```text
//! sample::gather --figures--> rates.rs --View--+--> report.rs    --json, --batch
//!                                              +--> rows.rs --> app/   <--keys, mouse--> screen.rs --> draw/
//!                                                                 |
//!                                                                 +--tasks--> work.rs   a thread, for work that may wait for a lock
//! ```
//!
//! | what | where |
//! |---|---|
//! | rates, and the recent past | [`rates`] |
//! | the columns, and the forms of figures | [`columns`] |
//! | sorting, filter and tree | [`rows`] |
//! | a line per refresh for programs, a table per refresh | [`report`] |
//! | the terminal, and its events | [`screen`] |
//! | the state of the screen; the action of each key and of the mouse; the pages of one queue | [`app`] |
//! | messages, diagnosis, purge, removal and redrive | [`work`] |
//! | the pictures | [`draw`]; colours and characters: [`style`] |

mod app;
mod columns;
mod draw;
mod rates;
mod report;
mod rows;
mod screen;
mod style;
mod work;

use std::io::{IsTerminal, Write};
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;
use glob::Pattern;

use super::sample::gather::Gatherer;
use crate::cli::Cli;
use crate::failure::{Code, Failure, Result};
use crate::output::owner::Owners;
use crate::{output, place, values};
use columns::Column;
use rates::Refreshes;

/// The time after which the command tries again to open a queue that could not be opened.
const RETRY: Duration = Duration::from_secs(2);
/// The shortest interval. At a shorter interval, the figures would mostly show the cost of this command.
const SHORTEST: Duration = Duration::from_millis(50);
/// The longest interval. With this limit, the time of the next refresh stays within the range of the clock.
const LONGEST: Duration = Duration::from_secs(366 * 24 * 60 * 60);

/// Show all queues and rings live, in one screen
///
/// The list shows each queue and ring with its messages and capacity, its rates (messages per second), the age of its oldest message, the threads
/// that wait, and its dropped, expired and dead-lettered messages. The key Enter shows more of the selected queue: its rates over time, its messages
/// by priority or type, the processes that wait or hold messages, and the latest repairs. The key "?" shows all keys.
///
/// The list and the details take no lock of a queue and change no queue, so that they delay no other process. The key "m" shows the messages of a
/// queue; its receivers wait while the command copies the messages. The command changes a queue only after the keys "P" (purge: receive and drop all
/// messages), "X" (remove the queue) and "R" (send dead letters back), each after a confirmation. With --read-only, these three keys do nothing.
///
/// SND counts the threads that wait to send, and RCV those that wait to receive. LEASED counts messages that were received but not yet acknowledged.
/// B IN/s and B OUT/s are bytes per second; System V queues and rings do not count bytes. The left and right arrow keys show the columns for which
/// the screen has no room. In the tree view, a group shows the FILL of its fullest queue.
///
/// --json prints the same figures as one object per refresh, and --batch prints a table per refresh. The output ends with a signal, or after -n
/// refreshes. Without --json and --batch, standard input and standard output must be a terminal. The first refresh has no rates.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  umsg top
  umsg top --match '/orders*' --sort in --every 200ms
  umsg top --batch -n 2 --every 10s     a table with the rates of 10 seconds
  umsg top --json | jq '.queues[] | select(.fill >= 1) | .queue'")]
pub struct Top {
    /// The time between two refreshes: seconds, such as 0.5, or 500ms
    #[arg(long, short = 'd', value_name = "TIME", default_value = "1s", value_parser = values::duration)]
    every: Duration,
    /// End after this many refreshes, at least 1
    #[arg(long, short = 'n', value_name = "N", value_parser = values::times)]
    count: Option<u32>,
    /// Print a table per refresh, for people and files
    #[arg(long, short, conflicts_with = "json")]
    batch: bool,
    /// Print a JSON object per refresh, for programs: see "JSON" in umsg(1)
    #[arg(long)]
    json: bool,
    /// Show only queues and rings whose names match a pattern with * and ?; may be given several times
    #[arg(long = "match", value_name = "PATTERN", value_parser = values::pattern)]
    patterns: Vec<Pattern>,
    /// Sort by this column; numbers in descending order
    #[arg(long, value_enum, value_name = "COLUMN", default_value = "name", hide_possible_values = true, long_help = sorts())]
    sort: Column,
    /// Sort in the opposite order
    #[arg(long)]
    reverse: bool,
    /// Start in the tree view, which groups names by their prefixes
    #[arg(long, conflicts_with_all = ["batch", "json"])]
    tree: bool,
    /// Do not change any queue
    #[arg(long)]
    read_only: bool,
    /// The colours: for a dark or a light background, or none [default: by $NO_COLOR and $COLORFGBG]
    #[arg(long, value_enum, value_name = "COLOURS")]
    colors: Option<style::Colours>,
}

fn sorts() -> String {
    use clap::ValueEnum;
    let names = Column::ALL.iter().filter_map(Column::to_possible_value);
    let names: Vec<String> = names.map(|name| name.get_name().to_owned()).collect();
    format!(
        "Sort by this column, numbers in descending order. Columns: {}",
        names.join(", ")
    )
}

impl Top {
    pub fn perform(&self, cli: &Cli) -> Result {
        if self.batch || self.json {
            return self.print(cli);
        }
        if !std::io::stdin().is_terminal() || !std::io::stdout().is_terminal() {
            let line = "standard input and output are not a terminal; use --json for programs, or --batch for a table";
            return Err(Failure::new(Code::Failed, line));
        }
        screen::run(self, cli)
    }

    fn gatherer<'a>(&'a self, cli: &'a Cli) -> Gatherer<'a> {
        Gatherer::new(cli, &self.patterns, usize::MAX, RETRY)
    }

    fn interval(&self) -> Duration {
        self.every.clamp(SHORTEST, LONGEST)
    }

    fn print(&self, cli: &Cli) -> Result {
        let mut gatherer = self.gatherer(cli);
        let mut refreshes = Refreshes::default();
        let owners = Owners::new();
        let mut out = output::standard()?;
        let mut done = 0;
        while self.count.is_none_or(|count| done < count) {
            let begin = Instant::now();
            let snapshot = gatherer.sample()?;
            let directory = place::path(&snapshot.namespace);
            let mut view = refreshes.next(snapshot);
            rows::sort(&mut view, (self.sort, self.reverse), &owners);
            match self.json {
                true => report::json(&view, &directory, &owners, &mut out)?,
                false => report::table(&view, &directory, &owners, &mut out)?,
            }
            out.flush()?;
            done += 1;
            if self.count.is_none_or(|count| done < count) {
                thread::sleep(self.interval().saturating_sub(begin.elapsed()));
            }
        }
        Ok(())
    }
}
