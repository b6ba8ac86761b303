//! Many processes that make, find and remove System V queues at once; some of them killed or stopped.

mod support;

use std::collections::HashSet;
use std::fs;
use std::os::unix::fs::{FileExt, symlink};
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::time::{Duration, Instant};
use support::child::{Child, Exit};
use support::place::Place;
use support::shared::{Shared, Zeroed};
use support::users::{all_users, become_user};
use support::{Random, turn, wait_until};
use umsg::NamespaceError;
use umsg::sysv::{self, Change, ControlError, OpenError, OpenOptions, PRIVATE, Queue, Want};

const KEY: i32 = 0x1234;
const PROCESSES: usize = 8;
/// The limit on every wait: no step of these tests takes as long.
const STUCK: Duration = Duration::from_secs(20);

fn open(place: &Place, key: i32, exclusive: bool) -> Result<Queue, OpenError> {
    OpenOptions::new()
        .namespace(&place.namespace)
        .create(true)
        .exclusive(exclusive)
        .open(key)
}

fn find(place: &Place, key: i32) -> Result<Queue, OpenError> {
    OpenOptions::new().namespace(&place.namespace).open(key)
}

/// The start of a race, and the queues that its processes found.
#[derive(Default)]
#[repr(C)]
struct Race {
    ready: AtomicU32,
    go: AtomicU32,
    /// For each process, the identifier of its queue plus one; 0 if the process's call failed because the queue exists.
    found: [AtomicU32; PROCESSES],
}

// SAFETY: atomics only.
unsafe impl Zeroed for Race {}

/// The number of queues that each process of a race makes.
const EACH: usize = 60;

/// The identifiers that the processes of a race were given, plus one.
#[repr(C)]
struct Given([AtomicU32; EACH * PROCESSES]);

// SAFETY: atomics only.
unsafe impl Zeroed for Given {}

/// Makes all processes run `work` at the same moment.
fn race(race: &Race, work: impl Fn(usize)) {
    race.ready.store(0, SeqCst);
    race.go.store(0, SeqCst);
    let run = |number| {
        Child::run(|| {
            race.ready.fetch_add(1, SeqCst);
            while race.go.load(SeqCst) == 0 {
                std::thread::yield_now();
            }
            work(number);
            0
        })
    };
    let mut children: Vec<Child> = (0..PROCESSES).map(run).collect();
    assert!(wait_until(STUCK, || race.ready.load(SeqCst) == PROCESSES as u32));
    race.go.store(1, SeqCst);
    for child in &mut children {
        child.expect(Exit::Code(0), "a process of a race");
    }
}

#[test]
fn of_many_that_make_a_keys_queue_at_once_one_makes_it_and_all_get_it() {
    let place = Place::in_turn();
    let shared = Shared::<Race>::new();
    for round in 0..20 {
        race(&shared, |number| {
            let queue = open(&place, KEY, false).unwrap();
            queue.send(1 + number as i64, b"here").unwrap();
            shared.found[number].store(queue.id() as u32 + 1, SeqCst);
        });
        let ids: HashSet<u32> = shared.found.iter().map(|id| id.load(SeqCst)).collect();
        assert_eq!(ids.len(), 1, "round {round}: {ids:?}");
        assert_eq!(sysv::list(&place.namespace).unwrap().len(), 1);
        let queue = find(&place, KEY).unwrap();
        assert_eq!(queue.entry().unwrap().messages, PROCESSES as u64);
        queue.remove().unwrap();
    }
}

#[test]
fn of_many_that_want_a_new_queue_exactly_one_gets_it() {
    let place = Place::in_turn();
    let shared = Shared::<Race>::new();
    for round in 0..20 {
        race(&shared, |number| {
            let id = match open(&place, KEY, true) {
                Ok(queue) => queue.id() as u32 + 1,
                Err(OpenError::AlreadyExists) => 0,
                Err(error) => panic!("{error}"),
            };
            shared.found[number].store(id, SeqCst);
        });
        let mut found = shared.found.iter().map(|id| id.load(SeqCst));
        assert_eq!(found.by_ref().filter(|id| *id != 0).count(), 1, "{round}");
        find(&place, KEY).unwrap().remove().unwrap();
    }
}

