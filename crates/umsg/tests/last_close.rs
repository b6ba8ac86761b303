//! Queues that go when nobody has them open any more: the last of handles, threads and processes, however they end; and nobody is ever left
//! with a queue that others do not find under its name. The tests take turns: another's forked child would have this one's queue open.

mod support;

use rustix::fs::{FlockOperation, flock};
use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};
use support::child::{Child, Exit};
use support::place::Place;
use support::scarce::{become_nobody, in_child, is_root, leave_descriptors};
use support::shared::{Shared, Zeroed};
use support::{turn, wait_until};
use umsg::crash;
use umsg::posix::{self, Notify, OpenError, OpenOptions, Queue, RestoreError, Snapshot};

/// How long the hammering tests hammer.
const HAMMERED: Duration = Duration::from_millis(700);
const PATIENCE: Duration = Duration::from_secs(10);

fn options(place: &Place) -> OpenOptions {
    let mut options = OpenOptions::new();
    options.read(true).write(true).namespace(&place.namespace);
    options.max_messages(5).message_size(64);
    options
}

/// Creates the queue /q, which goes with its last user, or opens it.
fn create(place: &Place) -> Queue {
    let mut options = options(place);
    options.create(true).remove_on_last_close(true);
    options.open("/q").unwrap()
}

fn open(place: &Place) -> Result<Queue, OpenError> {
    options(place).open("/q")
}

/// A look that neither keeps nor removes it.
fn look(place: &Place) -> Result<Queue, OpenError> {
    options(place).counted(false).open("/q")
}

#[track_caller]
fn expect_gone(place: &Place) {
    // By name and by file: nothing is left to be swept.
    assert!(matches!(look(place), Err(OpenError::NotFound)));
    let left: Vec<_> = std::fs::read_dir(place.path().join("mq"))
        .unwrap()
        .collect();
    assert!(left.is_empty(), "{left:?}");
}

/// The namespace has its record and three directories.
#[track_caller]
fn expect_nothing_else(place: &Place, when: &str) {
    let count = std::fs::read_dir(place.path()).unwrap().count();
    assert_eq!(count, 4, "{when}: something was left in the namespace");
}

/// A child that has the queue open until it is told to end; then it closes it.
fn user(place: &Place, told: &Shared<Told>) -> Child {
    let has = told.opened.load(Ordering::SeqCst);
    let child = Child::run(|| {
        let queue = create(place);
        told.opened.fetch_add(1, Ordering::SeqCst);
        let _ = wait_until(PATIENCE, || told.end.load(Ordering::SeqCst) != 0);
        drop(queue);
        0
    });
    let opened = || told.opened.load(Ordering::SeqCst) > has;
    assert!(wait_until(PATIENCE, opened), "no child has it open");
    child
}

struct Told {
    opened: AtomicU32,
    end: AtomicU32,
}

// SAFETY: numbers.
unsafe impl Zeroed for Told {}

#[test]
fn the_last_of_several_handles_removes_the_queue_and_no_other_does() {
    let _turn = turn();
    let place = Place::new();
    let first = create(&place);
    assert!(first.status().remove_on_last_close);
    first.try_send(b"kept", 0).unwrap();
    let second = open(&place).unwrap();
    drop(first);
    let third = open(&place).unwrap();
    assert_eq!(third.attributes().messages, 1);
    drop(second);
    drop(look(&place).unwrap());
    assert_eq!(look(&place).unwrap().identity(), third.identity());
    drop(third);
    expect_gone(&place);
    let anew = create(&place);
    assert_eq!(anew.attributes().messages, 0);
    drop(anew);
    expect_gone(&place);
}

#[test]
fn the_last_of_several_processes_removes_the_queue() {
    let _turn = turn();
    let place = Place::new();
    let told = Shared::<Told>::new();
    let mut users = [user(&place, &told), user(&place, &told)];
    users[0].kill();
    assert!(look(&place).is_ok());
    told.end.store(1, Ordering::SeqCst);
    users[1].expect(Exit::Code(0), "the last user");
    expect_gone(&place);
}

