//! System V queues that a process creates in the segments of queues that it has removed, as the drop-in does. The new queues contain no data of the
//! removed queues. No identifier and no handle of a removed queue leads to a new queue. A killed process leaves nothing that prevents later calls.

mod support;

use std::collections::HashSet;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};
use support::child::{Child, Exit};
use support::place::Place;
use support::shared::{Shared, Zeroed};
use umsg::sysv::{self, OpenError, OpenOptions, PRIVATE, Queue, Until, Want, raw};
use umsg::{Limits, Namespace};
use umsg_shm::crash;

const KEY: i32 = 0x1234;
const CREATE: i32 = libc::IPC_CREAT | 0o600;
/// The limit on every wait: no step of these tests takes as long.
const STUCK: Duration = Duration::from_secs(20);
/// A process that creates this number of queues uses every index.
const ROUND: usize = 70;

/// Identifiers of queues, each plus one; 0 where there is none.
struct Ids([AtomicU32; 200]);

// SAFETY: the type consists of atomics, for which zeroes are valid.
unsafe impl Zeroed for Ids {}

/// Runs `work` in a process that uses the namespace of the place, as a program on the drop-in does.
fn program(place: &Place, work: impl FnOnce() -> i32) -> Child {
    let path = place.path().to_owned();
    Child::run(move || {
        // SAFETY: the child has one thread.
        unsafe { std::env::set_var("UMSG_DIR", path) };
        // The record of limits has to be older than some ticks of the clock.
        std::thread::sleep(Duration::from_millis(40));
        work()
    })
}

#[track_caller]
fn run(place: &Place, what: &str, work: impl FnOnce()) {
    let mut child = program(place, || {
        work();
        0
    });
    child.expect(Exit::Code(0), what);
}

/// Creates a queue.
fn get(key: i32) -> i32 {
    raw::revived(key, CREATE).unwrap_or_else(|| raw::get(key, CREATE).unwrap())
}

/// Removes a queue. Returns whether this process keeps the queue's segment for another queue.
fn remove(id: i32) -> bool {
    let kept = raw::remove_and_keep(id);
    if !kept {
        raw::msgctl_remove_own(id).unwrap();
    }
    kept
}

/// Creates and removes a queue; from then on, the process keeps the segments of queues that it removes. Creates another queue, and returns its
/// identifier.
fn warm_up(key: i32) -> i32 {
    remove(get(key));
    get(key)
}

fn send(id: i32, text: &[u8]) {
    raw::msgsnd(id, 7, text, libc::IPC_NOWAIT, Until::Now).unwrap();
}

fn receive(id: i32) -> Result<Vec<u8>, i32> {
    let mut buffer = [0; 128];
    let received = raw::msgrcv(id, &mut buffer, 0, libc::IPC_NOWAIT, Until::Now)?;
    Ok(buffer[..received.len].to_vec())
}

fn find(namespace: &Namespace, id: i32) -> Result<Queue, OpenError> {
    OpenOptions::new().namespace(namespace).open_id(id)
}

fn index(id: i32) -> i32 {
    id % 32_768
}

/// Fails if any call finds a queue in the namespace.
fn expect_none(namespace: &Namespace, id: i32, what: &str) {
    assert!(sysv::list(namespace).unwrap().is_empty(), "{what}");
    assert_eq!(sysv::totals(namespace).unwrap().queues, 0, "{what}");
    let info = sysv::ipc_info(namespace).unwrap();
    assert_eq!(info.highest_index, 0, "{what}");
    let found = find(namespace, id);
    assert!(matches!(found, Err(OpenError::NoSuchId)), "{what}");
    let found = OpenOptions::new().namespace(namespace).open(KEY);
    assert!(matches!(found, Err(OpenError::NotFound)), "{what}");
    assert!(sysv::diagnose_id(namespace, id).is_err(), "{what}");
    let stat = sysv::msg_stat(namespace, index(id), true);
    assert_eq!(stat.unwrap_err().errno(), libc::EINVAL, "{what}");
    let removed = sysv::remove(namespace, id).unwrap_err();
    assert_eq!(removed.errno(), libc::EINVAL, "{what}");
}

