//! Leases and reservations: messages in place.

mod support;

use rustix::event::PollFlags;
use rustix::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;
use support::child::{Child, Exit};
use support::events::is_ready_within;
use support::place::Place;
use support::wait_until;
use umsg::Limits;
use umsg::QueueError;
use umsg::posix::{Lease, LeaseError, Queue, ReceiveError, Reservation, SendError, Until, Waiting};

const STUCK: Duration = Duration::from_secs(10);
/// The number of lease records in the page of a new queue that holds such records.
const RECORDS: u8 = 85;

fn counts(queue: &Queue) -> (usize, usize, usize) {
    let attributes = queue.attributes();
    (attributes.messages, attributes.reserved, attributes.leased)
}

#[test]
fn a_lease_counts_until_it_is_acknowledged_and_comes_back_if_it_is_not() {
    let (_place, queue) = Place::new().with_queue("/q", 3, 100);
    for (data, priority) in [(b"one", 1), (b"two", 1), (b"top", 7)] {
        queue.try_send(data, priority).unwrap();
    }
    let top = queue.try_receive_lease().unwrap();
    let one = queue.try_receive_lease().unwrap();
    assert_eq!(
        (top.to_vec(), top.priority(), top.deliveries()),
        (b"top".to_vec(), 7, 1)
    );
    assert_eq!(one.to_vec(), b"one");
    assert_eq!(counts(&queue), (1, 0, 2));
    assert_eq!(queue.try_send(b"no", 0), Err(SendError::Full));
    drop(one);
    assert_eq!(counts(&queue), (2, 0, 1));
    let one = queue.try_receive_lease().unwrap();
    assert_eq!((one.to_vec(), one.deliveries()), (b"one".to_vec(), 2));
    top.acknowledge().unwrap();
    queue.try_send(b"yes", 0).unwrap();
    one.acknowledge().unwrap();
    assert_eq!(queue.receive_vec().unwrap().data, b"two");
    assert_eq!(queue.receive_vec().unwrap().data, b"yes");
    assert_eq!(counts(&queue), (0, 0, 0));
    assert_eq!(queue.try_receive_lease().unwrap_err(), ReceiveError::Empty);
}

#[test]
fn a_lease_and_a_reservation_that_own_their_queue_outlive_its_handles() {
    struct Work {
        job: Lease<'static>,
        answer: Reservation<'static>,
    }
    let (place, queue) = Place::new().with_queue("/q", 3, 100);
    queue.try_send(b"job", 1).unwrap();
    let queue = Arc::new(queue);
    assert_eq!(
        queue.reserve_owned(101, Until::Now).unwrap_err(),
        SendError::TooLong { len: 101, max: 100 }
    );
    let work = Work {
        job: queue.receive_lease_owned(Until::Now).unwrap(),
        answer: queue.reserve_owned(6, Until::Now).unwrap(),
    };
    assert_eq!(
        queue.receive_lease_owned(Until::Now).unwrap_err(),
        ReceiveError::Empty
    );
    drop(queue);
    let worker = std::thread::spawn(move || {
        let Work { job, mut answer } = work;
        answer.write_at(0, b"answer");
        answer.commit(0).unwrap();
        // The job goes back with the last handle of the queue.
        drop(job);
    });
    worker.join().unwrap();
    let queue = place.open("/q");
    assert_eq!(counts(&queue), (2, 0, 0));
    let job = queue.try_receive_lease().unwrap();
    assert_eq!((job.to_vec(), job.deliveries()), (b"job".to_vec(), 2));
}

#[test]
fn a_reservation_counts_and_is_sent_when_it_is_committed() {
    let (_place, queue) = Place::new().with_queue("/q", 2, 5000);
    let mut long = queue.try_reserve(5000).unwrap();
    let short = queue.try_reserve(0).unwrap();
    assert_eq!(counts(&queue), (0, 2, 0));
    assert_eq!(queue.try_send(b"", 0), Err(SendError::Full));
    drop(short);
    queue.try_send(b"first", 3).unwrap();
    assert_eq!(long.write_at(0, &[7; 6000]), 5000);
    long.commit(3).unwrap();
    assert_eq!(counts(&queue), (2, 0, 0));
    assert_eq!(queue.receive_vec().unwrap().data, b"first");
    assert_eq!(queue.receive_vec().unwrap().data, [7; 5000]);
    let mut cut = queue.reserve(5000).unwrap();
    cut.write_at(0, b"short after all");
    cut.truncate(5);
    cut.commit(0).unwrap();
    assert_eq!(queue.receive_lease().unwrap().to_vec(), b"short");
}