#[test]
fn of_many_that_remove_a_queue_at_once_one_has_removed_it() {
    let place = Place::in_turn();
    let shared = Shared::<Race>::new();
    for round in 0..20 {
        let id = open(&place, KEY, true).unwrap().id();
        race(&shared, |number| {
            let removed = sysv::remove(&place.namespace, id);
            shared.found[number].store(u32::from(removed.is_ok()), SeqCst);
            if let Err(error) = removed {
                let errno = error.errno();
                assert!([libc::EINVAL, libc::EIDRM].contains(&errno), "{error}");
            }
        });
        let removed: u32 = shared.found.iter().map(|is| is.load(SeqCst)).sum();
        assert_eq!(removed, 1, "round {round}");
        assert_eq!(place.sysv_names(), [""; 0], "round {round}");
    }
}

#[test]
fn queues_without_a_key_that_are_made_at_once_are_all_distinct() {
    let place = Place::in_turn();
    let shared = Shared::<Race>::new();
    race(&shared, |_| {
        for _ in 0..20 {
            open(&place, PRIVATE, false).unwrap();
        }
    });
    let entries = sysv::list(&place.namespace).unwrap();
    let ids: HashSet<i32> = entries.iter().map(|entry| entry.id).collect();
    assert_eq!(ids.len(), PROCESSES * 20);
}

/// Returns a stopped process that holds the lock of its user until it is killed.
fn holder(place: &Place) -> Child {
    let shared = Shared::<Race>::new();
    let child = Child::run(|| {
        let own = rustix::process::geteuid().as_raw().to_string();
        let directory = fs::File::open(place.path().join("own").join(own).join("lock")).unwrap();
        rustix::fs::flock(&directory, rustix::fs::FlockOperation::LockExclusive).unwrap();
        shared.ready.store(1, SeqCst);
        loop {
            std::thread::sleep(STUCK);
        }
    });
    assert!(wait_until(STUCK, || shared.ready.load(SeqCst) == 1));
    child.signal(libc::SIGSTOP);
    child
}

#[test]
fn a_stopped_holder_of_the_lock_keeps_others_from_making_queues_and_from_nothing_else() {
    let place = Place::in_turn();
    let (queue, other) = (open(&place, KEY, false), open(&place, PRIVATE, false));
    let (queue, other) = (queue.unwrap(), other.unwrap());
    let mut stopped = holder(&place);

    assert_eq!(open(&place, KEY, false).unwrap().id(), queue.id());
    assert_eq!(sysv::list(&place.namespace).unwrap().len(), 2);
    queue.send(1, b"through").unwrap();
    assert_eq!(queue.receive(Want::Any, &mut [0; 8]).unwrap().len, 7);
    let before = Instant::now();
    let error = open(&place, KEY + 1, false).unwrap_err();
    assert!(before.elapsed() >= Duration::from_millis(1900));
    assert_eq!(error.errno(), libc::EBUSY);
    let OpenError::Namespace(NamespaceError::Busy { holder, .. }) = &error else {
        panic!("{error}");
    };
    assert!(holder.is_none_or(|holder| holder == stopped.pid() as u32));
    // The removal needs no lock. The names of the removed queue stay.
    other.remove().unwrap();
    assert_eq!(place.sysv_names(), ["0", "1", "k-00001234", "p-1"]);
    let gone = sysv::remove(&place.namespace, 1).unwrap_err();
    assert!(matches!(gone, ControlError::Open(OpenError::NoSuchId)));

    stopped.kill();
    // The names of the removed queue do not block any creation.
    for n in 0..80 {
        open(&place, PRIVATE, false).unwrap().remove().unwrap();
        assert_eq!(sysv::list(&place.namespace).unwrap().len(), 1, "{n}");
    }
    assert_eq!(place.sysv_names(), ["0", "k-00001234"]);
}

/// Users that take part where the tests run as root.
const VICTIM: u32 = 1001;
const STRANGER: u32 = 1002;

fn as_user(user: u32, work: impl FnOnce()) {
    let mut child = Child::run(|| {
        become_user(user);
        work();
        0
    });
    child.expect(Exit::Code(0), "a user");
}

