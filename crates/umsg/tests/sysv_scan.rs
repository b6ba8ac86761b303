//! Repeated calls for sums and lists of System V queues: the data that a process keeps between the calls are never out of date.

mod support;

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::time::Duration;
use support::Random;
use support::child::{self, Child, Exit};
use support::place::Place;
use support::scan::{SETTLED, alone, sums, totals};
use support::users::{Everybodys, as_user};
use umsg::Limits;
use umsg::sysv::{self, Change, Until, raw};

/// Returns the number of headers that this process has mapped.
fn mapped(place: &Place) -> usize {
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    let msg = place.namespace.path().join("msg");
    let is_header = |line: &&str| {
        let (range, _) = line.split_once(' ').unwrap();
        let (start, end) = range.split_once('-').unwrap();
        let at = |text| u64::from_str_radix(text, 16).unwrap();
        at(end) - at(start) == 4096 && line.contains(msg.to_str().unwrap())
    };
    maps.lines().filter(is_header).count()
}

/// Asks for the sums twice. Fails unless the process has then mapped the headers of this number of queues.
fn settle(place: &Place, queues: usize) {
    std::thread::sleep(SETTLED);
    totals(place);
    totals(place);
    assert_eq!(mapped(place), queues);
}

#[test]
fn counts_are_read_from_mapped_headers() {
    alone(|place| {
        for key in 1..=3 {
            drop(place.create_sysv(key));
        }
        std::thread::sleep(SETTLED);
        assert_eq!((sums(place), mapped(place)), ((3, 0, 0), 0));
        settle(place, 3);
        for key in 1..=3 {
            let mut sender = Child::run(|| {
                place.open_sysv(key).try_send(1, &[0; 10]).unwrap();
                0
            });
            sender.expect(Exit::Code(0), "a sender");
            let sent = u64::from(key.cast_unsigned());
            assert_eq!(sums(place), (3, sent, 10 * sent));
            let listed = sysv::list(&place.namespace).unwrap();
            let messages = listed.iter().map(|entry| entry.messages).sum::<u64>();
            assert_eq!((listed.len(), messages), (3, sent));
        }
        let change = Change {
            mode: Some(0o640),
            ..Change::default()
        };
        place.open_sysv(2).set(&change).unwrap();
        assert_eq!(sysv::list(&place.namespace).unwrap()[1].mode, 0o640);
    });
}

#[test]
fn sums_of_an_unchanged_namespace_are_known_until_a_change() {
    alone(|place| {
        // SAFETY: the process has one thread.
        unsafe { std::env::set_var("UMSG_DIR", place.namespace.path()) };
        let kept = |command| raw::kept_msgctl_info(command);
        assert_eq!(kept(libc::MSG_INFO), None, "nothing is known yet");
        place.create_sysv(1);
        place.create_sysv(2);
        let know = |queues| {
            std::thread::sleep(SETTLED);
            for command in [libc::MSG_INFO, libc::MSG_INFO, libc::IPC_INFO] {
                let asked = raw::msgctl_info(command).unwrap();
                assert!(command == libc::IPC_INFO || asked.msgpool == queues);
            }
            for command in [libc::MSG_INFO, libc::IPC_INFO] {
                assert_eq!(kept(command), raw::msgctl_info(command).ok());
            }
        };
        know(2);
        place.open_sysv(2).try_send(1, b"four").unwrap();
        let sums = kept(libc::MSG_INFO).unwrap();
        assert_eq!((sums.msgmap, sums.msgtql), (1, 4), "counts are read anew");
        place.create_sysv(3);
        assert_eq!((kept(libc::MSG_INFO), kept(libc::IPC_INFO)), (None, None));
        know(3);
        place.open_sysv(3).remove().unwrap();
        assert_eq!((kept(libc::MSG_INFO), kept(libc::IPC_INFO)), (None, None));
        know(2);
        let limits = Limits {
            msgmni: 77,
            ..Limits::default()
        };
        place.namespace.set_limits(&limits).unwrap();
        assert_eq!((kept(libc::MSG_INFO), kept(libc::IPC_INFO)), (None, None));
        assert_eq!(raw::msgctl_info(libc::IPC_INFO).unwrap().msgmni, 77);
        know(2);
        let path = place.namespace.path();
        let aside = path.with_extension("aside");
        fs::rename(path, &aside).unwrap();
        // The count of changes does not include the rename, so the process relies on the count for 10 ms more.
        std::thread::sleep(SETTLED);
        assert_eq!((kept(libc::MSG_INFO), kept(libc::IPC_INFO)), (None, None));
        fs::rename(&aside, path).unwrap();
    });
}