#[test]
fn a_limited_lease_ends_by_itself() {
    let (_place, queue) = Place::new().with_queue("/q", 2, 100);
    queue.try_send(b"job", 0).unwrap();
    let lease = queue.receive_lease().unwrap();
    lease.limit(Duration::from_millis(30)).unwrap();
    let again = queue.receive_lease_timeout(STUCK).unwrap();
    assert_eq!(again.deliveries(), 2);
    assert_eq!(lease.acknowledge(), Err(LeaseError::Ended));
    again.acknowledge().unwrap();
    assert_eq!(counts(&queue), (0, 0, 0));
}

#[test]
fn leases_of_dead_processes_come_back() {
    let (place, queue) = Place::new().with_queue("/q", 3, 100);
    for data in [b"a", b"b"] {
        queue.try_send(data, 4).unwrap();
    }
    let mut holder = Child::run(|| {
        let queue = place.open("/q");
        let _leases = [
            queue.receive_lease().unwrap(),
            queue.receive_lease().unwrap(),
        ];
        let _room = queue.reserve(10).unwrap();
        std::thread::sleep(STUCK);
        0
    });
    assert!(wait_until(STUCK, || counts(&queue) == (0, 1, 2)));
    assert_eq!(queue.try_receive_lease().unwrap_err(), ReceiveError::Empty);
    holder.signal(libc::SIGKILL);
    // The parent has not noticed the child's death yet.
    let first = queue.receive_lease_timeout(STUCK).unwrap();
    assert_eq!((first.to_vec(), first.deliveries()), (b"a".to_vec(), 2));
    assert_eq!(counts(&queue), (1, 0, 1));
    holder.expect(Exit::Signal(libc::SIGKILL), "the holder");
    first.acknowledge().unwrap();
}

#[test]
fn a_forked_child_does_not_own_its_parents_leases() {
    let (_place, queue) = Place::new().with_queue("/q", 2, 100);
    queue.try_send(b"job", 0).unwrap();
    let lease = queue.receive_lease().unwrap();
    let mut child = Child::run(|| {
        let refused = lease.limit(Duration::from_secs(1)) == Err(LeaseError::Ended);
        i32::from(!refused)
    });
    child.expect(Exit::Code(0), "the child");
    lease.acknowledge().unwrap();
}

#[test]
fn a_forked_child_does_not_write_into_its_parents_message() {
    let (_place, queue) = Place::new().with_queue("/q", 2, 100);
    let mut room = queue.reserve(6).unwrap();
    assert_eq!(room.write_at(0, b"parent"), 6);
    let mut child = Child::run(|| {
        room.truncate(3);
        room.write_at(0, b"child") as i32
    });
    child.expect(Exit::Code(0), "the child");
    room.commit(0).unwrap();
    assert_eq!(queue.receive_vec().unwrap().data, b"parent");
}

#[test]
fn a_blocked_reservation_gets_its_turn_among_blocked_senders() {
    let (_place, queue) = Place::new().with_queue("/q", 1, 100);
    queue.set_waiting(Waiting::Blocking);
    queue.send(b"first", 0).unwrap();
    let blocked = |senders| wait_until(STUCK, || queue.status().blocked_senders == senders);
    std::thread::scope(|scope| {
        scope.spawn(|| queue.send(b"second", 0).unwrap());
        assert!(blocked(1));
        scope.spawn(|| {
            let mut room = queue.reserve(5).unwrap();
            room.write_at(0, b"third");
            room.commit(0).unwrap();
        });
        assert!(blocked(2));
        scope.spawn(|| queue.send(b"fourth", 0).unwrap());
        assert!(blocked(3));
        for expected in ["first", "second", "third", "fourth"] {
            let received = queue.receive_vec().unwrap();
            assert_eq!(String::from_utf8(received.data).unwrap(), expected);
        }
    });
    let late = queue.reserve(1).unwrap();
    assert_eq!(
        queue
            .reserve_timeout(1, Duration::from_millis(20))
            .unwrap_err(),
        SendError::TimedOut
    );
    drop(late);
    assert_eq!(queue.status().blocked_senders, 0);
}