/// Opens all files below a directory that can be opened, and locks them in every possible way.
fn lock_all(path: &Path, held: &mut Vec<fs::File>) {
    use rustix::fs::{FlockOperation, fcntl_lock, flock};
    let writable = fs::File::options().read(true).write(true).open(path);
    if let Ok(file) = writable.or_else(|_| fs::File::open(path)) {
        let _ = flock(&file, FlockOperation::NonBlockingLockExclusive);
        let _ = fcntl_lock(&file, FlockOperation::NonBlockingLockExclusive);
        held.push(file);
    }
    for entry in fs::read_dir(path).into_iter().flatten().flatten() {
        if !entry.file_type().unwrap().is_symlink() {
            lock_all(&entry.path(), held);
        }
    }
}

#[test]
fn the_locks_of_another_user_keep_no_process_from_making_changing_and_removing_queues() {
    let _turn = turn();
    let Some(place) = all_users() else { return };
    let shared = Shared::<Race>::new();
    as_user(VICTIM, || drop(open(&place, 1, true).unwrap()));
    drop(open(&place, 2, true).unwrap());
    let _stranger = Child::run(|| {
        become_user(STRANGER);
        let mut held = Vec::new();
        lock_all(place.path(), &mut held);
        shared.ready.store(1, SeqCst);
        loop {
            std::thread::sleep(STUCK);
        }
    });
    assert!(wait_until(STUCK, || shared.ready.load(SeqCst) == 1));
    for user in [VICTIM, 0, STRANGER + 1] {
        as_user(user, || {
            let queue = open(&place, KEY, true).unwrap();
            let change = Change {
                mode: Some(0o640),
                ..Change::default()
            };
            queue.set(&change).unwrap();
            queue.remove().unwrap();
        });
    }
    for user in [VICTIM, 0] {
        let key = if user == 0 { 2 } else { 1 };
        as_user(user, || find(&place, key).unwrap().remove().unwrap());
    }
    assert_eq!(place.sysv_names(), [""; 0]);
}

#[test]
fn of_many_users_that_want_a_keys_queue_one_gets_it_whichever_user_left_a_key_symlink() {
    let _turn = turn();
    let Some(place) = all_users() else { return };
    let users = [VICTIM, STRANGER, 0];
    let shared = Shared::<Race>::new();
    for round in 0..30 {
        // Only the owner of the key symlink, and root, may remove it. Other users wait for the removal.
        as_user(users[round % 2], || {
            symlink("77", place.path().join("msg/k-00001234")).unwrap()
        });
        race(&shared, |number| {
            become_user(users[number % users.len()]);
            let id = match open(&place, KEY, true) {
                Ok(queue) => queue.id() as u32 + 1,
                // The key symlink was removed too late for this process.
                Err(OpenError::AlreadyExists | OpenError::KeyTaken { .. }) => 0,
                Err(error) => panic!("{error}"),
            };
            shared.found[number].store(id, SeqCst);
        });
        let found = shared.found.iter().map(|id| id.load(SeqCst));
        let made: Vec<u32> = found.filter(|id| *id != 0).collect();
        assert_eq!(made.len(), 1, "round {round}");
        assert_eq!(sysv::list(&place.namespace).unwrap().len(), 1);
        let queue = find(&place, KEY).unwrap();
        assert_eq!(queue.id() as u32 + 1, made[0]);
        queue.remove().unwrap();
        assert_eq!(place.sysv_names(), [""; 0], "round {round}");
    }
}