#[test]
fn a_forked_child_has_the_queue_open_too() {
    let _turn = turn();
    let place = Place::new();
    let told = Shared::<Told>::new();
    let queue = create(&place);
    let mut child = Child::run(|| {
        let is_told = || told.end.load(Ordering::SeqCst) != 0;
        let _ = wait_until(PATIENCE, is_told);
        queue.try_send(b"from the child", 0).unwrap();
        // It ends without closing.
        0
    });
    let identity = queue.identity();
    drop(queue);
    assert_eq!(look(&place).unwrap().identity(), identity);
    told.end.store(1, Ordering::SeqCst);
    child.expect(Exit::Code(0), "the child");
    expect_gone(&place);
}

#[test]
fn a_child_that_executes_another_program_has_it_no_more() {
    let _turn = turn();
    let place = Place::new();
    let queue = create(&place);
    let mut sleeper = Command::new("sleep").arg("60").spawn().unwrap();
    drop(queue);
    expect_gone(&place);
    sleeper.kill().unwrap();
    sleeper.wait().unwrap();
}

#[test]
fn a_queue_whose_users_were_all_killed_goes_with_whoever_comes_by() {
    let _turn = turn();
    type Come = (&'static str, fn(&Place));
    let comes: &[Come] = &[
        ("lists the namespace", |place| {
            assert!(posix::list(&place.namespace).unwrap().is_empty());
        }),
        ("sweeps it", |place| {
            // Who only looks what is left leaves it there.
            for _ in 0..2 {
                assert_eq!(place.namespace.left_over().unwrap().queues, ["/q"]);
                let listed = posix::list_untouched(&place.namespace).unwrap();
                assert_eq!(listed.len(), 1);
                assert_eq!(listed[0].queue.as_ref().unwrap().attributes().messages, 1);
            }
            assert_eq!(place.namespace.sweep().unwrap().queues, ["/q"]);
            assert!(place.namespace.left_over().unwrap().is_empty());
            assert!(place.namespace.sweep().unwrap().is_empty());
        }),
        ("opens the queue", |place| {
            assert!(matches!(open(place), Err(OpenError::NotFound)));
        }),
        ("looks at the queue", |place| {
            assert!(matches!(look(place), Err(OpenError::NotFound)));
        }),
        ("creates it anew", |place| {
            let mut options = options(place);
            let queue = options.create(true).exclusive(true).open("/q").unwrap();
            assert_eq!(queue.attributes().messages, 0);
            assert!(!queue.status().remove_on_last_close);
            posix::unlink_in(&place.namespace, "/q").unwrap();
        }),
        ("creates another", |place| {
            let mut options = options(place);
            options.create(true).remove_on_last_close(true);
            drop(options.open("/other").unwrap());
        }),
        ("needs its room", |place| {
            let mut limits = place.namespace.limits().unwrap();
            limits.max_queues = 1;
            place.namespace.set_limits(&limits).unwrap();
            drop(options(place).create(true).open("/other").unwrap());
            posix::unlink_in(&place.namespace, "/other").unwrap();
        }),
    ];
    for (what, come) in comes {
        let place = Place::new();
        let told = Shared::<Told>::new();
        let mut users = [user(&place, &told), user(&place, &told)];
        users[0].kill();
        create(&place).try_send(b"left", 0).unwrap();
        assert!(look(&place).is_ok(), "one of them has it open");
        users[1].kill();
        assert!(place.path().join("mq/q/queue").exists(), "{what}");
        come(&place);
        expect_gone(&place);
    }
}

#[test]
fn a_queue_that_is_made_for_others_waits_for_the_first_of_them() {
    let _turn = turn();
    let place = Place::new();
    let mut options = options(&place);
    options.create(true).counted(false);
    let queue = options.remove_on_last_close(true).open("/q").unwrap();
    queue.try_send(b"for the first", 0).unwrap();
    drop(queue);
    assert_eq!(posix::list(&place.namespace).unwrap().len(), 1);
    assert!(place.namespace.sweep().unwrap().is_empty());
    drop(options.open("/q").unwrap());
    let first = open(&place).unwrap();
    assert_eq!(first.attributes().messages, 1);
    drop(first);
    expect_gone(&place);
}

#[test]
fn a_handle_that_was_refused_leaves_nothing_behind() {
    let _turn = turn();
    let place = Place::new();
    let mut none = options(&place);
    none.read(false).write(false);
    let queue = create(&place);
    assert!(matches!(none.open("/q"), Err(OpenError::NoAccessMode)));
    assert!(look(&place).is_ok());
    drop(queue);
    let mut options = options(&place);
    options.create(true).counted(false);
    drop(options.remove_on_last_close(true).open("/q").unwrap());
    assert!(matches!(none.open("/q"), Err(OpenError::NoAccessMode)));
    assert!(look(&place).is_ok(), "nobody has opened it");
}

#[test]
fn a_queue_is_held_without_a_descriptor_and_by_the_descriptor_of_none() {
    let _turn = turn();
    let place = Place::new();
    let mut child = Child::run(|| {
        // Standard output as the lowest number that is free: any descriptor that is kept would show.
        let lowest = || {
            use std::os::fd::AsRawFd;
            File::open("/dev/null").unwrap().as_raw_fd()
        };
        let before = lowest();
        let queue = create(&place);
        assert_eq!(lowest(), before);
        // SAFETY: nothing of this child's needs one, as it says.
        unsafe { libc::close_range(3, u32::MAX, 0) };
        assert!(place.namespace.sweep().unwrap().is_empty());
        assert_eq!(look(&place).unwrap().identity(), queue.identity());
        drop(queue);
        let mut options = options(&place);
        options.create(true).remove_on_last_close(true);
        for _ in 0..2 {
            // Made, and then found. A descriptor is no handle.
            let (queue, descriptor) = options.open_with_descriptor("/q", false).unwrap();
            let (other, _) = options.open_with_descriptor("/q", true).unwrap();
            drop(queue);
            let third = Queue::from_fd(descriptor.as_fd()).unwrap();
            drop(other);
            assert!(place.namespace.sweep().unwrap().is_empty());
            drop(third);
            assert!(matches!(look(&place), Err(OpenError::NotFound)));
            assert!(Queue::from_fd(descriptor.as_fd()).is_ok(), "unlinked");
        }
        0
    });
    child.expect(Exit::Code(0), "the child");
    expect_gone(&place);
}

#[test]
fn a_queue_is_found_by_its_descriptor_whatever_it_is_called() {
    let _turn = turn();
    let place = Place::new();
    for name in ["/mq", "/queue", "/.namespace"] {
        let mut options = options(&place);
        options.create(true).remove_on_last_close(true);
        let first = options.open(name).unwrap();
        // That of a queue that was there: who made it with the queue has one of a file without a name.
        let (queue, descriptor) = options.open_with_descriptor(name, false).unwrap();
        drop((first, Queue::from_fd(descriptor.as_fd()).unwrap()));
        let second = Queue::from_fd(descriptor.as_fd()).unwrap();
        drop(queue);
        let found = options.create(false).counted(false).open(name);
        let found = found.unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(found.identity(), second.identity(), "{name}");
        drop(second);
        expect_gone(&place);
    }
    expect_nothing_else(&place, "at the end");
}

#[test]
fn who_can_not_open_the_file_anew_has_the_queue_by_its_descriptor_all_the_same() {
    let _turn = turn();
    let place = Place::new();
    let _first = create(&place);
    let (queue, descriptor) = options(&place).open_with_descriptor("/q", false).unwrap();
    let use_it = || {
        let same = Queue::from_fd(descriptor.as_fd()).unwrap();
        same.try_send(b"m", 0).unwrap();
        assert_eq!(queue.receive_vec().unwrap().data, b"m");
        drop(same);
        0
    };
    in_child(|| {
        leave_descriptors(0);
        use_it()
    });
    if !is_root() {
        return;
    }
    allow_all(&place);
    in_child(|| {
        become_nobody();
        use_it()
    });
    assert_eq!(look(&place).unwrap().identity(), queue.identity());
}

#[test]
fn one_descriptor_is_enough_to_open_a_queue() {
    let _turn = turn();
    let place = Place::new();
    let queue = create(&place);
    in_child(|| {
        leave_descriptors(1);
        let other = open(&place).unwrap();
        assert_eq!(other.identity(), queue.identity());
        0
    });
}

/// Everybody may make and see queues there.
fn allow_all(place: &Place) {
    use std::os::unix::fs::PermissionsExt;
    for path in [place.path().to_owned(), place.path().join("mq")] {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o1777)).unwrap();
    }
}