#[test]
fn each_queue_of_a_segment_is_new_and_no_old_identifier_leads_to_it() {
    let place = Place::new();
    run(&place, "a creator", || {
        for key in [PRIVATE, KEY] {
            let first = get(key);
            assert_eq!(remove(first), key == KEY, "nothing is kept at first");
            let first = get(key);
            let (mut id, mut seen, mut kept, mut files) = (first, HashSet::new(), 0, 1);
            for round in 0..1500u32 {
                assert!(seen.insert(id), "{id} was another queue's");
                assert_eq!(receive(id), Err(libc::ENOMSG));
                let (_, entry) = raw::msgctl_stat(id, libc::IPC_STAT).unwrap();
                assert_eq!((entry.id, entry.key, entry.messages), (id, key, 0));
                assert_eq!((entry.last_send, entry.last_sender), (None, 0));
                assert_eq!(entry.qbytes, 16_384);
                // Messages in cells and in blocks, of several types.
                send(id, &round.to_le_bytes());
                send(id, &[round as u8; 100]);
                assert_eq!(receive(id).unwrap(), round.to_le_bytes());
                if round % 100 == 0 {
                    let other = find(&place.namespace, id).unwrap();
                    assert_eq!((other.id(), other.entry().unwrap().messages), (id, 1));
                    assert_eq!(sysv::list(&place.namespace).unwrap()[0].id, id);
                    let info = sysv::ipc_info(&place.namespace).unwrap();
                    assert_eq!(info.highest_index, index(id));
                    let report = sysv::diagnose_id(&place.namespace, id).unwrap();
                    assert!(report.is_healthy(), "{report:?}");
                }
                kept += u32::from(remove(id));
                assert_eq!(receive(id), Err(libc::EINVAL));
                if round % 100 == 1 {
                    expect_none(&place.namespace, id, "a kept segment");
                }
                let next = get(key);
                files += u32::from(index(next) != index(id));
                id = next;
            }
            assert!(kept > 1490 && files < 6, "{kept} kept, {files} files");
            remove(id);
            raw::give_up_kept();
            assert_eq!(place.sysv_names(), [""; 0]);
        }
    });
}

#[test]
fn a_kept_segment_has_no_byte_of_a_message() {
    let place = Place::new();
    run(&place, "a creator", || {
        let id = warm_up(PRIVATE);
        for length in [8, 100, 3000] {
            send(id, &vec![0xA5; length]);
        }
        receive(id).unwrap();
        assert!(remove(id));
        let file = place.path().join("msg").join(index(id).to_string());
        let file = std::fs::File::open(file).unwrap();
        // Only the data between the holes is read, because the file has holes of gigabytes.
        let mut at = 0;
        while let Ok(begin) = rustix::fs::seek(&file, rustix::fs::SeekFrom::Data(at)) {
            let end = rustix::fs::seek(&file, rustix::fs::SeekFrom::Hole(begin)).unwrap();
            let mut bytes = vec![0; (end - begin) as usize];
            file.read_exact_at(&mut bytes, begin).unwrap();
            assert!(!bytes.windows(4).any(|four| four == [0xA5; 4]));
            at = end;
        }
        assert!(at > 0);
    });
}

