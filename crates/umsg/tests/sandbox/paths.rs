//! The paths through the library. A path is the series of library calls of a program, from the opening of a queue to the end of the program.
//!
//! A path returns an error only if its first call fails. Every later call has to succeed, or the path panics.

use crate::support::child::{Child, Exit};
use crate::support::place::Place;
use crate::support::wait_until;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::error::Error;
use std::os::fd::AsFd;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;
use umsg::posix::{self, Notify, ReceiveError};
use umsg::ring::{Options, Post, Ring, Sender, Until};
use umsg::sysv::{self, Want};
use umsg::{Namespace, ring};
use umsg_testkit::signals::{block, comes};
use umsg_testkit::users::is_root;

/// The limit on every wait: no step takes as long.
pub const LONG: Duration = Duration::from_secs(20);
/// The time within which another thread usually falls asleep.
const MOMENT: Duration = Duration::from_millis(20);

pub type Outcome = Result<(), Box<dyn Error>>;

#[derive(Clone, Copy)]
pub struct Path {
    pub name: &'static str,
    pub walk: fn(&Namespace) -> Outcome,
}

macro_rules! paths {
    ($($name:ident),* $(,)?) => {
        const PATHS: &[Path] = &[$(Path { name: stringify!($name), walk: $name }),*];
    };
}

paths! {
    namespace, posix_create, posix_open, posix_unlink, posix_list, send_and_receive, wait_for_message, wait_for_room, many_long_messages,
    notify_by_signal, notify_by_function, notify_another_process, poll_queue, send_after_death, queue_of_last_user, sysv_private, sysv_create,
    sysv_wait, sysv_poll, sysv_list, ring_named, ring_unnamed, ring_wait, ring_descriptor, sweep, lease, shared_form,
}

/// Returns all paths that this process can walk: only root can make the process of another PID namespace that one path needs.
pub fn all() -> impl Iterator<Item = &'static Path> {
    let can_share = is_root();
    PATHS
        .iter()
        .filter(move |path| can_share || path.name != "shared_form")
}

impl Path {
    /// Makes the objects that the path needs at its beginning.
    pub fn furnish(&self, place: &Place) {
        drop(place.create("/there", 4, 8));
        drop(place.create_sysv(7));
        if self.name == "shared_form" {
            share(place);
        }
    }
}

/// Makes a process of another PID namespace use the queues.
fn share(place: &Place) {
    let mut guest = Child::lead(|| {
        // SAFETY: the call changes only the namespaces of later children.
        assert_eq!(unsafe { libc::unshare(libc::CLONE_NEWPID) }, 0, "unshare");
        let mut guest = Child::run(|| {
            pass_one(&place.open("/there"));
            place.open_sysv(7).try_send(1, b"m").expect("room");
            place
                .open_sysv(7)
                .try_receive(Want::Any, &mut [0; 8])
                .expect("a message");
            0
        });
        i32::from(guest.wait(LONG) != Some(Exit::Code(0)))
    });
    guest.expect(Exit::Code(0), "a process of another PID namespace");
}

fn options(namespace: &Namespace) -> posix::OpenOptions {
    let mut options = posix::OpenOptions::new();
    options.read(true).write(true).namespace(namespace);
    options
}

fn create(namespace: &Namespace, name: &str) -> Result<posix::Queue, posix::OpenError> {
    let mut options = options(namespace);
    options.create(true).max_messages(4).message_size(8);
    options.open(name)
}

fn there(namespace: &Namespace) -> Result<posix::Queue, posix::OpenError> {
    options(namespace).open("/there")
}

fn pass_one(queue: &posix::Queue) {
    queue.try_send(b"m", 1).expect("room");
    assert_eq!(queue.try_receive(&mut [0; 8]).expect("a message").len, 1);
}

fn namespace(namespace: &Namespace) -> Outcome {
    let below = namespace.path().join("inner");
    let _ = rustix::fs::mkdir(&below, rustix::fs::Mode::RWXU);
    let namespace = Namespace::at(&below)?;
    pass_one(&create(&namespace, "/first")?);
    Ok(())
}

fn posix_create(namespace: &Namespace) -> Outcome {
    let queue = create(namespace, "/new")?;
    pass_one(&queue);
    Ok(())
}

fn posix_open(namespace: &Namespace) -> Outcome {
    pass_one(&there(namespace)?);
    Ok(())
}

fn posix_unlink(namespace: &Namespace) -> Outcome {
    posix::unlink_in(namespace, "/there")?;
    Ok(())
}

fn posix_list(namespace: &Namespace) -> Outcome {
    assert_eq!(posix::list(namespace)?.len(), 1);
    Ok(())
}

fn send_and_receive(namespace: &Namespace) -> Outcome {
    let queue = there(namespace)?;
    for _ in 0..1000 {
        pass_one(&queue);
    }
    Ok(())
}

