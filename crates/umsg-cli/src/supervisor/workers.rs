//! Threads for leaders and for calls that block. A thread that has done its work waits for the next work. So the pool has only a few more threads
//! than the supervised programs have together. A thread without work ends after [`IDLE`].

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

type Work = Box<dyn FnOnce() + Send>;

/// The maximum time for which a thread waits for work.
const IDLE: Duration = Duration::from_secs(10);

#[derive(Default)]
struct Tasks {
    waiting: VecDeque<Work>,
    /// The number of threads that wait for work.
    idle: usize,
}

#[derive(Clone, Default)]
pub struct Workers(Arc<(Mutex<Tasks>, Condvar)>);

impl Workers {
    /// Makes a thread perform `work`. Fails if no thread is idle and none can be started.
    pub fn perform(&self, work: Work) -> std::io::Result<()> {
        let (tasks, news) = &*self.0;
        let mut tasks = tasks.lock().unwrap_or_else(PoisonError::into_inner);
        if tasks.idle > tasks.waiting.len() {
            tasks.waiting.push_back(work);
            news.notify_one();
            return Ok(());
        }
        drop(tasks);
        let workers = self.clone();
        std::thread::Builder::new()
            .spawn(move || workers.work(work))
            .map(drop)
    }

    fn work(&self, first: Work) {
        first();
        let (tasks, news) = &*self.0;
        loop {
            let mut tasks = tasks.lock().unwrap_or_else(PoisonError::into_inner);
            tasks.idle += 1;
            let begin = Instant::now();
            let work = loop {
                if let Some(work) = tasks.waiting.pop_front() {
                    break Some(work);
                }
                let Some(left) = IDLE.checked_sub(begin.elapsed()) else {
                    break None;
                };
                let waited = news.wait_timeout(tasks, left);
                tasks = waited.unwrap_or_else(PoisonError::into_inner).0;
            };
            tasks.idle -= 1;
            drop(tasks);
            match work {
                Some(work) => work(),
                None => return,
            }
        }
    }
}