#[test]
fn handles_of_other_processes_find_their_queue_removed() {
    let place = Place::new();
    run(&place, "a creator", || {
        let id = warm_up(PRIVATE);
        let other = find(&place.namespace, id).unwrap();
        other.try_send(3, b"old").unwrap();
        assert!(remove(id));
        for _ in 0..2 {
            assert!(other.is_removed());
            assert_eq!(other.id(), id);
            assert_eq!(other.try_send(3, b"x").unwrap_err().errno(), libc::EIDRM);
            let received = other.try_receive(Want::Any, &mut [0; 9]);
            assert_eq!(received.unwrap_err().errno(), libc::EIDRM);
            assert!(other.entry().is_err() && other.status().is_err());
            assert!(other.try_receive_lease(Want::Any).is_err());
            let next = get(PRIVATE);
            assert!(next != id && index(next) == index(id));
            assert_eq!(receive(next), Err(libc::ENOMSG));
            assert_eq!(sysv::list(&place.namespace).unwrap().len(), 1);
            assert!(remove(next));
        }
        assert_eq!(other.remove().unwrap_err().errno(), libc::EIDRM);
    });
}

#[test]
fn a_process_that_needs_the_key_or_the_room_takes_the_segment() {
    let place = Place::new();
    let limits = Limits {
        msgmni: 1,
        ..Limits::default()
    };
    place.namespace.set_limits(&limits).unwrap();
    run(&place, "a creator", || {
        for key in [KEY, PRIVATE] {
            let id = warm_up(KEY);
            assert!(remove(id));
            let mut options = OpenOptions::new();
            options.namespace(&place.namespace).create(true);
            let other = options.open(key).unwrap();
            assert!(raw::revived(KEY, CREATE).is_none());
            other.try_send(1, b"x").unwrap();
            assert_eq!(raw::get(KEY, CREATE).is_ok(), key == KEY);
            other.remove().unwrap();
            raw::give_up_kept();
            assert_eq!(place.sysv_names(), [""; 0]);
        }
    });
}

#[test]
fn a_segment_with_other_users_or_references_is_not_kept() {
    let place = Place::new();
    run(&place, "a creator", || {
        let id = warm_up(PRIVATE);
        let change = sysv::Change {
            mode: Some(0o666),
            ..sysv::Change::default()
        };
        raw::find(id).unwrap().set(&change).unwrap();
        assert!(!remove(id), "its rights were changed");
        let open = raw::get(PRIVATE, libc::IPC_CREAT | 0o640).unwrap();
        assert!(!remove(open), "another mode");
        let id = get(PRIVATE);
        send(id, b"x");
        let used = raw::find(id).unwrap();
        let lease = used.try_receive_lease(Want::Any).unwrap();
        assert!(!remove(id), "a lease");
        drop(lease);
        let id = get(PRIVATE);
        let used = raw::find(id).unwrap();
        used.pollable().unwrap();
        assert!(!remove(id), "a poller");
        let id = get(PRIVATE);
        (0..300).for_each(|_| send(id, b""));
        assert!(!remove(id), "many messages");
        assert!(remove(get(PRIVATE)));
    });
}

#[test]
fn a_segment_whose_file_or_limits_were_changed_is_not_used_again() {
    let place = Place::new();
    run(&place, "a creator", || {
        let in_msg = |name: String| place.path().join("msg").join(name);
        let settle = || std::thread::sleep(Duration::from_millis(60));
        let expect = |what: &str, change: &dyn Fn(i32)| {
            let id = warm_up(PRIVATE);
            assert!(remove(id), "{what}");
            let again = get(PRIVATE);
            assert_eq!(index(again), index(id), "{what}: unchanged");
            assert!(remove(again));
            change(index(id));
            settle();
            let next = get(PRIVATE);
            assert_ne!(index(next), index(id), "{what}");
            assert_eq!(find(&place.namespace, next).unwrap().id(), next, "{what}");
            remove(next);
            raw::give_up_kept();
        };
        expect("its mode", &|index| {
            let path = in_msg(index.to_string());
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o666)).unwrap();
        });
        expect("its symlink", &|index| {
            std::fs::remove_file(in_msg(format!("p-{index}"))).unwrap();
        });
        expect("its file", &|index| {
            std::fs::remove_file(in_msg(index.to_string())).unwrap();
        });
        expect("the limits", &|_| {
            let limits = Limits {
                msgmnb: 4096,
                ..Limits::default()
            };
            place.namespace.set_limits(&limits).unwrap();
        });
    });
}