fn wait_for_message(namespace: &Namespace) -> Outcome {
    let queue = there(namespace)?;
    let nothing = queue.receive_timeout(&mut [0; 8], MOMENT);
    assert!(
        matches!(nothing, Err(ReceiveError::TimedOut)),
        "{nothing:?}"
    );
    thread::scope(|scope| {
        let receiver = scope.spawn(|| queue.receive_timeout(&mut [0; 8], LONG).unwrap().len);
        thread::sleep(MOMENT);
        queue.try_send(b"four", 1).expect("room");
        assert_eq!(receiver.join().unwrap(), 4);
    });
    Ok(())
}

fn wait_for_room(namespace: &Namespace) -> Outcome {
    let queue = there(namespace)?;
    (0..4).for_each(|_| queue.try_send(b"m", 1).expect("room"));
    thread::scope(|scope| {
        let sender = scope.spawn(|| queue.send_timeout(b"m", 1, LONG));
        thread::sleep(MOMENT);
        queue.try_receive(&mut [0; 8]).expect("a message");
        sender.join().unwrap().expect("room");
    });
    Ok(())
}

fn many_long_messages(namespace: &Namespace) -> Outcome {
    const LEN: usize = 10_000;
    let mut options = options(namespace);
    options
        .create(true)
        .max_messages(2000)
        .message_size(LEN as u32);
    let queue = options.open("/long")?;
    for round in 0..3 {
        for _ in 0..1000 {
            queue.try_send(&[round; LEN], 0).expect("room");
        }
        for _ in 0..1000 {
            let mut message = [0; LEN];
            queue.try_receive(&mut message).expect("a message");
            assert_eq!(message, [round; LEN]);
        }
    }
    Ok(())
}

fn notify_by_signal(namespace: &Namespace) -> Outcome {
    let queue = there(namespace)?;
    let set = block(libc::SIGUSR1);
    for _ in 0..2 {
        let registration = queue.notify(Notify::signal(libc::SIGUSR1))?;
        pass_one(&queue);
        assert!(comes(&set, LONG));
        drop(registration);
    }
    Ok(())
}

fn notify_by_function(namespace: &Namespace) -> Outcome {
    let queue = there(namespace)?;
    let (tell, told) = mpsc::channel();
    let _registration = queue.notify(Notify::call(move |by| tell.send(by).unwrap()))?;
    pass_one(&queue);
    assert_eq!(
        told.recv_timeout(LONG).expect("a call").pid,
        std::process::id()
    );
    Ok(())
}

/// Notifies another process. This process registers first, so that a refused registration is an error of the path's first call.
fn notify_another_process(namespace: &Namespace) -> Outcome {
    let queue = there(namespace)?;
    let set = block(libc::SIGUSR1);
    drop(queue.notify(Notify::signal(libc::SIGUSR1))?);
    let mut registrant = Child::run(|| {
        for _ in 0..3 {
            let registration = queue
                .notify(Notify::signal(libc::SIGUSR1))
                .expect("as before");
            assert!(comes(&set, LONG));
            queue.try_receive(&mut [0; 8]).expect("a message");
            drop(registration);
        }
        0
    });
    for _ in 0..3 {
        assert!(wait_until(LONG, || queue.registered().is_some()));
        // The sender repeats its attempt to learn the consents of a process only after some time.
        thread::sleep(MOMENT);
        queue.try_send(b"m", 1).expect("room");
    }
    registrant.expect(Exit::Code(0), "the registrant");
    Ok(())
}

fn is_readable(descriptor: std::os::fd::BorrowedFd<'_>, patience: Duration) -> bool {
    let mut polled = [PollFd::from_borrowed_fd(descriptor, PollFlags::IN)];
    let patience = Timespec::try_from(patience).unwrap();
    poll(&mut polled, Some(&patience)).expect("poll") == 1
}

fn poll_queue(namespace: &Namespace) -> Outcome {
    let queue = there(namespace)?;
    let bell = queue.pollable()?;
    assert!(!is_readable(bell, Duration::ZERO));
    queue.try_send(b"m", 1).expect("room");
    assert!(is_readable(bell, LONG));
    queue.try_receive(&mut [0; 8]).expect("a message");
    assert!(!is_readable(bell, Duration::ZERO));
    Ok(())
}

/// Sends after a process has died as the owner of the senders' lock.
fn send_after_death(namespace: &Namespace) -> Outcome {
    let queue = there(namespace)?;
    #[cfg(feature = "crash-points")]
    {
        let mut child = Child::run(|| {
            umsg_shm::crash::arm("SEND_FILLED", 1);
            queue.try_send(b"m", 0).map_or(1, |()| 0)
        });
        child.expect(Exit::Signal(libc::SIGKILL), "the owner");
    }
    queue
        .send_timeout(b"next", 0, LONG)
        .expect("the lock of the dead");
    let received = queue.receive_timeout(&mut [0; 8], LONG);
    assert_eq!(received.expect("a message").len, 4);
    Ok(())
}

fn queue_of_last_user(namespace: &Namespace) -> Outcome {
    let mut options = options(namespace);
    options.create(true).remove_on_last_close(true);
    options.max_messages(4).message_size(8);
    let queue = options.open("/passing")?;
    pass_one(&queue);
    drop(queue);
    Ok(())
}

