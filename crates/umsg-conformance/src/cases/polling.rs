//! A queue descriptor in `poll` and `epoll`: the ready events, and the moments at which a poller is notified.

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use libc::{POLLERR, POLLHUP, POLLIN, POLLNVAL, POLLOUT, POLLPRI, POLLRDNORM, POLLWRNORM};

use crate::children::{Child, wait_until};
use crate::errno::Errno;
use crate::site::{Queue, Site, message};
use crate::sys::{self, User};

subject! { $ polling, polling_cases:
    it_is_readable_exactly_while_it_holds_messages
    it_is_writable_exactly_while_it_is_not_full
    what_is_ready_does_not_depend_on_the_access_mode
    only_what_is_asked_for_is_reported
    polling_changes_nothing
    a_negative_number_is_left_out
    a_closed_number_is_invalid
    a_poll_that_finds_nothing_times_out
    a_poll_waits_for_a_message
    a_poll_waits_for_room
    a_poll_waits_for_a_pipe_beside_a_queue
    each_of_several_pollers_is_notified
    a_queue_without_a_name_is_polled
    a_duplicate_is_polled
    a_descriptor_sent_through_a_socket_is_polled
    a_caught_signal_interrupts_a_poll
    a_caught_signal_interrupts_a_poll_even_under_sa_restart
    a_message_that_goes_to_a_blocked_receiver_is_never_shown
    the_room_that_a_blocked_sender_takes_is_never_shown
    a_killed_poller_hinders_no_other
    a_umask_that_denies_the_owner_everything_hinders_no_poller
    epoll_reports_the_level
    epoll_reports_each_send_and_each_receive_as_an_edge
    epoll_reports_edges_of_room
    epoll_reports_edges_across_processes
    epoll_reports_once_until_it_is_armed_again
    epoll_knows_what_is_registered
    epoll_forgets_a_queue_with_its_last_descriptor
    epoll_keeps_a_queue_that_a_forked_child_still_has
}

const READABLE: i16 = POLLIN | POLLRDNORM;
const WRITABLE: i16 = POLLOUT | POLLWRNORM;
const ALL: i16 = READABLE | WRITABLE | POLLPRI | POLLERR | POLLHUP;

/// The time-out of a poll without limit.
const NEVER: i32 = -1;

fn entry(fd: i32, events: i16) -> libc::pollfd {
    libc::pollfd {
        fd,
        events,
        revents: -1,
    }
}

/// Returns the result of poll for one descriptor, with this time-out in milliseconds.
fn poll_within(site: &Site, fd: i32, events: i16, milliseconds: i32) -> Result<i16, Errno> {
    let mut one = [entry(fd, events)];
    let count = site.ask(site.backend().poll(&mut one, milliseconds))?;
    assert_eq!(count, usize::from(one[0].revents != 0));
    Ok(one[0].revents)
}

/// Returns the ready events, found by a poll that does not wait. If events are ready, checks that a poll that waits returns the same events.
fn ready(site: &Site, queue: Queue<'_>) -> i16 {
    let now = poll_within(site, queue.fd(), ALL, 0).expect("polling");
    if now != 0 {
        assert_eq!(poll_within(site, queue.fd(), ALL, NEVER), Ok(now));
    }
    now
}

fn it_is_readable_exactly_while_it_holds_messages(site: &Site) {
    let queue = site.queue(3, 8);
    assert_eq!(ready(site, queue) & READABLE, 0);
    for _ in 0..3 {
        queue.send(b"x", 0).expect("room");
        assert_eq!(ready(site, queue) & READABLE, READABLE);
    }
    for _ in 0..2 {
        queue.receive().expect("a message");
        assert_eq!(ready(site, queue) & READABLE, READABLE);
    }
    queue.receive().expect("a message");
    assert_eq!(ready(site, queue) & READABLE, 0);
}

fn it_is_writable_exactly_while_it_is_not_full(site: &Site) {
    let queue = site.queue(2, 8);
    assert_eq!(ready(site, queue), WRITABLE);
    queue.send(b"x", 0).expect("room");
    assert_eq!(ready(site, queue), WRITABLE | READABLE);
    queue.send(b"x", 0).expect("room");
    assert_eq!(ready(site, queue), READABLE);
    queue.receive().expect("a message");
    assert_eq!(ready(site, queue), WRITABLE | READABLE);
}