#[test]
fn a_stranger_that_made_a_key_symlink_first_keeps_the_key_and_takes_no_queue_over() {
    let _turn = turn();
    let Some(place) = all_users() else { return };
    let elsewhere = Place::new();
    let at = |name: &str| place.path().join("msg").join(name);
    let plant = || symlink("77", at("k-00001234"));
    as_user(STRANGER, || plant().unwrap());
    as_user(VICTIM, || {
        let error = open(&place, KEY, false).unwrap_err();
        expect_error!(error, OpenError::KeyTaken { .. }, libc::EACCES);
    });
    // Root's creation of the queue removes the key symlink. Then the stranger can't create another key symlink in its place.
    let mut options = OpenOptions::new();
    options.namespace(&place.namespace).create(true).mode(0o666);
    let queue = options.open(KEY).unwrap();
    let theirs = open(&elsewhere, KEY, false).unwrap();
    let file = elsewhere.path().join(format!("msg/{}", theirs.id()));
    std::os::unix::fs::chown(&file, Some(STRANGER), Some(STRANGER)).unwrap();
    fs::hard_link(file, at("77")).unwrap();
    as_user(STRANGER, || {
        assert!(plant().is_err());
        assert!(fs::remove_file(at("k-00001234")).is_err());
        symlink("77", at("letter")).unwrap();
        assert!(fs::rename(at("letter"), at("k-00001234")).is_err());
        fs::rename(at("letter"), at("k-00001234-1")).unwrap();
    });
    for user in [VICTIM, STRANGER, 0] {
        as_user(user, || {
            assert_eq!(find(&place, KEY).unwrap().id(), queue.id(), "{user}");
            assert_eq!(open(&place, KEY, false).unwrap().id(), queue.id());
        });
    }
}

#[test]
fn a_stranger_that_removes_its_stale_symlink_leaves_the_key_to_the_next_maker() {
    let _turn = turn();
    let Some(place) = all_users() else { return };
    let link = place.path().join("msg/k-00001234");
    let shared = Shared::<Race>::new();
    as_user(STRANGER, || symlink("77", &link).unwrap());
    let mut victim = Child::run(|| {
        become_user(VICTIM);
        shared.ready.store(1, SeqCst);
        // The first attempt may end before the stranger comes to remove the key symlink.
        let made = wait_until(STUCK, || open(&place, KEY, true).is_ok());
        i32::from(!made)
    });
    assert!(wait_until(STUCK, || shared.ready.load(SeqCst) == 1));
    as_user(STRANGER, || {
        std::thread::sleep(Duration::from_millis(50));
        fs::remove_file(&link).unwrap();
    });
    victim.expect(Exit::Code(0), "the next maker");
    assert_eq!(place.sysv_names(), ["0", "k-00001234"]);
}

#[test]
fn identifiers_of_users_that_make_and_remove_queues_at_once_never_come_back() {
    let _turn = turn();
    let Some(place) = all_users() else { return };
    let given = Shared::<Given>::new();
    let start = Shared::<Race>::new();
    race(&start, |number| {
        become_user([VICTIM, STRANGER, 0][number % 3]);
        for n in 0..EACH {
            let queue = open(&place, PRIVATE, false).unwrap();
            given.0[number * EACH + n].store(queue.id() as u32 + 1, SeqCst);
            queue.remove().unwrap();
        }
    });
    let ids: HashSet<u32> = given.0.iter().map(|id| id.load(SeqCst)).collect();
    assert_eq!(ids.len(), EACH * PROCESSES);
}

#[test]
fn a_stopped_owner_of_a_queues_lock_keeps_no_other_queue_from_being_made() {
    /// The offset of the lock of the queue in its file; see docs/format.md.
    const LOCK: u64 = 256;
    let place = Place::in_turn();
    let queue = open(&place, KEY, false).unwrap();
    let sleeping = || -> i32 {
        loop {
            std::thread::sleep(STUCK);
        }
    };
    // The lock names a living process that never took the lock. This process stands for one that was stopped while it held the lock.
    let owner = Child::run(sleeping);
    let options = fs::File::options().write(true).clone();
    let file = options.open(place.path().join("msg/0")).unwrap();
    file.write_all_at(&owner.pid().to_le_bytes(), LOCK).unwrap();

    let mut maker = Child::run(|| {
        for _ in 0..50 {
            open(&place, PRIVATE, false).unwrap().remove().unwrap();
            std::thread::sleep(Duration::from_millis(20));
        }
        0
    });
    let change = Change {
        mode: Some(0o640),
        ..Change::default()
    };
    let busy = queue.set(&change).unwrap_err();
    assert_eq!(busy.errno(), libc::EAGAIN, "{busy}");
    maker.expect(Exit::Code(0), "a maker of other queues");

    file.write_all_at(&[0; 4], LOCK).unwrap();
    queue.set(&change).unwrap();
    assert_eq!(queue.entry().unwrap().mode, 0o640);
    // The queue's owner need not wait for the process that the lock names.
    file.write_all_at(&owner.pid().to_le_bytes(), LOCK).unwrap();
    sysv::remove(&place.namespace, queue.id()).unwrap();
    assert!(queue.is_removed() && place.sysv_names().is_empty());
}

