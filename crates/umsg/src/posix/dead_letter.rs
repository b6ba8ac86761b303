//! The dead-letter queue: where a queue's messages go that it could not keep or deliver.

use super::options::OpenOptions;
use super::queue::Queue;
use crate::in_place::InPlace;
use crate::namespace::Namespace;
use crate::queue::{Chore, Engine, Grip};
use crate::sys::clock::{self, Deadline};
use crate::sys::thread;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// How long each step of a move waits for a lock whose owner is stopped: the calls that make it have deadlines.
const PATIENCE: Duration = Duration::from_millis(10);

/// Messages that a call moves at most: they are not what it was made for.
const MOST: u32 = 16;

/// Sends what an engine has set aside to the dead-letter queue.
struct Mover {
    name: OsString,
    namespace: Namespace,
    /// CLOCK_MONOTONIC of the last attempt that failed, in nanoseconds: one a tick of the coarse clock is enough.
    failed_at: AtomicU64,
    /// Moves whose end could not be noted yet, and whether they succeeded.
    unfinished: Mutex<Vec<(Grip, bool)>>,
}

/// The chore of moving, for a queue that has a dead-letter queue.
pub(super) fn chore(engine: &Engine) -> Option<Chore> {
    let mover = Mover {
        name: OsString::from_vec(engine.policy().dead_letter.clone()?),
        namespace: engine.segment().namespace()?.clone(),
        failed_at: AtomicU64::new(0),
        unfinished: Mutex::default(),
    };
    Some(Chore::new(move |engine| mover.run(engine)))
}

impl Mover {
    fn run(&self, engine: &Engine) {
        let now = clock::monotonic_coarse();
        // Relaxed: how often to try.
        if self.failed_at.load(Ordering::Relaxed) == now {
            return;
        }
        if self.move_some(engine).is_none() {
            self.failed_at.store(now, Ordering::Relaxed);
        }
    }

    /// None if something can't be done now: it stays set aside.
    fn move_some(&self, engine: &Engine) -> Option<()> {
        self.finish(engine)?;
        // Opened each time: who keeps it would go on sending to one that was removed.
        let queue = self.open()?;
        let me = thread::current();
        for _ in 0..MOST {
            let by = Deadline::after(PATIENCE);
            let Some(grip) = engine.begin_to_move(me, by).ok()? else {
                return Some(());
            };
            let sent = send(engine, &grip, &queue).is_some();
            // It is in two queues if the process dies between.
            self.end(engine, grip, sent)?;
            sent.then_some(())?;
        }
        Some(())
    }

    /// The dead-letter queue. It was there when the queue was created; who finds it missing does not make another one,
    /// because that would belong to whoever comes first.
    fn open(&self) -> Option<Queue> {
        let mut options = OpenOptions::new();
        options
            .write(true)
            .counted(false)
            .namespace(&self.namespace);
        options.open(&self.name).ok()
    }

    /// Notes the end of a move, now or later.
    fn end(&self, engine: &Engine, grip: Grip, sent: bool) -> Option<()> {
        let by = Deadline::after(PATIENCE);
        if engine.end_move(thread::current(), &grip, sent, by).is_ok() {
            return Some(());
        }
        self.unfinished.try_lock().ok()?.push((grip, sent));
        None
    }

    fn finish(&self, engine: &Engine) -> Option<()> {
        loop {
            // Not waited for: a signal handler may have interrupted whoever holds it.
            let (grip, sent) = match self.unfinished.try_lock().ok()?.pop() {
                Some(unfinished) => unfinished,
                None => return Some(()),
            };
            self.end(engine, grip, sent)?;
        }
    }
}

/// Sends a copy. What the dead-letter queue has set aside itself is left where it is: two queues may be each other's.
fn send(engine: &Engine, grip: &Grip, to: &Queue) -> Option<()> {
    let mut data = vec![0; grip.len];
    InPlace::new(engine.place(grip).ok()?, grip.len).read_at(0, &mut data);
    to.check_to_send(data.len()).ok()?;
    let by = Deadline::after(PATIENCE);
    to.engine
        .try_send(thread::current(), &data, grip.key, by)
        .ok()
}