fn what_is_ready_does_not_depend_on_the_access_mode(site: &Site) {
    let name = site.name("access");
    let queue = site.queue_called(&name, 2, 8);
    queue.send(b"x", 0).expect("room");
    for access in [libc::O_RDONLY, libc::O_WRONLY, libc::O_RDWR] {
        let other = site
            .open(&name, access | libc::O_NONBLOCK)
            .expect("opening it");
        assert_eq!(ready(site, other), WRITABLE | READABLE);
    }
}

fn only_what_is_asked_for_is_reported(site: &Site) {
    let queue = site.queue(2, 8);
    queue.send(b"x", 0).expect("room");
    for events in [POLLIN, POLLRDNORM, POLLOUT, POLLWRNORM, POLLIN | POLLOUT, 0] {
        assert_eq!(poll_within(site, queue.fd(), events, 0), Ok(events));
    }
    assert_eq!(poll_within(site, queue.fd(), POLLPRI, 10), Ok(0));
}

fn polling_changes_nothing(site: &Site) {
    let queue = site.queue(2, 8);
    queue.send(b"kept", 3).expect("room");
    for _ in 0..10 {
        assert_eq!(ready(site, queue), WRITABLE | READABLE);
        assert_eq!(poll_within(site, queue.fd(), POLLPRI, 1), Ok(0));
    }
    assert_eq!(queue.messages(), 1);
    assert_eq!(queue.receive(), Ok(message("kept", 3)));
}

fn a_negative_number_is_left_out(site: &Site) {
    let queue = site.queue(2, 8);
    let mut both = [entry(-queue.fd(), ALL), entry(queue.fd(), POLLOUT)];
    assert_eq!(site.ask(site.backend().poll(&mut both, NEVER)), Ok(1));
    assert_eq!([both[0].revents, both[1].revents], [0, POLLOUT]);
}

fn a_closed_number_is_invalid(site: &Site) {
    site.need_descriptors();
    let (closed, queue) = (site.queue(1, 8), site.queue(1, 8));
    assert_eq!(poll_within(site, closed.fd(), POLLOUT, 0), Ok(POLLOUT));
    closed.close().expect("closing");
    for timeout in [0, NEVER] {
        let mut both = [entry(closed.fd(), POLLIN), entry(queue.fd(), POLLIN)];
        assert_eq!(site.ask(site.backend().poll(&mut both, timeout)), Ok(1));
        assert_eq!([both[0].revents, both[1].revents], [POLLNVAL, 0]);
    }
}

fn a_poll_that_finds_nothing_times_out(site: &Site) {
    let queue = site.queue(1, 8);
    let begun = Instant::now();
    assert_eq!(poll_within(site, queue.fd(), POLLIN, 60), Ok(0));
    assert!(begun.elapsed() >= Duration::from_millis(60));
}

/// Starts a child that polls without limit, and waits until the child is blocked.
fn poller<'a>(site: &'a Site, queue: Queue<'_>, events: i16) -> Child<'a, i64> {
    assert_eq!(poll_within(site, queue.fd(), events, 0), Ok(0));
    let child = site.child(|| {
        let told = poll_within(site, queue.fd(), events, NEVER).expect("polling");
        i64::from(told)
    });
    child.wait_until_blocked();
    child
}

fn a_poll_waits_for_a_message(site: &Site) {
    let queue = site.queue(2, 8);
    let child = poller(site, queue, POLLIN);
    child.expect_still_blocked();
    queue.send(b"x", 0).expect("room");
    assert_eq!(child.result(), i64::from(POLLIN));
}

fn a_poll_waits_for_room(site: &Site) {
    let queue = site.queue(2, 8);
    for _ in 0..2 {
        queue.send(b"x", 0).expect("room");
    }
    let child = poller(site, queue, POLLOUT);
    child.expect_still_blocked();
    queue.receive().expect("a message");
    assert_eq!(child.result(), i64::from(POLLOUT));
}

