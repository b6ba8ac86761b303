//! Notifications: the notified process, the time, the form and the number of notifications.

use std::ptr;
use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering};

use crate::children::wait_until;
use crate::errno::Errno;
use crate::site::{Queue, Site, message};
use crate::sys::{self, User};

subject! { $ notification, notification_cases:
    a_message_to_the_empty_queue_raises_the_signal
    the_signal_is_pending_when_another_processs_send_has_returned
    a_registration_notifies_once
    a_queue_with_messages_notifies_only_after_a_drain
    a_blocked_receiver_takes_precedence
    the_message_of_a_blocked_sender_does_not_tell
    one_process_is_registered_at_a_time
    no_process_ends_the_registration_of_another
    a_registration_without_a_signal_lasts_until_a_message_comes
    kinds_and_signals_are_checked_before_the_descriptor
    closing_another_descriptor_of_the_queue_ends_it
    a_forked_childs_close_does_not_end_it
    a_forked_child_registers_for_itself
    a_killed_process_is_registered_no_more
    a_thread_is_started_for_each_message
    a_queue_without_a_name_notifies
    another_users_message_raises_the_signal
    read_shows_the_registered_process
}

/// A real-time signal. If it is raised several times, the kernel keeps each signal pending.
const SIGNAL: i32 = 40;

fn event(notify: i32, signal: i32, value: usize) -> libc::sigevent {
    // SAFETY: the structure consists of numbers and addresses, for which zero is valid.
    let mut event: libc::sigevent = unsafe { std::mem::zeroed() };
    event.sigev_notify = notify;
    event.sigev_signo = signal;
    event.sigev_value = libc::sigval {
        sival_ptr: ptr::without_provenance_mut(value),
    };
    event
}

fn register_by(queue: Queue<'_>, notify: i32, signal: i32) -> Result<(), Errno> {
    queue.notify(Some(&event(notify, signal, 0)))
}

fn register(queue: Queue<'_>) -> Result<(), Errno> {
    register_by(queue, libc::SIGEV_NONE, 0)
}

/// Registers this process with the queue for a signal, and blocks the signal.
fn registered(queue: Queue<'_>) {
    block();
    assert_eq!(register_by(queue, libc::SIGEV_SIGNAL, SIGNAL), Ok(()));
}

fn signals() -> libc::sigset_t {
    // SAFETY: the calls use a set that is filled in.
    unsafe {
        let mut set = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        libc::sigaddset(&mut set, SIGNAL);
        set
    }
}

fn block() {
    // SAFETY: the call reads a set, and changes the mask of this thread only.
    unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &signals(), ptr::null_mut()) };
}

/// Returns the data of a pending signal: code, value, process and user of the sender.
fn pending() -> Option<(i32, usize, i32, u32)> {
    pending_within(0)
}

fn pending_within(milliseconds: i64) -> Option<(i32, usize, i32, u32)> {
    let patience = libc::timespec {
        tv_sec: milliseconds / 1000,
        tv_nsec: milliseconds % 1000 * 1_000_000,
    };
    // SAFETY: the call reads a set and a time, and fills a siginfo.
    unsafe {
        let mut info: libc::siginfo_t = std::mem::zeroed();
        if libc::sigtimedwait(&signals(), &mut info, &patience) != SIGNAL {
            return None;
        }
        let value = info.si_value().sival_ptr.addr();
        Some((info.si_code, value, info.si_pid(), info.si_uid()))
    }
}

/// `SI_MESGQ`: the value of `si_code` in a notification.
const OF_A_MESSAGE: i32 = -3;

fn own_uid() -> u32 {
    sys::user().uid
}

fn a_message_to_the_empty_queue_raises_the_signal(site: &Site) {
    let queue = site.queue(2, 8);
    block();
    assert_eq!(
        queue.notify(Some(&event(libc::SIGEV_SIGNAL, SIGNAL, 77))),
        Ok(())
    );
    queue.send(b"x", 0).expect("room");
    assert_eq!(pending(), Some((OF_A_MESSAGE, 77, sys::pid(), own_uid())));
    assert_eq!(pending(), None);
}

fn the_signal_is_pending_when_another_processs_send_has_returned(site: &Site) {
    let queue = site.queue(2, 8);
    for _ in 0..20 {
        registered(queue);
        let sender = site.child(|| queue.send(b"x", 0));
        let pid = sender.pid();
        assert_eq!(sender.result(), Ok(()));
        assert_eq!(pending(), Some((OF_A_MESSAGE, 0, pid, own_uid())));
        assert_eq!(queue.receive(), Ok(message("x", 0)));
    }
}