/// Returns whether a message that another process may hold can be leased within this time.
fn comes_back(queue: &Queue, time: Duration) -> bool {
    queue.receive_lease_timeout(time).is_ok()
}

#[test]
fn an_owner_that_executes_another_program_loses_its_leases() {
    let random = std::fs::read_to_string("/proc/sys/kernel/randomize_va_space").unwrap();
    if random.trim() == "0" {
        eprintln!("left out: addresses are not random here");
        return;
    }
    let (place, queue) = Place::new().with_queue("/q", 2, 100);
    queue.try_send(b"job", 0).unwrap();
    let mut holder = Child::run(|| {
        let queue = place.open("/q");
        let _held = (queue.receive_lease().unwrap(), queue.reserve(1).unwrap());
        // SAFETY: the strings end with a zero byte, and the lists of strings end with a null pointer.
        unsafe {
            let arguments = [c"sleep".as_ptr(), c"20".as_ptr(), std::ptr::null()];
            libc::execv(c"/bin/sleep".as_ptr(), arguments.as_ptr());
        }
        1
    });
    assert!(comes_back(&queue, STUCK));
    assert!(wait_until(STUCK, || counts(&queue) == (1, 0, 0)));
    holder.kill();
}

#[test]
fn a_process_whose_first_thread_has_ended_keeps_its_leases() {
    let (place, queue) = Place::new().with_queue("/q", 2, 100);
    queue.try_send(b"job", 0).unwrap();
    let mut holder = Child::run(|| {
        let place = &place;
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let queue = place.open("/q");
                let _lease = queue.receive_lease().unwrap();
                std::thread::sleep(STUCK);
            });
            // SAFETY: ends this thread alone; other threads use nothing on its stack except `place`, which stays.
            unsafe { libc::syscall(libc::SYS_exit, 0) };
        });
        0
    });
    let is_zombie = || {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", holder.pid())).unwrap();
        stat.contains(") Z ")
    };
    assert!(wait_until(STUCK, || counts(&queue).2 == 1 && is_zombie()));
    // Some slices are long enough for each process to find out whether the holder lives.
    assert!(!comes_back(&queue, Duration::from_millis(500)));
    assert_eq!(counts(&queue), (0, 0, 1));
    holder.kill();
    assert!(comes_back(&queue, STUCK));
}

#[test]
fn a_lease_that_finds_no_memory_leaves_the_message() {
    let (place, queue) = Place::new().with_queue("/q", 100, 100);
    (0..100).for_each(|number| queue.try_send(&[number], 5).unwrap());
    let limits = Limits {
        max_bytes: Some(1),
        ..Limits::default()
    };
    place.namespace.set_limits(&limits).unwrap();
    // The library remembers for a tenth of a second that there was no limit.
    std::thread::sleep(Duration::from_millis(150));
    // A new queue has one page of lease records.
    let leases: Vec<_> = (0..RECORDS)
        .map(|_| queue.try_receive_lease().unwrap())
        .collect();
    assert_eq!(
        queue.try_receive_lease().err(),
        Some(ReceiveError::Queue(QueueError::OverLimit))
    );
    assert_eq!(queue.receive_vec().unwrap().data, [RECORDS]);
    assert_eq!(
        queue.try_reserve(100).err(),
        Some(SendError::Queue(QueueError::OverLimit))
    );
    assert_eq!(counts(&queue), (99 - usize::from(RECORDS), 0, leases.len()));
    place.namespace.set_limits(&Limits::default()).unwrap();
    assert_eq!(queue.receive_lease().unwrap().to_vec(), [RECORDS + 1]);
}