fn a_poll_waits_for_a_pipe_beside_a_queue(site: &Site) {
    site.need_descriptors();
    let queue = site.queue(2, 8);
    let (reading, writing) = sys::pipe().expect("a pipe");
    let child = site.child(|| {
        let mut both = [
            entry(queue.fd(), POLLIN),
            entry(reading.as_raw_fd(), POLLIN),
        ];
        let count = site
            .ask(site.backend().poll(&mut both, NEVER))
            .expect("polling");
        assert_eq!(count, 1);
        i64::from(both[0].revents) << 16 | i64::from(both[1].revents)
    });
    child.wait_until_blocked();
    sys::write_record(writing.as_raw_fd(), b"x").expect("writing");
    assert_eq!(child.result(), i64::from(POLLIN));
}

fn each_of_several_pollers_is_notified(site: &Site) {
    let queue = site.queue(2, 8);
    let children: Vec<_> = (0..4).map(|_| poller(site, queue, POLLIN)).collect();
    queue.send(b"x", 0).expect("room");
    for child in children {
        assert_eq!(child.result(), i64::from(POLLIN));
    }
}

fn a_queue_without_a_name_is_polled(site: &Site) {
    let name = site.name("unlinked");
    let queue = site.queue_called(&name, 2, 8);
    site.unlink(&name).expect("unlinking");
    let child = poller(site, queue, POLLIN);
    queue.send(b"x", 0).expect("room");
    assert_eq!(child.result(), i64::from(POLLIN));
}

fn a_duplicate_is_polled(site: &Site) {
    let queue = site.queue(2, 8);
    let duplicate = queue.dup().expect("a duplicate");
    assert_eq!(ready(site, duplicate), WRITABLE);
    queue.close().expect("closing");
    let child = poller(site, duplicate, POLLIN);
    duplicate.send(b"x", 0).expect("room");
    assert_eq!(child.result(), i64::from(POLLIN));
    assert_eq!(ready(site, duplicate), WRITABLE | READABLE);
}

fn a_descriptor_sent_through_a_socket_is_polled(site: &Site) {
    site.need_descriptors();
    let queue = site.queue(2, 8);
    let received = sys::through_a_socket(queue.fd()).expect("sending it");
    let other = site.at(received.as_raw_fd());
    other.send(b"x", 0).expect("room");
    assert_eq!(ready(site, other), WRITABLE | READABLE);
    other.receive().expect("a message");
    let child = poller(site, other, POLLIN);
    queue.send(b"x", 0).expect("room");
    assert_eq!(child.result(), i64::from(POLLIN));
}

static HANDLED: AtomicU32 = AtomicU32::new(0);

extern "C" fn count(_: i32) {
    HANDLED.fetch_add(1, Ordering::Relaxed);
}

fn expect_interrupted(site: &Site, flags: i32) {
    let queue = site.queue(1, 8);
    assert_eq!(poll_within(site, queue.fd(), POLLIN, 0), Ok(0));
    let child = site.child(|| {
        site.ask(site.backend().handle_signal(libc::SIGUSR1, count, flags))
            .expect("a handler");
        let outcome = poll_within(site, queue.fd(), POLLIN, NEVER);
        outcome == Err(Errno::EINTR) && HANDLED.load(Ordering::Relaxed) == 1
    });
    child.wait_until_blocked();
    child.signal(libc::SIGUSR1);
    assert!(child.result());
}

fn a_caught_signal_interrupts_a_poll(site: &Site) {
    expect_interrupted(site, 0);
}

fn a_caught_signal_interrupts_a_poll_even_under_sa_restart(site: &Site) {
    expect_interrupted(site, libc::SA_RESTART);
}

/// Expects a poll for `events` to stay blocked while `act` is called several times.
fn expect_untold(site: &Site, queue: Queue<'_>, events: i16, act: impl Fn()) {
    let child = poller(site, queue, events);
    for _ in 0..20 {
        act();
        let now = poll_within(site, queue.fd(), events, 0);
        assert_eq!(now, Ok(0));
    }
    child.expect_still_blocked();
    child.kill();
}

fn a_message_that_goes_to_a_blocked_receiver_is_never_shown(site: &Site) {
    let queue = site.queue(2, 8);
    expect_untold(site, queue, POLLIN, || {
        let receiver = site.child(|| queue.receive().expect("a message"));
        receiver.wait_until_blocked();
        queue.send(b"x", 0).expect("room");
        assert_eq!(receiver.result(), message("x", 0));
    });
}