#[test]
fn a_process_killed_while_it_recycles_leaves_a_whole_queue_or_none() {
    for point in ["MSG_VACATED", "MSG_EMPTIED", "MSG_REFILLED", "MSG_REVIVED"] {
        for key in [PRIVATE, KEY] {
            let place = Place::new();
            let ids = Shared::<Ids>::new();
            let mut victim = program(&place, || {
                let id = warm_up(key);
                send(id, &[1; 100]);
                ids.0[0].store(id as u32 + 1, Ordering::Relaxed);
                crash::arm(point, 1);
                assert!(remove(id));
                get(key);
                0
            });
            victim.expect(Exit::Signal(libc::SIGKILL), point);
            let id = ids.0[0].load(Ordering::Relaxed) as i32 - 1;
            let namespace = &place.namespace;
            if point == "MSG_REVIVED" {
                let [entry] = sysv::list(namespace).unwrap()[..] else {
                    panic!("{point}");
                };
                assert!(entry.id != id && index(entry.id) == index(id), "{point}");
                let queue = find(namespace, entry.id).unwrap();
                queue.try_send(3, b"whole").unwrap();
                assert_eq!(queue.try_receive(Want::Any, &mut [0; 9]).unwrap().len, 5);
                assert!(matches!(find(namespace, id), Err(OpenError::NoSuchId)));
                queue.remove().unwrap();
            }
            expect_none(namespace, id, point);
            let mut options = OpenOptions::new();
            options.namespace(namespace).create(true);
            let queue = options.open(KEY).unwrap();
            queue.try_send(1, b"x").unwrap();
            queue.remove().unwrap();
            for _ in 0..ROUND {
                options.open(PRIVATE).unwrap().remove().unwrap();
            }
            assert_eq!(place.sysv_names(), [""; 0], "{point}");
        }
    }
}

#[test]
fn a_process_killed_while_it_takes_a_segment_leaves_none() {
    let place = Place::new();
    run(&place, "a creator", || {
        let id = warm_up(KEY);
        assert!(remove(id));
        let mut taker = Child::run(|| {
            crash::arm("MSG_TAKEN", 1);
            let mut options = OpenOptions::new();
            options.namespace(&place.namespace).create(true);
            drop(options.open(KEY));
            0
        });
        taker.expect(Exit::Signal(libc::SIGKILL), "MSG_TAKEN");
        expect_none(&place.namespace, id, "MSG_TAKEN");
        assert!(raw::revived(KEY, CREATE).is_none());
        let next = get(KEY);
        assert_ne!(index(next), index(id));
        send(next, b"x");
        remove(next);
    });
}

#[test]
fn a_forked_child_and_its_parent_make_different_queues() {
    let place = Place::new();
    run(&place, "a creator", || {
        let (old, kept) = (warm_up(PRIVATE), get(PRIVATE));
        send(old, b"old");
        assert!(remove(kept));
        let ids = Shared::<Ids>::new();
        let make = |from: usize| {
            for at in (from..200).step_by(2) {
                let id = get(PRIVATE);
                assert_eq!(receive(id), Err(libc::ENOMSG));
                send(id, &id.to_le_bytes());
                ids.0[at].store(id as u32 + 1, Ordering::Relaxed);
                assert_eq!(receive(id).unwrap(), id.to_le_bytes());
                remove(id);
            }
        };
        let mut child = Child::run(|| {
            make(0);
            raw::give_up_kept();
            0
        });
        make(1);
        child.expect(Exit::Code(0), "the child");
        let made: HashSet<u32> = ids.0.iter().map(|id| id.load(Ordering::Relaxed)).collect();
        assert!(made.len() == 200 && !made.contains(&0), "{}", made.len());
        assert_eq!(receive(old).unwrap(), b"old");
        let mut child = Child::run(|| {
            while receive(old) == Err(libc::ENOMSG) {}
            i32::from(receive(old) != Err(libc::EINVAL))
        });
        assert!(remove(old));
        for _ in 0..100 {
            let id = get(PRIVATE);
            send(id, b"not for the child");
            remove(id);
        }
        child.expect(Exit::Code(0), "a child with an old identifier");
    });
}