/// Runs a case with a queue of key 1 in a process that has just learned all that IPC_INFO and MSG_INFO return. The second argument of the case
/// returns the kept number of queues, if there is one.
fn informed(case: impl FnOnce(&Place, &dyn Fn() -> Option<i32>)) {
    alone(|place| {
        // SAFETY: the process has one thread.
        unsafe { std::env::set_var("UMSG_DIR", place.namespace.path()) };
        place.create_sysv(1);
        std::thread::sleep(SETTLED);
        for _ in 0..2 {
            raw::msgctl_info(libc::MSG_INFO).unwrap();
        }
        let kept = || {
            let [sums, constants] = [libc::MSG_INFO, libc::IPC_INFO].map(raw::kept_msgctl_info);
            assert_eq!(sums.is_some(), constants.is_some());
            sums.map(|sums| sums.msgpool)
        };
        assert_eq!(kept(), Some(1));
        case(place, &kept);
    });
}

#[test]
fn changes_of_another_process_are_known_at_once() {
    informed(|place, kept| {
        let mut creator = Child::run(|| {
            place.create_sysv(2);
            0
        });
        creator.expect(Exit::Code(0), "a creator");
        assert_eq!(kept(), None);
        std::thread::sleep(SETTLED);
        for _ in 0..2 {
            let asked = raw::msgctl_info(libc::MSG_INFO).unwrap();
            assert_eq!(asked.msgpool, 2);
        }
        assert_eq!(kept(), Some(2));
        let mut limiter = Child::run(|| {
            let limits = Limits {
                msgmni: 77,
                ..Limits::default()
            };
            place.namespace.set_limits(&limits).unwrap();
            0
        });
        limiter.expect(Exit::Code(0), "a process that sets limits");
        assert_eq!(kept(), None);
    });
}

/// A process on the drop-in keeps the segment of a removed queue for its next queue.
#[test]
fn sums_beside_a_kept_segment_are_known_with_and_without_its_queue() {
    informed(|place, kept| {
        let mut keeper = Child::run(|| {
            let create = || {
                let flags = libc::IPC_CREAT | 0o600;
                raw::revived(sysv::PRIVATE, flags)
                    .unwrap_or_else(|| raw::get(sysv::PRIVATE, flags).unwrap())
            };
            std::thread::sleep(SETTLED);
            // At first, the process keeps no segment.
            raw::msgctl_remove_own(create()).unwrap();
            let mut id = create();
            for _ in 0..3 {
                assert!(raw::remove_and_keep(id));
                child::stop();
                let index = id % 32_768;
                id = create();
                assert_eq!(id % 32_768, index, "the segment has the next queue");
                raw::msgsnd(id, 1, b"four", libc::IPC_NOWAIT, Until::Now).unwrap();
                child::stop();
            }
            raw::msgctl_remove_own(id).unwrap();
            0
        });
        keeper.expect_to_stop("the process that keeps a segment");
        std::thread::sleep(SETTLED);
        for _ in 0..2 {
            raw::msgctl_info(libc::MSG_INFO).unwrap();
        }
        assert_eq!((mapped(place), kept()), (2, Some(1)));
        for turn in 0..3 {
            let [sums, constants] = [libc::MSG_INFO, libc::IPC_INFO]
                .map(|command| raw::kept_msgctl_info(command).unwrap());
            assert_eq!((sums.msgpool, sums.msgmap, sums.msgtql), (1, 0, 0));
            assert_eq!((sums.highest_index, constants.highest_index), (0, 0));
            keeper.signal(libc::SIGCONT);
            keeper.expect_to_stop("the process with a queue");
            assert_eq!(kept(), Some(2), "known without a look at files");
            let sums = raw::kept_msgctl_info(libc::MSG_INFO).unwrap();
            assert_eq!((sums.msgpool, sums.msgmap, sums.msgtql), (2, 1, 4));
            assert_eq!(sums.highest_index, 2, "index 1 was that of the first queue");
            let constants = raw::kept_msgctl_info(libc::IPC_INFO).unwrap();
            assert_eq!(constants.highest_index, sums.highest_index);
            assert_eq!(sysv::list(&place.namespace).unwrap().len(), 2);
            keeper.signal(libc::SIGCONT);
            if turn < 2 {
                keeper.expect_to_stop("the process without a queue");
                assert_eq!(kept(), Some(1));
                assert_eq!(sysv::list(&place.namespace).unwrap().len(), 1);
            }
        }
        keeper.expect(Exit::Code(0), "the process that keeps a segment");
    });
}