#[test]
fn who_may_not_remove_a_queue_locks_it_at_no_time() {
    let _turn = turn();
    let place = Place::new();
    if !is_root() {
        return;
    }
    allow_all(&place);
    let told = Shared::<Told>::new();
    let mut user = user(&place, &told);
    let file = place.path().join("mq/q/queue");
    rustix::fs::chmod(&file, rustix::fs::Mode::from_raw_mode(0o666)).unwrap();
    user.kill();
    in_child(|| {
        become_nobody();
        // It would die with the lock.
        crash::arm("TRANSIENT_LOCKED", 1);
        assert!(place.namespace.sweep().unwrap().is_empty());
        assert!(place.namespace.left_over().unwrap().is_empty());
        assert_eq!(posix::list(&place.namespace).unwrap().len(), 1);
        0
    });
    assert_eq!(place.namespace.sweep().unwrap().queues, ["/q"]);
}

/// From now on the calls by which queues go with their last users kill this process.
fn forbid_the_calls() {
    let statement = |code: u32, k: i64| libc::sock_filter {
        code: code as u16,
        jt: 0,
        jf: 0,
        k: k as u32,
    };
    let is = |call: i64, skip: u8| libc::sock_filter {
        jt: skip,
        ..statement(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, call)
    };
    let mut filter = [
        // The number of the call, which comes first.
        statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0),
        is(libc::SYS_flock, 2),
        is(libc::SYS_mkdirat, 1),
        statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ALLOW.into()),
        statement(
            libc::BPF_RET | libc::BPF_K,
            libc::SECCOMP_RET_KILL_PROCESS.into(),
        ),
    ];
    let program = libc::sock_fprog {
        len: filter.len() as u16,
        filter: filter.as_mut_ptr(),
    };
    // SAFETY: settings of this process; the program is read during the call.
    let set = unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
            && libc::prctl(
                libc::PR_SET_SECCOMP,
                libc::SECCOMP_MODE_FILTER,
                &raw const program,
            ) == 0
    };
    assert!(set, "{}", std::io::Error::last_os_error());
}