fn sysv_queue(namespace: &Namespace, key: i32) -> Result<sysv::Queue, sysv::OpenError> {
    let mut options = sysv::OpenOptions::new();
    options.create(true).namespace(namespace).open(key)
}

fn pass_sysv(queue: &sysv::Queue) {
    queue.try_send(3, b"m").expect("room");
    let received = queue.try_receive(Want::Exactly(3), &mut [0; 8]);
    assert_eq!(received.expect("a message").len, 1);
}

fn sysv_private(namespace: &Namespace) -> Outcome {
    let queue = sysv_queue(namespace, sysv::PRIVATE)?;
    pass_sysv(&queue);
    queue.remove()?;
    Ok(())
}

fn sysv_create(namespace: &Namespace) -> Outcome {
    let queue = sysv_queue(namespace, 8)?;
    pass_sysv(&queue);
    pass_sysv(&sysv_queue(namespace, 7)?);
    queue.remove()?;
    Ok(())
}

fn sysv_wait(namespace: &Namespace) -> Outcome {
    let queue = sysv_queue(namespace, 7)?;
    thread::scope(|scope| {
        let receive = || {
            queue
                .receive_timeout(Want::Exactly(3), &mut [0; 8], LONG)
                .unwrap()
                .len
        };
        let receiver = scope.spawn(receive);
        thread::sleep(MOMENT);
        queue.try_send(3, b"four").expect("room");
        assert_eq!(receiver.join().unwrap(), 4);
    });
    Ok(())
}

fn sysv_poll(namespace: &Namespace) -> Outcome {
    let queue = sysv_queue(namespace, 7)?;
    let bell = queue.pollable()?;
    queue.try_send(3, b"m").expect("room");
    assert!(is_readable(bell, LONG));
    Ok(())
}

fn sysv_list(namespace: &Namespace) -> Outcome {
    assert_eq!(sysv::list(namespace)?.len(), 1);
    Ok(())
}

fn own_ring(namespace: &Namespace) -> Result<Ring, ring::RingError> {
    Options::new().entries(16).create_in(namespace, "/ring")
}

fn ring_named(namespace: &Namespace) -> Outcome {
    let mut ring = own_ring(namespace)?;
    let sender = Sender::open_in(namespace, "/ring")?;
    sender.try_send(&Post::new(7).payload(b"m")).expect("room");
    assert_eq!(ring.try_receive().expect("a message").user_data, 7);
    Ok(())
}

fn ring_unnamed(_: &Namespace) -> Outcome {
    let mut ring = Options::new().entries(16).create()?;
    ring.sender().try_send(&Post::new(7)).expect("room");
    assert_eq!(ring.try_receive().expect("a message").user_data, 7);
    Ok(())
}

fn ring_wait(namespace: &Namespace) -> Outcome {
    let mut ring = own_ring(namespace)?;
    let sender = Sender::open_in(namespace, "/ring")?;
    thread::scope(|scope| {
        scope.spawn(|| {
            thread::sleep(MOMENT);
            sender.try_send(&Post::new(8)).expect("room");
        });
        let received = ring.receive_timeout(LONG);
        assert_eq!(received.expect("a message").user_data, 8);
    });
    assert!(!is_readable(ring.pollable(), Duration::ZERO));
    sender.try_send(&Post::new(9)).expect("room");
    assert!(is_readable(ring.pollable(), LONG));
    Ok(())
}

fn ring_descriptor(namespace: &Namespace) -> Outcome {
    let mut ring = own_ring(namespace)?;
    let sender = Sender::open_in(namespace, "/ring")?;
    let null = std::fs::File::open("/dev/null")?;
    sender.send_fd(&Post::new(1), null.as_fd(), Until::Forever)?;
    assert!(ring.try_receive().expect("a message").descriptor.is_some());
    Ok(())
}

fn sweep(namespace: &Namespace) -> Outcome {
    namespace.sweep()?;
    Ok(())
}

fn lease(namespace: &Namespace) -> Outcome {
    lease_and_reserve(&there(namespace)?);
    Ok(())
}

fn lease_and_reserve(queue: &posix::Queue) {
    queue.try_send(b"m", 1).expect("room");
    drop(queue.try_receive_lease().expect("a message"));
    let lease = queue.try_receive_lease().expect("the message, given back");
    assert_eq!(lease.deliveries(), 2);
    lease.acknowledge().expect("a lease of this process");
    let reservation = queue.try_reserve(4).expect("room");
    reservation
        .commit(1)
        .expect("a reservation of this process");
    assert_eq!(queue.try_receive(&mut [0; 8]).expect("a message").len, 4);
}

/// Uses queues that processes of several PID namespaces have used.
fn shared_form(namespace: &Namespace) -> Outcome {
    let queue = there(namespace)?;
    pass_one(&queue);
    lease_and_reserve(&queue);
    let sysv_queue = sysv::OpenOptions::new().namespace(namespace).open(7)?;
    sysv_queue.try_send(1, b"m").expect("room");
    sysv_queue
        .try_receive(Want::Any, &mut [0; 8])
        .expect("a message");
    Ok(())
}