#[test]
fn leases_that_are_dropped_in_any_order_leave_the_order_of_delivery() {
    const MESSAGES: u32 = 20_000;
    let (_place, queue) = Place::new().with_queue("/q", MESSAGES, 4);
    for number in 0..MESSAGES {
        queue.try_send(&number.to_le_bytes(), number % 2).unwrap();
    }
    let mut leases = Vec::new();
    for backwards in [false, true] {
        leases.extend((0..MESSAGES).map(|_| queue.try_receive_lease().unwrap()));
        assert_eq!(counts(&queue), (0, 0, MESSAGES as usize));
        if backwards {
            leases.reverse();
        }
        leases.clear();
    }
    let expected = (0..MESSAGES).filter(|number| number % 2 == 1);
    let expected = expected.chain((0..MESSAGES).filter(|number| number % 2 == 0));
    for number in expected {
        assert_eq!(queue.receive_vec().unwrap().data, number.to_le_bytes());
    }
}

#[test]
fn many_leases_of_many_dead_come_back_in_order() {
    const EACH: usize = 500;
    let (place, queue) = Place::new().with_queue("/q", 4 * EACH as u32, 4);
    for number in 0..4 * EACH as u32 {
        queue.try_send(&number.to_le_bytes(), 0).unwrap();
    }
    let mut holders: Vec<Child> = (0..4)
        .map(|_| {
            Child::run(|| {
                let queue = place.open("/q");
                let leases: Vec<_> = (0..EACH).map(|_| queue.receive_lease()).collect();
                std::thread::sleep(STUCK);
                drop(leases);
                0
            })
        })
        .collect();
    assert!(wait_until(STUCK, || counts(&queue).2 == 4 * EACH));
    holders.iter_mut().for_each(Child::kill);
    assert!(wait_until(STUCK, || counts(&queue).0 == 4 * EACH));
    for number in 0..4 * EACH as u32 {
        let lease = queue.receive_lease().unwrap();
        assert_eq!(
            (lease.to_vec(), lease.deliveries()),
            (number.to_le_bytes().to_vec(), 2)
        );
        lease.acknowledge().unwrap();
    }
}

#[test]
fn memory_for_the_records_is_counted() {
    let (_place, queue) = Place::new().with_queue("/q", 1000, 4);
    for _ in 0..1000 {
        queue.try_send(b"job", 0).unwrap();
    }
    let before = queue.status().memory;
    let leases: Vec<_> = (0..1000).map(|_| queue.try_receive_lease()).collect();
    // The lease records of the first page existed before these leases.
    assert!(queue.status().memory >= before + (1000 - u64::from(RECORDS)) * 48);
    drop(leases);
}

#[test]
fn a_sleeping_receiver_wakes_when_a_lease_ends_by_itself() {
    let (_place, queue) = Place::new().with_queue("/q", 2, 100);
    queue.set_waiting(Waiting::Blocking);
    queue.try_send(b"job", 0).unwrap();
    let mut lease = queue.receive_lease().unwrap();
    // The lease ends before the end of the slice, after which the receiver would check by itself. On a busy machine, some wake-ups come too late.
    let came_back = (0..50).any(|_| {
        lease.limit(Duration::from_millis(20)).unwrap();
        match queue.receive_lease_timeout(Duration::from_millis(60)) {
            Ok(again) => {
                assert_eq!(again.deliveries(), lease.deliveries() + 1);
                again.acknowledge().unwrap();
                true
            }
            Err(_) => {
                lease = queue.receive_lease_timeout(STUCK).unwrap();
                false
            }
        }
    });
    assert!(came_back);
}

/// Starts a child that holds a message or room, and reports this through another queue.
fn holder<T>(place: &Place, hold: impl FnOnce(&Queue) -> T) -> Child {
    let said = place.create("/held", 1, 1);
    let child = Child::run(|| {
        let queue = place.open("/q");
        let held = hold(&queue);
        said.try_send(b"", 0).unwrap();
        std::thread::sleep(STUCK * 10);
        drop(held);
        0
    });
    said.receive_vec_timeout(STUCK).unwrap();
    child
}

/// Waits for a message as a program with an event loop does: a wake-up may bring no message.
fn polled(queue: &Queue, descriptor: BorrowedFd<'_>) -> Vec<u8> {
    loop {
        assert!(is_ready_within(STUCK, descriptor, PollFlags::IN), "asleep");
        match queue.try_receive_vec() {
            Ok(message) => return message.data,
            Err(error) => assert_eq!(error, ReceiveError::Empty),
        }
    }
}