#[test]
fn a_queue_that_stays_makes_none_of_the_calls_of_one_that_goes() {
    let _turn = turn();
    let place = Place::new();
    let _other = create(&place);
    for goes in [false, true] {
        let mut child = Child::run(|| {
            forbid_the_calls();
            let mut options = options(&place);
            options.create(true).remove_on_last_close(goes);
            let queue = options.open("/other").unwrap();
            queue.try_send(b"m", 0).unwrap();
            drop(queue);
            let again = options.open("/other").unwrap();
            assert_eq!(again.receive_vec().unwrap().data, b"m");
            drop(again);
            posix::unlink_in(&place.namespace, "/other").unwrap();
            0
        });
        let end = match goes {
            false => Exit::Code(0),
            true => Exit::Signal(libc::SIGSYS),
        };
        child.expect(end, "a child that may not lock");
    }
}

#[test]
fn a_queue_that_was_unlinked_meanwhile_takes_no_other_along() {
    let _turn = turn();
    let place = Place::new();
    let old = create(&place);
    posix::unlink_in(&place.namespace, "/q").unwrap();
    let new = create(&place);
    assert_ne!(old.identity(), new.identity());
    drop(old);
    assert_eq!(look(&place).unwrap().identity(), new.identity());
    posix::unlink_in(&place.namespace, "/q").unwrap();
    let plain = options(&place).create(true).open("/q").unwrap();
    drop(new);
    assert_eq!(look(&place).unwrap().identity(), plain.identity());
    drop(plain);
    assert!(look(&place).is_ok(), "it stays until it is unlinked");
}

#[test]
fn a_registration_keeps_its_queue_until_it_ends() {
    let _turn = turn();
    let place = Place::new();
    let queue = create(&place);
    // As C does: it is not bound to the handle.
    let ticket = queue.register(Notify::call(|_| ())).unwrap();
    assert_ne!(ticket, 0);
    let identity = queue.identity();
    drop(queue);
    assert!(look(&place).is_ok(), "the process waits for a message");
    posix::withdraw_notification(identity);
    let is_gone = || matches!(look(&place), Err(OpenError::NotFound));
    assert!(wait_until(PATIENCE, is_gone));
    expect_gone(&place);
}