/// The owner of a namespace chooses the identifier of the next queue.
#[test]
fn a_queue_with_the_identifier_and_key_of_a_removed_one_is_another_queue() {
    alone(|place| {
        let create = || {
            let next_id = Some(100);
            let limits = Limits {
                next_id,
                ..Limits::default()
            };
            place.namespace.set_limits(&limits).unwrap();
            place.create_sysv(77)
        };
        let first = create();
        settle(place, 1);
        let id = first.id();
        first.remove().unwrap();
        let second = create();
        assert_eq!(second.id(), id);
        second.try_send(1, b"four").unwrap();
        for _ in 0..4 {
            assert_eq!(sums(place), (1, 1, 4));
            std::thread::sleep(SETTLED);
        }
        assert_eq!(sysv::list(&place.namespace).unwrap()[0].messages, 1);
    });
}

/// The length of a file marks a queue as removed, for processes that may not open the file.
#[test]
fn a_queue_that_is_marked_as_removed_is_not_counted() {
    alone(|place| {
        let queue = place.create_sysv(1);
        queue.try_send(1, b"four").unwrap();
        let file = place.namespace.path().join("msg/0");
        let file = File::options().write(true).open(file).unwrap();
        file.set_len(file.metadata().unwrap().len() + 1).unwrap();
        for _ in 0..4 {
            std::thread::sleep(SETTLED);
            assert_eq!(sums(place), (0, 0, 0));
        }
    });
}

#[test]
fn a_file_that_takes_the_place_of_another_is_read_anew() {
    alone(|place| {
        let queue = place.create_sysv(1);
        settle(place, 1);
        let msg = place.namespace.path().join("msg");
        fs::copy(msg.join("0"), msg.join("copy")).unwrap();
        queue.try_send(1, b"four").unwrap();
        assert_eq!(sums(place), (1, 1, 4));
        fs::rename(msg.join("copy"), msg.join("0")).unwrap();
        assert_eq!(sums(place), (1, 0, 0), "the copy is empty");
    });
}

/// Imitates a process that dies between a change and its count.
#[test]
fn a_change_that_is_not_counted_is_known_soon() {
    informed(|place, kept| {
        fs::remove_file(place.namespace.path().join("msg/k-00000001")).unwrap();
        std::thread::sleep(SETTLED);
        assert_eq!(kept(), None);
    });
}

#[test]
fn a_count_that_is_cut_off_is_not_believed() {
    informed(|place, kept| {
        let count = place.namespace.path().join(".changes");
        let file = File::options().write(true).open(count).unwrap();
        file.set_len(0).unwrap();
        place.create_sysv(2);
        assert_eq!(kept(), None);
    });
}

#[test]
fn a_process_with_another_identity_learns_all_anew() {
    informed(|_, kept| {
        sysv::forget_caller();
        assert_eq!(kept(), None);
    });
}