fn the_room_that_a_blocked_sender_takes_is_never_shown(site: &Site) {
    let queue = site.queue(1, 8);
    queue.send(b"first", 0).expect("room");
    expect_untold(site, queue, POLLOUT, || {
        let sender = site.child(|| queue.send(b"next", 0).is_ok());
        sender.wait_until_blocked();
        queue.receive().expect("a message");
        assert!(sender.result());
    });
}

fn a_killed_poller_hinders_no_other(site: &Site) {
    let queue = site.nonblocking(3, 8);
    for _ in 0..5 {
        poller(site, queue, POLLIN).kill();
        assert_eq!(queue.fill(), 3);
        assert_eq!(queue.drain().len(), 3);
    }
    for _ in 0..2000 {
        queue.send(b"x", 0).expect("room");
        queue.receive().expect("a message");
    }
    assert_eq!(ready(site, queue), WRITABLE);
}

fn a_umask_that_denies_the_owner_everything_hinders_no_poller(site: &Site) {
    site.need_root();
    let outcome = site.as_user(User::NOBODY, || {
        sys::umask(0o777);
        let queue = site.queue(1, 8);
        let child = poller(site, queue, POLLIN);
        queue.send(b"x", 0).expect("room");
        child.result()
    });
    assert_eq!(outcome, i64::from(POLLIN));
}

/// An epoll set.
struct Set<'a> {
    site: &'a Site,
    set: OwnedFd,
}

const IN: u32 = libc::EPOLLIN as u32;
const OUT: u32 = libc::EPOLLOUT as u32;
const EDGES: u32 = libc::EPOLLET as u32;
const ONCE: u32 = libc::EPOLLONESHOT as u32;

impl Set<'_> {
    fn new(site: &Site) -> Set<'_> {
        // SAFETY: the call takes flags.
        let set = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
        assert!(set >= 0);
        // SAFETY: the descriptor is new, and has no other owner.
        let set = unsafe { OwnedFd::from_raw_fd(set) };
        Set { site, set }
    }

    fn control(&self, operation: i32, fd: i32, events: u32, data: u64) -> Result<(), Errno> {
        let event = libc::epoll_event { events, u64: data };
        let set = self.set.as_raw_fd();
        let backend = self.site.backend();
        self.site.ask(backend.control_epoll(
            fd,
            crate::backend::EpollControl {
                set,
                operation,
                event,
            },
        ))
    }

    fn add(&self, queue: Queue<'_>, events: u32, data: u64) {
        self.control(libc::EPOLL_CTL_ADD, queue.fd(), events, data)
            .expect("registering it");
    }

    /// Waits at most `milliseconds` for events. Returns the data and the events of each ready member.
    fn told_within(&self, milliseconds: i32) -> Vec<(u64, u32)> {
        let mut events = [libc::epoll_event { events: 0, u64: 0 }; 8];
        let set = self.set.as_raw_fd();
        // SAFETY: the call writes at most as many events as the array has.
        let count = unsafe { libc::epoll_wait(set, events.as_mut_ptr(), 8, milliseconds) };
        let count = usize::try_from(count).expect("waiting");
        events[..count]
            .iter()
            .map(|event| (event.u64, event.events))
            .collect()
    }

    fn told(&self) -> Vec<(u64, u32)> {
        self.told_within(0)
    }
}

fn epoll_reports_the_level(site: &Site) {
    let (queue, set) = (site.queue(2, 8), Set::new(site));
    set.add(queue, IN | OUT, 7 << 40);
    let expect = |events| {
        for _ in 0..2 {
            assert_eq!(set.told(), [(7 << 40, events)]);
        }
    };
    expect(OUT);
    queue.send(b"x", 0).expect("room");
    expect(IN | OUT);
    queue.send(b"x", 0).expect("room");
    expect(IN);
    queue.receive().expect("a message");
    expect(IN | OUT);
}

fn epoll_reports_each_send_and_each_receive_as_an_edge(site: &Site) {
    let (queue, set) = (site.queue(4, 8), Set::new(site));
    set.add(queue, IN | EDGES, 1);
    assert_eq!(set.told(), []);
    for _ in 0..4 {
        queue.send(b"x", 0).expect("room");
        assert_eq!([set.told(), set.told()], [vec![(1, IN)], vec![]]);
    }
    for _ in 0..3 {
        queue.receive().expect("a message");
        assert_eq!([set.told(), set.told()], [vec![(1, IN)], vec![]]);
    }
    queue.receive().expect("a message");
    assert_eq!(set.told(), []);
}

