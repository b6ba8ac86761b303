//! Handlers that interrupt a thread more than once in each of its slices.

use crate::support::place::Place;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use umsg::sysv;

const KEY: i32 = 7;
/// An id that no thread can have.
const IMPOSSIBLE: u32 = 1 << 22;

extern "C" fn nothing(_: libc::c_int) {}

/// Makes a signal interrupt sleeps.
fn interrupt_by(signal: libc::c_int) {
    // SAFETY: the handler does nothing, and has no SA_RESTART. sigaction(2) allows a zeroed structure.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = nothing as *const () as usize;
        libc::sigaction(signal, &raw const action, std::ptr::null_mut());
    }
}

/// Writes an impossible owner into a queue's lock.
fn scribble(place: &Place) {
    let diagnosis = sysv::diagnose(&place.namespace, KEY).unwrap();
    let entries = std::fs::read_dir(place.path().join("msg")).unwrap();
    let files = entries.map(|entry| entry.unwrap().path());
    let mut files = files.filter(|path| path.symlink_metadata().unwrap().is_file());
    let path = files.next().expect("the queue's file");
    let file = std::fs::File::options().write(true).open(path).unwrap();
    file.write_all_at(&IMPOSSIBLE.to_ne_bytes(), diagnosis.locks[0].offset)
        .unwrap();
}

#[test]
fn a_thread_that_signals_interrupt_all_the_time_gets_a_free_lock() {
    let (place, queue) = Place::new().with_sysv_queue(KEY);
    // The other tests of this program use SIGALRM, SIGUSR1 and SIGUSR2.
    let signal = libc::SIGURG;
    interrupt_by(signal);
    scribble(&place);
    let is_done = AtomicBool::new(false);
    // SAFETY: has no preconditions.
    let me = unsafe { libc::pthread_self() };
    thread::scope(|scope| {
        let storm = scope.spawn(|| {
            let begun = Instant::now();
            let is_done = || is_done.load(Ordering::SeqCst);
            while !is_done() && begun.elapsed() < Duration::from_secs(20) {
                // SAFETY: the thread `me` outlives this thread.
                unsafe { libc::pthread_kill(me, signal) };
                thread::sleep(Duration::from_millis(5));
            }
            is_done()
        });
        queue.send(1, b"message").unwrap();
        is_done.store(true, Ordering::SeqCst);
        assert!(storm.join().unwrap(), "only once the signals had ended");
    });
}