fn a_registration_notifies_once(site: &Site) {
    let queue = site.queue(2, 8);
    registered(queue);
    queue.send(b"x", 0).expect("room");
    assert!(pending().is_some());
    queue.receive().expect("a message");
    queue.send(b"x", 0).expect("room");
    assert_eq!(pending_within(20), None);
    assert_eq!(site.child(|| register(queue)).result(), Ok(()));
}

fn a_queue_with_messages_notifies_only_after_a_drain(site: &Site) {
    let queue = site.queue(3, 8);
    queue.send(b"1", 0).expect("room");
    registered(queue);
    queue.send(b"2", 0).expect("room");
    queue.receive().expect("a message");
    queue.send(b"3", 0).expect("room");
    assert_eq!(pending_within(20), None);
    queue.receive().expect("a message");
    queue.receive().expect("a message");
    assert_eq!(pending(), None);
    queue.send(b"4", 0).expect("room");
    assert!(pending().is_some());
}

fn a_blocked_receiver_takes_precedence(site: &Site) {
    let queue = site.queue(2, 8);
    registered(queue);
    for _ in 0..3 {
        let receiver = site.child(|| queue.receive());
        receiver.wait_until_blocked();
        queue.send(b"x", 0).expect("room");
        assert_eq!(receiver.result(), Ok(message("x", 0)));
        assert_eq!(pending(), None);
    }
    assert_eq!(register(queue), Err(Errno::EBUSY), "it is still registered");
    queue.send(b"y", 0).expect("room");
    assert!(pending().is_some());
}

fn the_message_of_a_blocked_sender_does_not_tell(site: &Site) {
    let queue = site.queue(1, 8);
    queue.send(b"1", 0).expect("room");
    registered(queue);
    let sender = site.child(|| queue.send(b"2", 0));
    sender.wait_until_blocked();
    assert_eq!(queue.receive(), Ok(message("1", 0)));
    assert_eq!(sender.result(), Ok(()));
    assert_eq!(pending_within(20), None);
    assert_eq!(queue.receive(), Ok(message("2", 0)));
    queue.send(b"3", 0).expect("room");
    assert!(pending().is_some());
}

fn one_process_is_registered_at_a_time(site: &Site) {
    let queue = site.queue(1, 8);
    assert_eq!(register(queue), Ok(()));
    assert_eq!(register(queue), Err(Errno::EBUSY));
    assert_eq!(
        register_by(queue, libc::SIGEV_SIGNAL, SIGNAL),
        Err(Errno::EBUSY)
    );
    assert_eq!(site.child(|| register(queue)).result(), Err(Errno::EBUSY));
    assert_eq!(queue.notify(None), Ok(()));
    assert_eq!(queue.notify(None), Ok(()));
    assert_eq!(register(queue), Ok(()));
}

fn no_process_ends_the_registration_of_another(site: &Site) {
    let queue = site.queue(1, 8);
    registered(queue);
    assert_eq!(site.child(|| queue.notify(None)).result(), Ok(()));
    queue.send(b"x", 0).expect("room");
    assert!(pending().is_some());
}

fn a_registration_without_a_signal_lasts_until_a_message_comes(site: &Site) {
    let queue = site.queue(1, 8);
    for (notify, signal) in [(libc::SIGEV_NONE, 0), (libc::SIGEV_SIGNAL, 0)] {
        assert_eq!(register_by(queue, notify, signal), Ok(()));
        assert_eq!(register(queue), Err(Errno::EBUSY));
        assert_eq!(site.child(|| queue.send(b"x", 0)).result(), Ok(()));
        assert_eq!(register(queue), Ok(()), "{notify}");
        assert_eq!(queue.notify(None), Ok(()));
        queue.receive().expect("a message");
    }
}

fn kinds_and_signals_are_checked_before_the_descriptor(site: &Site) {
    let queue = site.queue(1, 8);
    assert_eq!(register(queue), Ok(()));
    for at in [queue, site.at(-1)] {
        for notify in [3, 4, 5, -1, 99] {
            assert_eq!(register_by(at, notify, 0), Err(Errno::EINVAL), "{notify}");
        }
        for signal in [-1, 65, 1000] {
            let refused = register_by(at, libc::SIGEV_SIGNAL, signal);
            assert_eq!(refused, Err(Errno::EINVAL), "{signal}");
        }
    }
    assert_eq!(
        register_by(queue, libc::SIGEV_SIGNAL, 64),
        Err(Errno::EBUSY)
    );
    assert_eq!(
        register_by(site.at(-1), libc::SIGEV_SIGNAL, 64),
        Err(Errno::EBADF)
    );
    assert_eq!(site.at(-1).notify(None), Err(Errno::EBADF));
}