/// The current queue's identifier plus one, and the state of the test.
#[repr(C)]
struct Board {
    id: AtomicU32,
    is_over: AtomicBool,
    /// The number of times that each of the other processes has used a queue.
    met: [AtomicU32; 2],
}

// SAFETY: the type consists of atomics, for which zeroes are valid.
unsafe impl Zeroed for Board {}

/// Other processes attach, send, receive and list while a process recycles queues. Each message names its queue.
#[test]
fn others_beside_a_creator_meet_only_the_queue_of_their_identifier() {
    let place = Place::new();
    let board = Shared::<Board>::new();
    let mut others: Vec<Child> = (0..2)
        .map(|which| Child::run(|| disturb(&place.namespace, &board, which)))
        .collect();
    run(&place, "a creator", || {
        let mut id = warm_up(PRIVATE);
        let (end, mut kept, mut rounds) = (Instant::now() + Duration::from_secs(2), 0, 0);
        let mut again = 0;
        // On a busy machine, the processes may need longer to meet a queue, and this process to make enough queues.
        let have_met = || board.met.iter().all(|met| met.load(Ordering::Relaxed) != 0);
        let goes_on = |again| match Instant::now() {
            now if now < end => true,
            now => now < end + STUCK && !(again > 100 && have_met()),
        };
        while goes_on(again) {
            board.id.store(id as u32 + 1, Ordering::Release);
            if rounds % 3 != 0 {
                send(id, &id.to_le_bytes());
            }
            if rounds % 7 == 0 {
                std::thread::yield_now();
            }
            while let Ok(message) = receive(id) {
                assert_eq!(message, id.to_le_bytes(), "for another queue");
            }
            kept += u32::from(remove(id));
            rounds += 1;
            let next = get(PRIVATE);
            again += u32::from(index(next) == index(id));
            id = next;
        }
        assert!(again > 100, "{again} again, {kept} kept, {rounds} made");
        remove(id);
    });
    board.is_over.store(true, Ordering::Relaxed);
    for other in &mut others {
        other.expect(Exit::Code(0), "another process");
    }
}

fn disturb(namespace: &Namespace, board: &Board, which: u32) -> i32 {
    let mut old: Vec<Queue> = Vec::new();
    let met = &board.met[which as usize];
    while !board.is_over.load(Ordering::Relaxed) {
        let Some(id) = board.id.load(Ordering::Acquire).checked_sub(1) else {
            continue;
        };
        match find(namespace, id as i32) {
            Ok(queue) => {
                assert_eq!(queue.id(), id as i32);
                old.push(queue);
            }
            Err(error) => assert!(matches!(error, OpenError::NoSuchId), "{error}"),
        }
        for queue in &old {
            let mine = queue.id().to_le_bytes();
            let mut buffer = [0; 16];
            match which {
                0 => _ = met.fetch_add(queue.try_send(1, &mine).is_ok().into(), Ordering::Relaxed),
                _ => {
                    if let Ok(received) = queue.try_receive(Want::Any, &mut buffer) {
                        assert_eq!(buffer[..received.len], mine, "for another queue");
                        met.fetch_add(1, Ordering::Relaxed);
                    }
                }
            }
            if let Ok(entry) = queue.entry() {
                assert_eq!(entry.id, queue.id());
            }
        }
        if old.len() > 4 {
            old.remove(0);
        }
        let listed = sysv::list(namespace).unwrap();
        assert!(listed.len() <= 2, "{listed:?}");
    }
    i32::from(met.load(Ordering::Relaxed) == 0)
}
