//! A peer truncates a queue's file. With the library's handler of SIGBUS, the calls on that queue fail with an error.

mod support;

use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use umsg::QueueError;

use rustix::fs::FallocateFlags;
use support::child::{Child, Exit};
use support::place::Place;
use support::scarce::{Ballast, LEFT_OUT, in_child, mount_private};
use support::{Random, turn};
use umsg::posix::{OpenOptions, Queue, ReceiveError, SendError};
use umsg::signals::catch_truncation;
use umsg::sysv::{self, Want};

/// The errors of calls on a queue whose file was truncated.
const NOT_SENT: SendError = SendError::Queue(QueueError::Damaged);
const NOT_RECEIVED: ReceiveError = ReceiveError::Queue(QueueError::Damaged);
const STUCK: Duration = Duration::from_secs(20);
/// The longest time of a call that does not block, or whose deadline has passed. A call waits for one second at most for the owner of a lock. A busy
/// machine may give no CPU time to the caller for some seconds more.
const LIMIT: Duration = Duration::from_secs(10);
/// The size of a page, in bytes.
const PAGE: u64 = 4096;

fn file_of(place: &Place, kind: &str) -> PathBuf {
    let entries = place.path().join(kind).read_dir().unwrap();
    let mut files = entries.map(|entry| entry.unwrap().path());
    files
        .find(|path| path.symlink_metadata().unwrap().is_file() && !is_hidden(path))
        .unwrap()
}

fn is_hidden(path: &Path) -> bool {
    path.file_name().unwrap().to_str().unwrap().starts_with('.')
}

fn cut(file: &Path, len: u64) {
    let file = File::options().write(true).open(file).unwrap();
    file.set_len(len).unwrap();
}

/// Returns a queue with messages in cells and in the arena.
fn filled(place: &Place) -> Queue {
    let queue = place.create("/q", 64, 100_000);
    for size in [10, 5_000, 60_000, 100_000] {
        queue.send(&vec![1; size], 0).unwrap();
    }
    queue
}

#[test]
fn a_queue_that_was_cut_short_is_damaged_and_others_go_on() {
    let _turn = turn();
    let lengths = [0, 1, PAGE, 10 * PAGE, 1 << 20];
    for len in lengths {
        Child::run(|| {
            catch_truncation().unwrap();
            let place = Place::new();
            let queue = filled(&place);
            cut(&file_of(&place, "mq"), len);
            let mut buffer = vec![0; 100_000];
            // One of the first calls may still succeed. The call that accesses a missing page fails, and so do all calls after it.
            let received: Vec<_> = (0..5).map(|_| queue.try_receive(&mut buffer)).collect();
            assert!(received.contains(&Err(NOT_RECEIVED)), "{len}: {received:?}");
            assert_eq!(queue.try_receive(&mut buffer), Err(NOT_RECEIVED));
            assert_eq!(queue.receive(&mut buffer), Err(NOT_RECEIVED));
            assert_eq!(queue.try_send(b"x", 0), Err(NOT_SENT));
            assert_eq!(queue.send(b"x", 0), Err(NOT_SENT));
            assert!(matches!(queue.try_receive_lease(), Err(NOT_RECEIVED)));
            let other = place.create("/other", 10, 100);
            other.send(b"unharmed", 0).unwrap();
            assert_eq!(other.receive(&mut buffer).unwrap().len, 8);
            0
        })
        .expect(Exit::Code(0), "a queue that was cut short");
    }
}

#[test]
fn a_system_v_queue_that_was_cut_short_is_damaged() {
    let _turn = turn();
    for len in [0, PAGE, 10 * PAGE] {
        Child::run(|| {
            catch_truncation().unwrap();
            let (place, queue) = Place::new().with_sysv_queue(7);
            for size in [10, 8000] {
                queue.send(1, &vec![1; size]).unwrap();
            }
            cut(&file_of(&place, "msg"), len);
            let mut buffer = vec![0; 8192];
            let received: Vec<_> = (0..3)
                .map(|_| queue.try_receive(Want::Any, &mut buffer))
                .collect();
            assert!(
                received.contains(&Err(sysv::ReceiveError::Queue(QueueError::Damaged))),
                "{len}: {received:?}"
            );
            assert_eq!(
                queue.receive(Want::Any, &mut buffer),
                Err(sysv::ReceiveError::Queue(QueueError::Damaged))
            );
            assert_eq!(
                queue.send(1, b"x"),
                Err(sysv::SendError::Queue(QueueError::Damaged))
            );
            0
        })
        .expect(Exit::Code(0), "a System V queue that was cut short");
    }
}

