//! A pool of threads fed by rings. Each worker has its own ring, so no two workers compete for a queue. The results come back
//! through the ring of the asking thread.

use std::thread::JoinHandle;
use umsg::ring::{Options, Post, Ring, Sender, Until};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

const WORKERS: usize = 3;
const JOBS: u64 = 300;
/// The `flags` of a worker's last message, which has no job.
const LAST: u32 = 1;

fn main() -> Result<()> {
    let mut answers = Options::new().entries(64).create()?;
    let mut workers: Vec<(Sender, JoinHandle<Result<()>>)> = Vec::new();
    for _ in 0..WORKERS {
        let jobs = Options::new().entries(64).create()?;
        let (sender, answer) = (jobs.sender(), answers.sender());
        workers.push((sender, std::thread::spawn(move || work(jobs, answer))));
    }
    // Job n counts the primes below n hundred, and goes to worker n modulo 3.
    for job in 0..JOBS {
        let limit = job * 100;
        let post = Post::new(job).payload(&limit.to_ne_bytes());
        workers[job as usize % WORKERS].0.send(&post)?;
    }
    for (sender, _) in &workers {
        sender.send(&Post::new(0).flags(LAST))?;
    }
    // The thread wakes up once, when all answers have come.
    answers.wait(JOBS, Until::Forever)?;
    let mut counts = vec![None; JOBS as usize];
    answers.drain(|answer| counts[answer.user_data as usize] = Some(answer.res))?;
    for (_, thread) in workers {
        thread.join().expect("no panic")?;
    }
    println!(
        "primes below {}: {:?}",
        (JOBS - 1) * 100,
        counts[JOBS as usize - 1]
    );
    assert_eq!((counts[1], counts[10]), (Some(25), Some(168)));
    assert!(counts.iter().all(Option::is_some));
    Ok(())
}

fn work(mut jobs: Ring, answers: Sender) -> Result<()> {
    loop {
        let job = jobs.receive()?;
        if job.flags & LAST != 0 {
            return Ok(());
        }
        let limit = u64::from_ne_bytes(job.payload.try_into()?);
        let answer = Post::new(job.user_data).res(primes_below(limit));
        answers.send(&answer)?;
    }
}

fn primes_below(limit: u64) -> i32 {
    let is_prime = |n: &u64| {
        (2..)
            .take_while(|d| d * d <= *n)
            .all(|d| !n.is_multiple_of(d))
    };
    (2..limit).filter(is_prime).count() as i32
}