#[test]
fn a_process_that_asks_once_maps_nothing() {
    alone(|place| {
        place.create_sysv(1);
        std::thread::sleep(SETTLED);
        totals(place);
        std::thread::sleep(Duration::from_millis(1100));
        totals(place);
        assert_eq!(mapped(place), 0);
    });
}

#[test]
fn queues_that_come_and_go_are_counted_at_once() {
    alone(|place| {
        let (mut random, mut keys) = (Random::new(7), Vec::new());
        for step in 0..600 {
            if keys.len() < 2 || random.below(2) == 0 {
                // The same keys are used again, and so are their indices.
                let key = (1..).find(|key| !keys.contains(key)).unwrap();
                place.create_sysv(key).try_send(1, b"four").unwrap();
                keys.push(key);
            } else {
                let key = keys.swap_remove(random.below(keys.len() as u64) as usize);
                let mut remover = Child::run(|| {
                    place.open_sysv(key).remove().unwrap();
                    0
                });
                remover.expect(Exit::Code(0), "a remover");
            }
            let queues = keys.len() as u64;
            for _ in 0..random.below(3) {
                let expected = (queues as u32, queues, 4 * queues);
                assert_eq!(sums(place), expected, "step {step}");
                let highest = sysv::ipc_info(&place.namespace).unwrap().highest_index;
                assert_eq!(highest as u32, totals(place).highest_index);
            }
            if random.below(10) == 0 {
                std::thread::sleep(SETTLED);
            }
        }
    });
}

#[test]
fn a_queue_that_was_removed_behind_a_mapped_header_is_not_counted() {
    alone(|place| {
        let [queue, _other] = [1, 2].map(|key| place.create_sysv(key));
        queue.try_send(1, b"gone").unwrap();
        settle(place, 2);
        queue.remove().unwrap();
        assert_eq!(sums(place), (1, 0, 0));
        assert_eq!(sysv::list(&place.namespace).unwrap().len(), 1);
        totals(place);
        assert_eq!(mapped(place), 1);
    });
}

#[test]
fn a_header_that_is_cut_off_or_overwritten_is_damaged_and_no_more() {
    alone(|place| {
        for key in 1..=2 {
            place.create_sysv(key).try_send(1, b"four").unwrap();
        }
        settle(place, 2);
        let file = |index: u32| {
            let path = place.namespace.path().join(format!("msg/{index}"));
            File::options().write(true).open(path).unwrap()
        };
        let first = totals(place).highest_index - 1;
        file(first).set_len(0).unwrap();
        file(first + 1).write_all_at(&[0xff; 64], 0).unwrap();
        // The counts of an overwritten header may have any value.
        assert_eq!(totals(place).queues, 2);
        let listed = sysv::list(&place.namespace).unwrap();
        assert_eq!(listed.len(), 2);
        assert!(listed.iter().all(|entry| !entry.readable));
    });
}

#[test]
fn a_process_without_a_handler_of_sigbus_maps_no_header() {
    let place = Place::new();
    place.create_sysv(1);
    let mut child = Child::run(|| {
        settle(&place, 0);
        0
    });
    child.expect(Exit::Code(0), "the case");
}

#[test]
fn another_user_does_not_use_the_scan_of_root() {
    let Some(place) = Everybodys::new() else {
        return;
    };
    let mut options = sysv::OpenOptions::new();
    let queue = options.create(true).mode(0o600).namespace(&place.namespace);
    queue.open(1).unwrap().try_send(1, b"secret").unwrap();
    std::thread::sleep(SETTLED);
    for _ in 0..3 {
        assert_eq!(sysv::totals(&place.namespace).unwrap().messages, 1);
    }
    as_user(65_534, "another user", || {
        let seen = sysv::totals(&place.namespace).unwrap();
        assert_eq!((seen.queues, seen.messages, seen.bytes), (1, 0, 0));
        assert!(!sysv::list(&place.namespace).unwrap()[0].readable);
    });
}
