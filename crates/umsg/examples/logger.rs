//! A logger that never makes its program wait: when the collector does not keep up, the oldest of the least important
//! lines is dropped, and counted.
//!
//! ```text
//! cargo run --release --example logger
//! ```

use std::error::Error;
use std::time::{Duration, Instant};
use umsg::Namespace;
use umsg::posix::{OnFull, OpenOptions, ReceiveError};

const LINES: u32 = 20_000;
const DEBUG: u32 = 1;
const ERROR: u32 = 5;

type Fallible<T> = Result<T, Box<dyn Error + Send + Sync>>;

fn main() -> Fallible<()> {
    let directory = tempfile::Builder::new()
        .prefix("umsg-log-")
        .tempdir_in("/dev/shm")?;
    let namespace = Namespace::at(directory.path())?;
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true);
    options.max_messages(100).message_size(120); // bytes
    options.on_full(OnFull::DropOldest).namespace(&namespace);
    let log = options.open("/log")?;

    let (collected, errors) = std::thread::scope(|scope| -> Fallible<(u32, u32)> {
        let collector = scope.spawn(|| collect(&log));
        let mut longest = Duration::ZERO;
        for line in 0..LINES {
            let priority = if line % 1000 == 7 { ERROR } else { DEBUG };
            let begun = Instant::now();
            log.send(format!("line {line}").as_bytes(), priority)?;
            longest = longest.max(begun.elapsed());
        }
        println!("{LINES} lines logged; the longest took {longest:?}");
        collector.join().map_err(|_| "the collector panicked")?
    })?;

    let dropped = log.status().statistics.dropped;
    println!("{collected} collected, {errors} errors among them; {dropped} dropped");
    if u64::from(collected) + dropped != u64::from(LINES) || errors != LINES / 1000 {
        return Err("lines are missing".into());
    }
    Ok(())
}

/// Processes the lines slowly. Returns the number of lines and of errors.
fn collect(log: &umsg::posix::Queue) -> Fallible<(u32, u32)> {
    let (mut collected, mut errors) = (0, 0);
    let mut buffer = [0; 120];
    loop {
        match log.receive_timeout(&mut buffer, Duration::from_secs(1)) {
            Ok(received) => {
                collected += 1;
                errors += u32::from(received.priority == ERROR);
            }
            Err(ReceiveError::TimedOut) => return Ok((collected, errors)),
            Err(error) => return Err(error.into()),
        }
        std::thread::sleep(Duration::from_micros(50));
    }
}
