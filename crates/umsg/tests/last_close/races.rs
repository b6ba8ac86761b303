//! Queues that are removed while other processes open them, inspect them or are killed. No process keeps a queue that others do not find.

use super::*;
use crate::support::child::stop;
use crate::support::now;
use std::sync::atomic::AtomicU64;

/// The time for which several processes repeat the same work as fast as they can.
const HAMMERED: Duration = Duration::from_millis(700);

/// The time for which the last user of a queue waits for an inspection: 20 times 50 microseconds.
const INSPECTED: u64 = 1_000_000;

/// Opens or creates the queue, fails unless every other process would find the same queue, and closes it.
fn share(place: &Place) {
    let queue = create(place);
    for _ in 0..2 {
        let found = look(place).unwrap_or_else(|error| panic!("held, and not found: {error}"));
        assert_eq!(found.identity(), queue.identity(), "two of one name");
        std::thread::yield_now();
    }
}

/// Runs `work` in several threads of several processes.
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
fn an_inspection_keeps_no_last_user_from_removing_a_queue() {
    let place = Place::in_turn();
    let file = place.path().join("mq/q/queue");
    let end = Instant::now() + HAMMERED;
    // The time at which the current inspection began; 0 for none.
    let begun = AtomicU64::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while Instant::now() < end {
                // Imitates a call of `stale_files` that the scheduler interrupts.
                if let Ok(file) = File::open(&file) {
                    begun.store(now(), Ordering::SeqCst);
                    let _ = flock(&file, FlockOperation::NonBlockingLockExclusive);
                    std::thread::sleep(Duration::from_micros(50));
                }
                begun.store(0, Ordering::SeqCst);
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        let mut left = 0;
        while Instant::now() < end {
            drop(create(&place));
            let begun = begun.load(Ordering::SeqCst);
            // On a busy machine, the thread that inspects a queue may be interrupted for so long that many queues are left.
            let is_long = begun != 0 && now().saturating_sub(begun) > INSPECTED;
            left += u32::from(!is_long && file.exists());
        }
        // Each such interruption leaves at most one queue that is counted, because the inspection ends before the check.
        assert!(left <= 5, "{left} queues that no process had open");
    });
    expect_gone(&place);
}

#[test]
fn a_process_that_opens_while_the_last_user_closes_has_the_queue_that_others_find() {
    let place = Place::in_turn();
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
fn a_process_that_has_found_a_queue_and_is_overtaken_by_its_last_user_finds_it_no_more() {
    let place = Place::in_turn();
    let told = Shared::<Told>::new();
    let mut last = user(&place, &told);
    let point = "OPEN_FOUND";
    let mut killed = Child::run(|| {
        crash::arm(point, 1);
        open(&place).map_or(1, |_| 0)
    });
    killed.expect(Exit::Signal(libc::SIGKILL), point);
    let mut overtaken = Child::run(|| {
        crash::arm_fuse(point, stop);
        match open(&place) {
            Err(OpenError::NotFound) => 0,
            Ok(_) => panic!("it has a queue that others do not find"),
            Err(error) => panic!("{error}"),
        }
    });
    overtaken.expect_to_stop(point);
    told.end.store(1, Ordering::SeqCst);
    last.expect(Exit::Code(0), "the last user");
    expect_gone(&place);
    overtaken.signal(libc::SIGCONT);
    overtaken.expect(Exit::Code(0), "the process that found it");
}

#[test]
fn users_that_are_killed_at_any_time_leave_no_queue_that_others_do_not_find() {
    let place = Place::in_turn();
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
    println!("{} temporary directories", left.incomplete);
    expect_gone(&place);
    expect_nothing_else(&place, "after the sweep");
}

#[test]
fn no_process_that_ends_removes_a_queue_that_stays() {
    let place = Place::in_turn();
    let told = Shared::<Told>::new();
    hammer(|| {
        // Queues of both kinds get the name in turn. The creator of a lasting queue finds this queue by its name until the creator unlinks it.
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
fn a_process_killed_while_it_makes_or_removes_a_queue_blocks_no_other() {
    let _turn = turn();
    for point in [
        "CREATE_EMPTY",
        "CREATE_LABELLED",
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
            // An unlink does not check whether other processes have the queue open.
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
    let place = Place::in_turn();
    let mut maker = Child::run(|| {
        crash::arm("CREATE_HOUSED", 1);
        drop(create(&place));
        0
    });
    maker.expect(Exit::Signal(libc::SIGKILL), "the maker");
    assert_eq!(place.namespace.stale_files().unwrap().incomplete, 1);
    assert_eq!(place.namespace.sweep().unwrap().incomplete, 1);
    assert!(place.namespace.stale_files().unwrap().is_empty());
    expect_nothing_else(&place, "after the sweep");
}