fn epoll_reports_edges_of_room(site: &Site) {
    let (queue, set) = (site.queue(2, 8), Set::new(site));
    set.add(queue, IN | OUT | EDGES, 1);
    assert_eq!([set.told(), set.told()], [vec![(1, OUT)], vec![]]);
    let expect = |events| assert_eq!([set.told(), set.told()], [vec![(1, events)], vec![]]);
    queue.send(b"x", 0).expect("room");
    expect(IN | OUT);
    queue.send(b"x", 0).expect("room");
    expect(IN);
    queue.receive().expect("a message");
    expect(IN | OUT);
    queue.receive().expect("a message");
    expect(OUT);
}

fn epoll_reports_edges_across_processes(site: &Site) {
    let name = site.name("edges");
    let (queue, set) = (site.queue_called(&name, 8, 8), Set::new(site));
    set.add(queue, IN | EDGES, 1);
    for _ in 0..4 {
        let sender = site.child(|| {
            let other = site.open(&name, libc::O_WRONLY).expect("opening it");
            other.send(b"x", 0).is_ok()
        });
        assert_eq!(set.told_within(20_000), [(1, IN)]);
        assert!(sender.result());
        assert_eq!(set.told(), []);
    }
}

fn epoll_reports_once_until_it_is_armed_again(site: &Site) {
    let (queue, set) = (site.queue(4, 8), Set::new(site));
    queue.send(b"x", 0).expect("room");
    set.add(queue, IN | ONCE, 1);
    assert_eq!([set.told(), set.told()], [vec![(1, IN)], vec![]]);
    queue.send(b"x", 0).expect("room");
    assert_eq!(set.told(), []);
    let modify = libc::EPOLL_CTL_MOD;
    assert_eq!(set.control(modify, queue.fd(), IN | ONCE, 2), Ok(()));
    assert_eq!([set.told(), set.told()], [vec![(2, IN)], vec![]]);
}

fn epoll_knows_what_is_registered(site: &Site) {
    site.need_descriptors();
    let (queue, set) = (site.queue(1, 8), Set::new(site));
    let control = |operation| set.control(operation, queue.fd(), OUT, 1);
    assert_eq!(control(libc::EPOLL_CTL_MOD), Err(Errno::ENOENT));
    assert_eq!(control(libc::EPOLL_CTL_DEL), Err(Errno::ENOENT));
    assert_eq!(control(libc::EPOLL_CTL_ADD), Ok(()));
    assert_eq!(control(libc::EPOLL_CTL_ADD), Err(Errno::EEXIST));
    let duplicate = queue.dup().expect("a duplicate");
    set.add(duplicate, OUT, 2);
    assert_eq!(set.told().len(), 2);
    assert_eq!(control(libc::EPOLL_CTL_DEL), Ok(()));
    assert_eq!(set.told(), [(2, OUT)]);
}

fn epoll_forgets_a_queue_with_its_last_descriptor(site: &Site) {
    site.need_descriptors();
    let (queue, set) = (site.queue(1, 8), Set::new(site));
    let duplicate = queue.dup().expect("a duplicate");
    set.add(queue, OUT, 1);
    queue.close().expect("closing");
    assert_eq!(set.told(), [(1, OUT)]);
    duplicate.close().expect("closing");
    assert_eq!(set.told(), []);
}

fn epoll_keeps_a_queue_that_a_forked_child_still_has(site: &Site) {
    site.need_descriptors();
    let (queue, set) = (site.queue(1, 8), Set::new(site));
    let (closed, go) = (sys::shared_words(1).expect("memory"), 1);
    set.add(queue, OUT, 1);
    let child = site.child(|| {
        wait_until(|| closed[0].load(Ordering::Acquire) == go);
        let before = set.told() == [(1, OUT)];
        queue.close().expect("closing");
        before && set.told().is_empty()
    });
    queue.close().expect("closing");
    assert_eq!(set.told(), [(1, OUT)]);
    closed[0].store(go, Ordering::Release);
    assert!(child.result());
    assert_eq!(set.told(), []);
}
