//! The calls by which the kernel learns which lock a thread holds when it dies.

use crate::support::child::{Child, Exit};
use crate::support::place::Place;
use crate::support::seccomp::refuse;
use std::cell::UnsafeCell;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
#[cfg(feature = "crash-points")]
use std::time::Duration;
use umsg::SegmentError;
use umsg::posix::{OpenError, OpenOptions, Queue};

use crate::support::shared::Shared;

const REFUSALS: [i32; 4] = [libc::ENOSYS, libc::EPERM, libc::EINVAL, libc::EACCES];

/// A robust mutex of the program's own.
struct Robust(UnsafeCell<libc::pthread_mutex_t>);

// SAFETY: the type is a mutex.
unsafe impl Sync for Robust {}

impl Robust {
    fn init(&self) {
        let mut attributes = MaybeUninit::uninit();
        // SAFETY: the attributes are initialised before they are used, and the mutex before any thread locks it.
        unsafe {
            libc::pthread_mutexattr_init(attributes.as_mut_ptr());
            libc::pthread_mutexattr_setrobust(attributes.as_mut_ptr(), libc::PTHREAD_MUTEX_ROBUST);
            assert_eq!(
                libc::pthread_mutex_init(self.0.get(), attributes.as_ptr()),
                0
            );
        }
    }

    fn lock(&self) -> i32 {
        // SAFETY: the mutex was initialised, and stays where it is.
        unsafe { libc::pthread_mutex_lock(self.0.get()) }
    }
}

#[test]
fn the_programs_own_robust_mutexes_work_where_get_robust_list_is_refused() {
    for errno in REFUSALS {
        let place = Place::new();
        let mut child = Child::run(|| {
            let queue = place.create("/q", 4, 8);
            let mutex = Robust(UnsafeCell::new(libc::PTHREAD_MUTEX_INITIALIZER));
            mutex.init();
            refuse(&[libc::SYS_get_robust_list.into()], errno);
            thread::scope(|scope| {
                let dies_with_it = || {
                    queue.try_send(b"m", 0).unwrap();
                    mutex.lock()
                };
                assert_eq!(scope.spawn(dies_with_it).join().unwrap(), 0);
            });
            assert_eq!(mutex.lock(), libc::EOWNERDEAD);
            0
        });
        child.expect(Exit::Code(0), "a program with a robust mutex");
    }
}

/// Opens a queue; creates it if it does not exist.
fn open(place: &Place, name: &str) -> Result<Queue, OpenError> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true);
    options.namespace(&place.namespace).open(name)
}

/// Kills a child in its first send, at a crash point, while the kernel refuses get_robust_list to the child.
#[cfg(feature = "crash-points")]
#[test]
fn a_lock_whose_owner_died_is_repaired_where_get_robust_list_was_refused() {
    for errno in REFUSALS {
        let place = Place::new();
        let mut child = Child::run(|| {
            refuse(&[libc::SYS_get_robust_list.into()], errno);
            let queue = place.create("/q", 4, 8);
            umsg_shm::crash::arm("SEND_FILLED", 1);
            queue.try_send(b"m", 0).map_or(1, |()| 0)
        });
        child.expect(Exit::Signal(libc::SIGKILL), "the owner");
        let queue = place.open("/q");
        let patience = Duration::from_secs(20);
        queue.send_timeout(b"next", 0, patience).unwrap();
        assert_eq!(queue.try_receive(&mut [0; 8]).unwrap().len, 4);
    }
}

#[test]
fn where_no_death_would_be_marked_no_queue_opens_and_the_error_names_the_call() {
    for errno in REFUSALS {
        let place = Place::new();
        let _queue = place.create("/q", 4, 8);
        let told = Shared::<AtomicU64>::new();
        let mut child = Child::run(|| {
            refuse(
                &[
                    libc::SYS_get_robust_list.into(),
                    libc::SYS_set_robust_list.into(),
                ],
                errno,
            );
            for result in [open(&place, "/q"), open(&place, "/new")] {
                let Err(OpenError::Segment(SegmentError::CallRefused { call, .. })) = result else {
                    panic!("{result:?}");
                };
                assert_eq!(call, "set_robust_list");
                told.fetch_add(1, Ordering::Relaxed);
            }
            0
        });
        child.expect(Exit::Code(0), "a program whose deaths are not marked");
        assert_eq!(told.load(Ordering::Relaxed), 2);
        assert_eq!(umsg::posix::list(&place.namespace).unwrap().len(), 1);
    }
}

/// The process enters a sandbox while it has the queue open. From then on, its new threads and its children register no robust list.
#[cfg(feature = "crash-points")]
#[test]
fn a_thread_that_began_in_a_later_sandbox_dies_with_a_lock_and_senders_go_on() {
    for forks in [false, true] {
        let place = Place::new();
        let mut child = Child::run(|| {
            let queue = place.create("/q", 4, 8);
            refuse(&[libc::SYS_set_robust_list.into()], libc::EPERM);
            let dies = || {
                umsg_shm::crash::arm("SEND_FILLED", 1);
                queue.try_send(b"m", 0).map_or(1, |()| 0)
            };
            if forks {
                Child::run(dies).expect(Exit::Signal(libc::SIGKILL), "the child");
                // SAFETY: the call sends a signal to this process, which then ends in the same way as the child.
                unsafe { libc::raise(libc::SIGKILL) };
            }
            thread::scope(|scope| scope.spawn(dies).join().unwrap())
        });
        child.expect(Exit::Signal(libc::SIGKILL), "the owner");
        let queue = place.open("/q");
        let patience = Duration::from_secs(20);
        queue.send_timeout(b"next", 0, patience).unwrap();
        assert_eq!(queue.try_receive(&mut [0; 8]).unwrap().len, 4);
    }
}