#[test]
fn a_poller_learns_that_the_holder_of_a_lease_was_killed() {
    let (place, queue) = Place::in_turn().with_queue("/q", 3, 8);
    let descriptor = queue.pollable().unwrap();
    // During the first lease, no helper checks the holders. During the second lease, the helper of this process does.
    for is_asleep in [false, true] {
        queue.try_send(b"job", 0).unwrap();
        let mut holder = holder(&place, |queue| {
            queue.try_receive_lease().map(std::mem::forget)
        });
        if is_asleep {
            assert_eq!(queue.try_receive_vec(), Err(ReceiveError::Empty));
            let soon = Duration::from_millis(250);
            assert!(!is_ready_within(soon, descriptor, PollFlags::IN));
        }
        holder.kill();
        assert_eq!(polled(&queue, descriptor), b"job");
    }
}

#[test]
fn a_poller_learns_that_a_lease_of_another_process_is_over() {
    let (place, queue) = Place::in_turn().with_queue("/q", 3, 8);
    let descriptor = queue.pollable().unwrap();
    queue.try_send(b"job", 0).unwrap();
    let _holder = holder(&place, |queue| {
        let lease = queue.try_receive_lease().unwrap();
        lease.limit(Duration::from_millis(300)).unwrap();
        std::mem::forget(lease);
    });
    assert_eq!(polled(&queue, descriptor), b"job");
}

#[test]
fn a_poller_learns_that_the_holder_of_a_reservation_was_killed() {
    let (place, queue) = Place::in_turn().with_queue("/q", 2, 8);
    let descriptor = queue.pollable().unwrap();
    queue.try_send(b"first", 0).unwrap();
    let mut holder = holder(&place, |queue| {
        std::mem::forget(queue.try_reserve(8).unwrap());
    });
    assert_eq!(queue.try_send(b"full", 0), Err(SendError::Full));
    let soon = Duration::from_millis(250);
    assert!(!is_ready_within(soon, descriptor, PollFlags::OUT));
    holder.kill();
    assert!(is_ready_within(STUCK, descriptor, PollFlags::OUT));
    queue.try_send(b"second", 0).unwrap();
}

/// Delays a process at a crash point.
fn linger() {
    std::thread::sleep(Duration::from_millis(50));
}

#[test]
fn a_message_that_is_handed_to_a_waiting_lease_counts_as_leased() {
    let (place, queue) = Place::in_turn().with_queue("/q", 2, 8);
    let done = place.create("/done", 1, 8);
    let mut holder = Child::run(|| {
        let (queue, done) = (place.open("/q"), place.open("/done"));
        // At this point, the receiver is awake, and does not have its message yet.
        umsg_shm::crash::arm_fuse("WAIT_WOKEN", linger);
        let lease = queue.receive_lease_timeout(STUCK).unwrap();
        done.receive_vec_timeout(STUCK).unwrap();
        lease.acknowledge().unwrap();
        0
    });
    assert!(wait_until(STUCK, || queue.status().blocked_receivers == 1));
    queue.try_send(b"job", 0).unwrap();
    for _ in 0..300 {
        let now = queue.attributes();
        // If the holder gets no CPU time, the message that was offered to it goes back to the queue after a slice.
        assert_eq!(now.messages + now.leased, 1);
        std::thread::sleep(Duration::from_millis(1));
    }
    done.try_send(b"", 0).unwrap();
    holder.expect(Exit::Code(0), "the holder");
    let now = queue.attributes();
    assert_eq!((now.messages, now.leased), (0, 0));
}

#[test]
fn a_queue_whose_descriptor_is_readable_counts_its_message() {
    let (place, queue) = Place::in_turn().with_queue("/q", 2, 8);
    let descriptor = queue.pollable().unwrap();
    let mut sender = Child::run(|| {
        let queue = place.open("/q");
        // At this point, the doorbell is rung, and the message is not sent yet.
        umsg_shm::crash::arm_fuse("BELL_RUNG", linger);
        queue.try_send(b"job", 0).unwrap();
        0
    });
    assert!(is_ready_within(STUCK, descriptor, PollFlags::IN));
    assert_eq!(queue.attributes().messages, 1);
    sender.expect(Exit::Code(0), "the sender");
}
