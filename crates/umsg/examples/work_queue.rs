//! A work queue that loses no job: workers *lease* their jobs, and one worker is killed in the middle of a job.
//!
//! ```text
//! cargo run --release --example work_queue
//! ```
//!
//! The job of the killed worker returns to the head of the queue, for another worker. A job that killed its workers three times
//! would end up in the dead-letter queue. Every job is done at least once. A program that must not repeat a job keeps a record of
//! the finished jobs, and checks the record when [`Lease::deliveries`](umsg::posix::Lease::deliveries) is more than 1.

use std::collections::BTreeMap;
use std::error::Error;
use std::path::Path;
use std::process::{Child, Command};
use std::time::Duration;
use umsg::Namespace;
use umsg::posix::{OpenOptions, Queue, ReceiveError};

const JOBS: u32 = 200;
const WORKERS: usize = 3;
/// The job during which its worker is killed.
const FATAL: u32 = 50;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<_> = std::env::args_os().collect();
    match arguments.get(1) {
        Some(directory) => work(Path::new(directory)),
        None => supervise(),
    }
}

fn open(directory: &Path, name: &str) -> Result<Queue, Box<dyn Error>> {
    let namespace = Namespace::at(directory)?;
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true);
    options.max_messages(JOBS).message_size(16); // bytes
    options.max_deliveries(3).dead_letter("/hopeless");
    Ok(options.namespace(&namespace).open(name)?)
}

/// Starts the workers, gives them jobs, kills one, and counts the jobs that were done.
fn supervise() -> Result<(), Box<dyn Error>> {
    let directory = tempfile::Builder::new()
        .prefix("umsg-work-")
        .tempdir_in("/dev/shm")?;
    let (jobs, done) = (
        open(directory.path(), "/jobs")?,
        open(directory.path(), "/done")?,
    );
    for job in 0..JOBS {
        jobs.send(&job.to_le_bytes(), 0)?;
    }
    let start = || {
        Command::new(std::env::current_exe()?)
            .arg(directory.path())
            .spawn()
    };
    let mut workers = (0..WORKERS)
        .map(|_| start())
        .collect::<Result<Vec<Child>, _>>()?;
    let mut times = BTreeMap::<u32, u32>::new();
    let mut killed = false;
    while times.len() < JOBS as usize {
        let message = done.receive_vec()?.data;
        let number =
            |at: usize| u32::from_le_bytes(message[at..at + 4].try_into().unwrap_or_default());
        if message.len() == 8 && !killed {
            // A worker reports that it is at job FATAL: the worker is killed.
            let victim = workers.iter_mut().find(|worker| worker.id() == number(4));
            victim.ok_or("a worker that is not ours")?.kill()?;
            killed = true;
        } else if message.len() == 4 {
            *times.entry(number(0)).or_default() += 1;
        }
    }
    for worker in &mut workers {
        worker.wait()?;
    }
    let status = jobs.status();
    println!(
        "{JOBS} jobs done by {WORKERS} workers, one of which was killed; {} went back to the queue, {} are left",
        status.statistics.returned, status.attributes.messages
    );
    if !killed || status.statistics.returned == 0 {
        return Err("no worker was killed in the middle of a job".into());
    }
    Ok(())
}

/// Does jobs until no job has come for a while.
fn work(directory: &Path) -> Result<(), Box<dyn Error>> {
    let (jobs, done) = (open(directory, "/jobs")?, open(directory, "/done")?);
    loop {
        let lease = match jobs.receive_lease_timeout(Duration::from_secs(2)) {
            Err(ReceiveError::TimedOut) => return Ok(()),
            other => other?,
        };
        let mut job = [0; 4];
        lease.read_at(0, &mut job);
        if u32::from_le_bytes(job) == FATAL && lease.deliveries() == 1 {
            done.send(&[job, std::process::id().to_le_bytes()].concat(), 1)?;
            std::thread::sleep(Duration::from_secs(60));
        }
        std::thread::sleep(Duration::from_micros(200)); // the work
        done.send(&job, 0)?;
        lease.acknowledge()?;
    }
}