#[test]
fn a_ring_that_was_cut_short_is_damaged() {
    let _turn = turn();
    Child::run(|| {
        catch_truncation().unwrap();
        let place = Place::new();
        let namespace = umsg::Namespace::at(place.path()).unwrap();
        let options = umsg::ring::Options::new();
        let mut ring = options.create_in(&namespace, "/r").unwrap();
        let sender = ring.sender();
        sender.send(&umsg::ring::Post::new(1)).unwrap();
        cut(&file_of(&place, "ring"), 0);
        assert!(sender.send(&umsg::ring::Post::new(2)).is_err());
        assert!(ring.receive().is_err());
        0
    })
    .expect(Exit::Code(0), "a ring that was cut short");
}

#[test]
fn a_waiter_in_a_truncated_queue_gets_an_error() {
    let place = Place::in_turn();
    let (empty, sysv_queue) = (place.create("/q", 1, 100), place.create_sysv(7));
    let mut waiting = [
        Child::run(|| {
            catch_truncation().unwrap();
            assert_eq!(empty.receive(&mut [0; 100]), Err(NOT_RECEIVED));
            0
        }),
        Child::run(|| {
            catch_truncation().unwrap();
            let received = sysv_queue.receive(Want::Any, &mut [0; 100]);
            assert_eq!(
                received,
                Err(sysv::ReceiveError::Queue(QueueError::Damaged))
            );
            0
        }),
    ];
    assert!(support::wait_until(STUCK, || empty
        .status()
        .blocked_receivers
        == 1));
    std::thread::sleep(Duration::from_millis(50));
    for kind in ["mq", "msg"] {
        cut(&file_of(&place, kind), 0);
    }
    for child in &mut waiting {
        child.expect(Exit::Code(0), "a waiting receiver");
    }
    // This process has no handler, so it must not access the mappings any more.
    std::mem::forget((empty, sysv_queue));
}

#[test]
fn files_that_are_truncated_and_lengthened_at_random_crash_and_hang_no_process() {
    let place = Place::in_turn();
    let rounds = 30;
    for round in 0..rounds {
        let name = format!("/q{round}");
        let queue = place.create(&name, 16, 20_000);
        let path = place.path().join("mq").join(&name[1..]);
        let len = std::fs::metadata(&path).unwrap().len();
        let mut victims = [0, 1, 2, 3].map(|number| {
            let queue = &queue;
            Child::run(move || {
                catch_truncation().unwrap();
                work(queue, number, Duration::from_millis(60));
                0
            })
        });
        let mut random = Random::new(round);
        for _ in 0..20 {
            cut(&path, random.below(len));
            cut(&path, len);
            std::thread::sleep(Duration::from_millis(2));
        }
        for victim in &mut victims {
            victim.expect(Exit::Code(0), "a victim of truncation");
        }
        std::mem::forget(queue);
    }
    println!("{rounds} rounds of 20 cuts among 4 processes");
}

/// Sends and receives with calls that must end in time, with any result.
fn work(queue: &Queue, number: u64, time: Duration) {
    let mut random = Random::new(number);
    let mut buffer = vec![0; 20_000];
    let start = Instant::now();
    while start.elapsed() < time {
        let size = random.below(20_000) as usize;
        let call = Instant::now();
        let pause = Duration::from_millis(1);
        match random.below(4) {
            0 => drop(queue.try_send(&buffer[..size], size as u32 % 5)),
            1 => drop(queue.try_receive(&mut buffer)),
            2 => drop(queue.send_timeout(&buffer[..size], 0, pause)),
            _ => drop(queue.receive_timeout(&mut buffer, pause)),
        }
        assert!(call.elapsed() < LIMIT, "{:?}", call.elapsed());
    }
}