#[test]
fn a_stopped_remover_is_waited_for_a_second() {
    let _turn = turn();
    let place = Place::new();
    let mut options = options(&place);
    options.create(true).counted(false);
    drop(options.remove_on_last_close(true).open("/q").unwrap());
    let file = File::open(place.path().join("mq/q/queue")).unwrap();
    rustix::fs::flock(&file, rustix::fs::FlockOperation::LockExclusive).unwrap();
    let begin = Instant::now();
    let refused = open(&place).unwrap_err();
    assert!(matches!(refused, OpenError::Leaving), "{refused}");
    assert_eq!(refused.errno(), libc::EAGAIN);
    assert!(begin.elapsed() >= Duration::from_millis(900));
    drop(file);
    drop(open(&place).unwrap());
    expect_gone(&place);
}

#[test]
fn a_snapshot_says_so_and_what_is_restored_of_it_goes_too() {
    let _turn = turn();
    let place = Place::new();
    let queue = create(&place);
    queue.try_send(b"saved", 3).unwrap();
    let mut bytes = Vec::new();
    queue.snapshot(&mut bytes).unwrap();
    let snapshot = Snapshot::read(&mut &bytes[..]).unwrap();
    assert!(snapshot.info().remove_on_last_close);
    let taken = snapshot.restore("/q", &options(&place)).unwrap_err();
    assert!(matches!(
        taken,
        RestoreError::Open(OpenError::AlreadyExists)
    ));
    drop(queue);
    expect_gone(&place);
    let restored = snapshot.restore("/q", &options(&place)).unwrap();
    assert!(restored.status().remove_on_last_close);
    assert_eq!(look(&place).unwrap().attributes().messages, 1);
    drop(restored);
    expect_gone(&place);
}

/// Opens or creates the queue, looks whether everybody else would find the same one, and closes it.
fn share(place: &Place) {
    let queue = create(place);
    for _ in 0..2 {
        let found = look(place).unwrap_or_else(|error| panic!("held, and not found: {error}"));
        assert_eq!(found.identity(), queue.identity(), "two of one name");
        std::thread::yield_now();
    }
}

/// Runs it in several threads of several processes.
fn hammer(work: impl Fn() + Sync) {
    let children: Vec<Child> = (0..3)
        .map(|_| {
            Child::run(|| {
                let end = Instant::now() + HAMMERED;
                std::thread::scope(|scope| {
                    for _ in 0..2 {
                        scope.spawn(|| {
                            while Instant::now() < end {
                                work();
                            }
                        });
                    }
                });
                0
            })
        })
        .collect();
    for mut child in children {
        child.expect(Exit::Code(0), "a hammering process");
    }
}

#[test]
fn a_repaired_queue_still_goes_with_its_last_user() {
    let _turn = turn();
    let place = Place::new();
    let queue = create(&place);
    queue.try_send(b"m", 0).unwrap();
    // Policies: what it does when it is full.
    let file = File::options()
        .write(true)
        .open(place.path().join("mq/q/queue"));
    file.unwrap().write_all_at(&[7], 6528).unwrap();
    let repaired = posix::repair(&place.namespace, "/q").unwrap();
    assert!(!repaired.before.is_healthy() && repaired.after.is_healthy());
    assert!(look(&place).unwrap().status().remove_on_last_close);
    drop(queue);
    expect_gone(&place);
}

#[test]
fn who_only_looks_at_what_is_left_keeps_no_last_user_from_removing_it() {
    let _turn = turn();
    let place = Place::new();
    let file = place.path().join("mq/q/queue");
    let end = Instant::now() + HAMMERED;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while Instant::now() < end {
                // As `left_over` does, which the scheduler interrupts.
                if let Ok(file) = File::open(&file) {
                    let _ = flock(&file, FlockOperation::NonBlockingLockExclusive);
                    std::thread::sleep(Duration::from_micros(50));
                }
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        let mut left = 0;
        while Instant::now() < end {
            drop(create(&place));
            left += u32::from(file.exists());
        }
        // Some where who looks is interrupted for long.
        assert!(left <= 5, "{left} queues that nobody had open");
    });
    expect_gone(&place);
}

