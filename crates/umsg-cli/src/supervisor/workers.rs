//! Threads for the calls that block: one for each blocked call. An idle thread is kept for the next call.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, PoisonError};

type Work = Box<dyn FnOnce() + Send>;

#[derive(Default)]
struct Tasks {
    waiting: VecDeque<Work>,
    /// The number of threads that wait for work.
    idle: usize,
}

#[derive(Clone, Default)]
pub struct Workers(Arc<(Mutex<Tasks>, Condvar)>);

impl Workers {
    /// Has a thread perform `work`. Fails if there is no thread for it.
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
            let work = loop {
                match tasks.waiting.pop_front() {
                    Some(work) => break work,
                    None => tasks = news.wait(tasks).unwrap_or_else(PoisonError::into_inner),
                }
            };
            tasks.idle -= 1;
            drop(tasks);
            work();
        }
    }
}