#[test]
fn a_child_that_is_forked_while_the_lock_is_held_does_not_keep_it() {
    let place = Place::in_turn();
    let shared = Shared::<Race>::new();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while shared.go.load(SeqCst) == 0 {
                open(&place, PRIVATE, false).unwrap().remove().unwrap();
            }
        });
        // Some processes are forked in the middle of a call, and continue to live.
        let sleeping = || -> i32 {
            loop {
                std::thread::sleep(STUCK);
            }
        };
        let children: Vec<Child> = (0..40)
            .map(|_| {
                std::thread::sleep(Duration::from_micros(300));
                Child::run(sleeping)
            })
            .collect();
        shared.go.store(1, SeqCst);
        open(&place, KEY, false).unwrap();
        drop(children);
    });
}

/// Makes, finds, uses and removes queues of a few keys; each result has to be a possible one.
fn live(place: &Place, seed: u64, mut goes_on: impl FnMut() -> bool) {
    let mut random = Random::new(seed);
    while goes_on() {
        let key = match random.below(4) {
            0 => PRIVATE,
            key => key as i32,
        };
        let queue = match random.below(3) {
            0 => find(place, key),
            1 => open(place, key, true),
            _ => open(place, key, false),
        };
        match queue {
            Ok(queue) => use_and_remove(place, &queue, key, random.below(2) == 0 || key == PRIVATE),
            Err(OpenError::NotFound | OpenError::AlreadyExists) => {}
            Err(error) => panic!("{error:?}"),
        }
    }
}

fn use_and_remove(place: &Place, queue: &Queue, key: i32, remove: bool) {
    assert_eq!(queue.key(), key);
    match queue.try_send(1, b"x") {
        Ok(()) | Err(sysv::SendError::Removed | sysv::SendError::Full) => {}
        Err(error) => panic!("{error:?}"),
    }
    if remove {
        let id = queue.id();
        match sysv::remove(&place.namespace, id) {
            Ok(()) => {}
            Err(error) if [libc::EIDRM, libc::EINVAL].contains(&error.errno()) => {}
            Err(error) => panic!("{error:?}"),
        }
    }
}

#[test]
fn processes_killed_at_random_leave_nothing_that_others_trip_over() {
    let place = Place::in_turn();
    let shared = Shared::<Race>::new();
    let mut random = Random::new(7);
    let run = |seed: u64| Child::run(|| (live(&place, seed, || true), 0).1);
    let mut bystanders: Vec<Child> = (0..2)
        .map(|seed| Child::run(|| (live(&place, seed, || shared.go.load(SeqCst) == 0), 0).1))
        .collect();
    for round in 0..200 {
        let mut victim = run(100 + round);
        std::thread::sleep(Duration::from_micros(500 + random.below(3000)));
        victim.kill();
    }
    shared.go.store(1, SeqCst);
    for bystander in &mut bystanders {
        bystander.expect(Exit::Code(0), "a bystander");
    }

    // Each key has one queue or none, and each listed queue can be opened by its identifier.
    for entry in sysv::list(&place.namespace).unwrap() {
        let queue = OpenOptions::new()
            .namespace(&place.namespace)
            .open_id(entry.id)
            .unwrap();
        assert_eq!(queue.key(), entry.key);
        if entry.key != PRIVATE {
            assert_eq!(find(&place, entry.key).unwrap().id(), entry.id);
        }
        queue.remove().unwrap();
    }
    // The next processes remove all remains of dead processes.
    for key in 1..4 {
        open(&place, key, true).unwrap().remove().unwrap();
    }
    for _ in 0..200 {
        open(&place, PRIVATE, false).unwrap().remove().unwrap();
    }
    assert_eq!(place.sysv_names(), [""; 0]);
}