#[test]
fn who_opens_while_the_last_user_closes_has_the_queue_that_others_find() {
    let _turn = turn();
    let place = Place::new();
    let told = Shared::<Told>::new();
    hammer(|| {
        share(&place);
        told.opened.fetch_add(1, Ordering::Relaxed);
    });
    let opened = told.opened.load(Ordering::Relaxed);
    println!("{opened} times opened and closed");
    expect_gone(&place);
}

#[test]
fn users_that_are_killed_at_any_time_leave_no_queue_that_others_do_not_find() {
    let _turn = turn();
    let place = Place::new();
    let end = Instant::now() + HAMMERED;
    let mut kills = 0;
    while Instant::now() < end {
        let mut victims: Vec<Child> = (0..2)
            .map(|_| {
                Child::run(|| {
                    loop {
                        share(&place);
                    }
                })
            })
            .collect();
        for _ in 0..5 {
            share(&place);
        }
        victims.iter_mut().for_each(Child::kill);
        share(&place);
        kills += victims.len();
    }
    println!("{kills} kills");
    let left = place.namespace.sweep().unwrap();
    assert!(left.queues.is_empty());
    println!("{} temporary directories", left.temporary);
    expect_gone(&place);
    expect_nothing_else(&place, "after the sweep");
}

#[test]
fn nobody_who_goes_takes_away_a_queue_that_stays() {
    let _turn = turn();
    let place = Place::new();
    let told = Shared::<Told>::new();
    hammer(|| {
        // Both kinds come to have the name; it is theirs who made one that stays, until they unlink it.
        drop(options(&place).open("/q"));
        let mut options = options(&place);
        let plain = options.create(true).exclusive(true);
        if let Ok(queue) = plain.open("/q") {
            for _ in 0..3 {
                let found = look(&place).unwrap_or_else(|error| panic!("taken away: {error}"));
                assert_eq!(found.identity(), queue.identity());
            }
            told.opened.fetch_add(1, Ordering::Relaxed);
            posix::unlink_in(&place.namespace, "/q").unwrap();
        }
        if let Ok(queue) = options.remove_on_last_close(true).open("/q") {
            drop(queue);
        }
    });
    let stayed = told.opened.load(Ordering::Relaxed);
    println!("{stayed} queues that stayed");
    assert!(stayed > 0);
    expect_gone(&place);
}

#[test]
fn who_is_killed_while_it_makes_or_removes_one_is_in_nobodys_way() {
    let _turn = turn();
    for point in [
        "CREATE_EMPTY",
        "CREATE_UNNAMED",
        "CREATE_HOUSED",
        "CREATE_NAMED",
        "TRANSIENT_LOCKED",
        "TRANSIENT_EMPTIED",
    ] {
        for explicit in [false, true] {
            let place = Place::new();
            let mut victim = Child::run(|| {
                crash::arm(point, 1);
                let queue = create(&place);
                if explicit {
                    posix::unlink_in(&place.namespace, "/q").unwrap();
                }
                drop(queue);
                0
            });
            // Who unlinks it asks nobody.
            let dies = !(explicit && point == "TRANSIENT_LOCKED");
            let end = match dies {
                true => Exit::Signal(libc::SIGKILL),
                false => Exit::Code(0),
            };
            victim.expect(end, point);
            assert!(posix::list(&place.namespace).unwrap().is_empty(), "{point}");
            assert!(matches!(open(&place), Err(OpenError::NotFound)), "{point}");
            let plain = options(&place).create(true).open("/q").unwrap();
            plain.try_send(b"hello", 0).unwrap();
            posix::unlink_in(&place.namespace, "/q").unwrap();
            drop(create(&place));
            expect_gone(&place);
            expect_nothing_else(&place, point);
        }
    }
}

#[test]
fn what_a_dead_maker_left_is_counted_and_swept() {
    let _turn = turn();
    let place = Place::new();
    let mut maker = Child::run(|| {
        crash::arm("CREATE_HOUSED", 1);
        drop(create(&place));
        0
    });
    maker.expect(Exit::Signal(libc::SIGKILL), "who makes it");
    let count = || std::fs::read_dir(place.path()).unwrap().count();
    assert_eq!(place.namespace.left_over().unwrap().temporary, 1);
    assert_eq!(count(), 5);
    assert_eq!(place.namespace.sweep().unwrap().temporary, 1);
    assert!(place.namespace.left_over().unwrap().is_empty());
    expect_nothing_else(&place, "after the sweep");
}