fn closing_another_descriptor_of_the_queue_ends_it(site: &Site) {
    let name = site.name("closed");
    let queue = site.queue_called(&name, 1, 8);
    let other = site.open(&name, libc::O_RDONLY).expect("another");
    assert_eq!(register(queue), Ok(()));
    other.close().expect("closing");
    assert_eq!(site.child(|| register(queue)).result(), Ok(()));
}

fn a_forked_childs_close_does_not_end_it(site: &Site) {
    let queue = site.queue(1, 8);
    assert_eq!(register(queue), Ok(()));
    assert_eq!(site.child(|| queue.close()).result(), Ok(()));
    assert_eq!(register(queue), Err(Errno::EBUSY));
}

fn a_forked_child_registers_for_itself(site: &Site) {
    let (queue, other) = (site.queue(1, 8), site.queue(1, 8));
    registered(queue);
    let child = site.child(|| {
        registered(other);
        other.send(b"x", 0).expect("room");
        let own = pending().is_some();
        queue.send(b"x", 0).expect("room");
        own && pending().is_none()
    });
    assert!(child.result());
    assert!(pending().is_some());
}

fn a_killed_process_is_registered_no_more(site: &Site) {
    let queue = site.queue(1, 8);
    for (notify, signal) in [(libc::SIGEV_NONE, 0), (libc::SIGEV_SIGNAL, SIGNAL)] {
        let child = site.child(|| {
            register_by(queue, notify, signal).expect("nobody is registered");
            site.queue(1, 8).receive().map(|_| ())
        });
        child.wait_until_blocked();
        assert_eq!(register(queue), Err(Errno::EBUSY));
        child.kill();
        assert_eq!(register(queue), Ok(()));
        assert_eq!(queue.notify(None), Ok(()));
    }
}

static CALLS: AtomicI32 = AtomicI32::new(0);
static VALUE: AtomicUsize = AtomicUsize::new(0);

extern "C" fn note_call(value: *mut libc::c_void) {
    VALUE.store(value.addr(), Ordering::SeqCst);
    CALLS.fetch_add(1, Ordering::SeqCst);
}

fn a_thread_is_started_for_each_message(site: &Site) {
    let queue = site.queue(1, 8);
    for round in 1..=10 {
        let mut event = event(libc::SIGEV_THREAD, 0, round as usize);
        // The members after the first three members are a union. The first word of the union is the function's address.
        let function = note_call as *const () as usize;
        // SAFETY: the structure has 64 bytes, and in every libc the word at offset 16 is the function's address.
        unsafe { (&raw mut event).cast::<usize>().add(2).write(function) };
        assert_eq!(queue.notify(Some(&event)), Ok(()));
        assert_eq!(site.child(|| queue.send(b"x", 0)).result(), Ok(()));
        wait_until(|| CALLS.load(Ordering::SeqCst) == round);
        assert_eq!(VALUE.load(Ordering::SeqCst), round as usize);
        queue.receive().expect("a message");
    }
}

fn a_queue_without_a_name_notifies(site: &Site) {
    let name = site.name("gone");
    let queue = site.queue_called(&name, 1, 8);
    site.unlink(&name).expect("unlinking");
    registered(queue);
    assert_eq!(site.child(|| queue.send(b"x", 0)).result(), Ok(()));
    assert!(pending().is_some());
}

fn another_users_message_raises_the_signal(site: &Site) {
    site.need_root();
    let queue = site.queue(1, 8);
    registered(queue);
    let sent = site.as_user(User::NOBODY, || queue.send(b"x", 0));
    assert_eq!(sent, Ok(()));
    let (code, _, _, uid) = pending().expect("a signal");
    assert_eq!((code, uid), (OF_A_MESSAGE, User::NOBODY.uid));
}

fn read_shows_the_registered_process(site: &Site) {
    site.need_descriptors();
    let queue = site.queue(1, 8);
    let told = |notify: i32, signal: i32, pid: i32| {
        let mut buffer = [0; 200];
        let read = site.ask(site.backend().read_at(queue.fd(), &mut buffer, 0));
        let text = String::from_utf8_lossy(&buffer[..read.expect("a text")]).into_owned();
        let expected = format!("NOTIFY:{notify:<5} SIGNO:{signal:<5} NOTIFY_PID:{pid:<6}\n");
        assert!(text.ends_with(&expected), "{text} {expected}");
    };
    told(0, 0, 0);
    assert_eq!(register(queue), Ok(()));
    told(libc::SIGEV_NONE, 0, sys::pid());
    assert_eq!(queue.notify(None), Ok(()));
    told(0, 0, 0);
    registered(queue);
    told(libc::SIGEV_SIGNAL, SIGNAL, sys::pid());
    queue.send(b"x", 0).expect("room");
    told(0, 0, 0);
}