/// Maps a private file and touches it after its truncation.
fn touch_a_foreign_file_that_was_cut_short() {
    let directory = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = directory.path().join("foreign");
    std::fs::write(&path, vec![1; 4096]).unwrap();
    let file = File::options().read(true).write(true).open(&path).unwrap();
    // SAFETY: the kernel chooses the address of the mapping, which has one page.
    let page = unsafe {
        let (flags, access) = (libc::MAP_SHARED, libc::PROT_READ);
        libc::mmap(
            std::ptr::null_mut(),
            4096,
            access,
            flags,
            std::os::fd::AsRawFd::as_raw_fd(&file),
            0,
        )
    };
    assert_ne!(page, libc::MAP_FAILED);
    file.set_len(0).unwrap();
    drop(directory);
    // SAFETY: the access raises SIGBUS, as the test intends.
    unsafe { page.cast::<u8>().read_volatile() };
}

#[test]
fn a_fault_that_is_not_umsgs_reaches_the_handler_that_was_there_or_kills() {
    extern "C" fn theirs(signal: i32) {
        // SAFETY: ends the process.
        unsafe { libc::_exit(signal) };
    }
    let _turn = turn();
    Child::run(|| {
        // SAFETY: the handler only exits.
        unsafe { libc::signal(libc::SIGBUS, theirs as *const () as usize) };
        catch_truncation().unwrap();
        touch_a_foreign_file_that_was_cut_short();
        0
    })
    .expect(Exit::Code(libc::SIGBUS), "a program with a handler");
    // Rust's own handler, which detects stack overflows, is not a handler of the program.
    let without_a_handler = || {
        // SAFETY: the call installs no handler.
        unsafe { libc::signal(libc::SIGBUS, libc::SIG_DFL) };
        catch_truncation().unwrap();
    };
    Child::run(|| {
        without_a_handler();
        touch_a_foreign_file_that_was_cut_short();
        0
    })
    .expect(Exit::Signal(libc::SIGBUS), "a program without one");
    Child::run(|| {
        without_a_handler();
        // SAFETY: the call sends a signal to this process.
        unsafe { libc::raise(libc::SIGBUS) };
        0
    })
    .expect(Exit::Signal(libc::SIGBUS), "a program that is sent one");
}

#[test]
fn a_queue_that_is_made_in_the_place_of_one_that_was_cut_short_works() {
    let _turn = turn();
    Child::run(|| {
        catch_truncation().unwrap();
        let place = Place::new();
        let queue = filled(&place);
        cut(&file_of(&place, "mq"), 0);
        assert_eq!(queue.try_send(b"x", 0), Err(NOT_SENT));
        drop(queue);
        let mut options = OpenOptions::new();
        let namespace = umsg::Namespace::at(place.path()).unwrap();
        options.read(true).write(true).namespace(&namespace);
        assert!(options.open("/q").is_err());
        umsg::posix::unlink_in(&namespace, "/q").unwrap();
        let queue = filled(&place);
        assert_eq!(queue.receive(&mut vec![0; 100_000]).unwrap().len, 10);
        0
    })
    .expect(Exit::Code(0), "a queue in the place of another");
}

/// The kernel also raises SIGBUS for a page for which the file system has no room, although the file has its full length.
#[test]
fn a_queue_whose_pages_were_punched_out_of_a_full_file_system_is_damaged() {
    let place = Place::in_turn();
    in_child(|| {
        if !mount_private(place.path(), "size=4m") {
            return LEFT_OUT;
        }
        catch_truncation().unwrap();
        let namespace = umsg::Namespace::at(place.path()).unwrap();
        let mut options = OpenOptions::new();
        options
            .read(true)
            .write(true)
            .create(true)
            .max_messages(1000)
            .message_size(8000)
            .namespace(&namespace);
        let queue = options.open("/q").unwrap();
        for _ in 0..100 {
            queue.send(&[1; 5000], 0).unwrap();
        }
        let path = file_of(&place, "mq");
        let file = File::options().write(true).open(&path).unwrap();
        // The hole spares the pages of the header, so attributes and locks stay.
        let len = file.metadata().unwrap().len() - 2 * PAGE;
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        rustix::fs::fallocate(&file, flags, 2 * PAGE, len).unwrap();
        let _ballast = Ballast::new(place.path(), 8 << 20);
        let mut buffer = vec![0; 8000];
        assert_eq!(queue.try_receive(&mut buffer), Err(NOT_RECEIVED));
        assert_eq!(queue.try_send(b"x", 0), Err(NOT_SENT));
        0
    });
}
