//! A real SIGKILL at every step of making, changing and removing a System V queue, and the view of other processes afterwards: those of the same
//! user, and those of users that may not remove its files.

mod support;

use support::child::{Child, Exit};
use support::place::Place;
use support::turn;
use support::users::{all_users, become_user};
use umsg::sysv::{self, Change, OpenError, OpenOptions, PRIVATE, Queue, Want};
use umsg_shm::crash::{self, POINTS};

const KEY: i32 = 0x1234;
/// A process that creates this number of queues uses every index.
const ROUND: usize = 70;

const MAKE: &[&str] = &[
    "MSGGET_EMPTY",
    "MSGGET_FILLED",
    "MSGGET_ID_TAKEN",
    "MSGGET_NUMBERED",
    "MSGGET_INDEXED",
    "MSGGET_LABELLED",
];
const REMOVE: &[&str] = &["MSG_REMOVED", "MSGCTL_UNLABELLED"];
const CHANGE: &[&str] = &["MSGCTL_HANDED_OVER", "MSG_CHANGED", "MSGCTL_APPLIED"];

/// Processes of root and of `VICTIM` take part in a shared namespace. In a private namespace, only processes of root take part.
const VICTIM: u32 = 1001;
const STRANGER: u32 = 1002;

/// Does `work` as a user, in a separate process that must succeed.
#[track_caller]
fn as_user(user: u32, what: &str, work: impl FnOnce()) {
    let mut child = Child::run(|| {
        if user != 0 {
            become_user(user);
        }
        work();
        0
    });
    child.expect(Exit::Code(0), what);
}

/// Kills a process of a user at a point of `work`.
#[track_caller]
fn die(user: u32, point: &str, work: impl FnOnce()) {
    let mut victim = Child::run(|| {
        if user != 0 {
            become_user(user);
        }
        crash::arm(point, 1);
        work();
        0
    });
    victim.expect(Exit::Signal(libc::SIGKILL), point);
}

fn open(place: &Place, key: i32) -> Queue {
    let mut options = OpenOptions::new();
    options.namespace(&place.namespace).create(true).mode(0o666);
    options.open(key).unwrap()
}

fn find(place: &Place, key: i32) -> Result<Queue, OpenError> {
    OpenOptions::new().namespace(&place.namespace).open(key)
}

fn keys(place: &Place) -> Vec<i32> {
    let entries = sysv::list(&place.namespace).unwrap();
    entries.iter().map(|entry| entry.key).collect()
}

/// Makes the queue of the key, uses it, and removes it.
fn use_key(place: &Place, what: &str) {
    let queue = open(place, KEY);
    queue.try_send(3, b"hello").unwrap();
    let received = find(place, KEY)
        .unwrap()
        .try_receive(Want::Exactly(3), &mut [0; 8]);
    assert_eq!(received.unwrap().len, 5, "{what}");
    assert!(keys(place).contains(&KEY), "{what}");
    queue.remove().unwrap();
    assert!(
        matches!(find(place, KEY), Err(OpenError::NotFound)),
        "{what}"
    );
    assert!(!keys(place).contains(&KEY), "{what}");
}

/// Uses every index and the key as root. Fails unless only the names `left` exist afterwards: no remains of dead processes.
fn tidy(place: &Place, left: &[&str], what: &str) {
    as_user(0, what, || {
        for _ in 0..ROUND {
            open(place, PRIVATE).remove().unwrap();
        }
        use_key(place, what);
    });
    assert_eq!(place.sysv_names(), left, "{what}");
}

#[test]
fn every_point_of_the_registry_is_killed_at() {
    let here: Vec<&str> = [MAKE, REMOVE, CHANGE].concat();
    for (_, name, what) in POINTS {
        let is_ours = name.starts_with("MSGGET_") || name.starts_with("MSGCTL_");
        assert!(
            !is_ours || here.contains(name),
            "no process dies at {name} ({what})"
        );
    }
}

#[test]
fn a_queue_whose_maker_is_killed_exists_whole_or_not_at_all() {
    let _turn = turn();
    for point in MAKE {
        for key in [KEY, PRIVATE] {
            let place = Place::new();
            let bystander = open(&place, 1);
            die(0, point, || drop(open(&place, key)));
            let exists = *point == "MSGGET_LABELLED";
            let others: Vec<i32> = keys(&place)[1..].to_vec();
            assert_eq!(others, [key][..usize::from(exists)], "{point}");
            assert_eq!(find(&place, KEY).is_ok(), exists && key == KEY, "{point}");
            let by_id = OpenOptions::new().namespace(&place.namespace).open_id(1);
            assert_eq!(by_id.is_ok(), exists, "{point}");
            bystander.try_send(1, b"goes on").unwrap();

            as_user(0, point, || use_key(&place, point));
            if exists && key == PRIVATE {
                sysv::remove(&place.namespace, 1).unwrap();
            }
            tidy(&place, &["0", "k-00000001"], point);
        }
    }
}

#[test]
fn what_a_killed_maker_left_is_in_no_strangers_way() {
    let _turn = turn();
    for point in MAKE {
        for key in [KEY, PRIVATE] {
            let Some(place) = all_users() else { return };
            die(VICTIM, point, || drop(open(&place, key)));
            as_user(STRANGER, point, || {
                if *point == "MSGGET_LABELLED" && key == KEY {
                    // The queue exists, and all processes find it.
                    find(&place, KEY).unwrap().try_send(1, b"x").unwrap();
                } else {
                    use_key(&place, point);
                }
                for _ in 0..ROUND {
                    open(&place, PRIVATE).remove().unwrap();
                }
            });
            for entry in sysv::list(&place.namespace).unwrap() {
                sysv::remove(&place.namespace, entry.id).unwrap();
            }
            tidy(&place, &[], point);
        }
    }
}

#[test]
fn a_queue_whose_remover_is_killed_is_removed_and_in_no_other_queues_way() {
    let _turn = turn();
    for point in REMOVE {
        for key in [KEY, PRIVATE] {
            for next in [VICTIM, STRANGER, 0] {
                let Some(place) = all_users() else { return };
                as_user(VICTIM, point, || drop(open(&place, key)));
                let bystander = OpenOptions::new()
                    .namespace(&place.namespace)
                    .open_id(0)
                    .unwrap();
                die(VICTIM, point, || {
                    sysv::remove(&place.namespace, 0).unwrap();
                });
                assert!(bystander.is_removed(), "{point}");
                assert!(matches!(find(&place, KEY), Err(OpenError::NotFound)));
                assert!(keys(&place).is_empty(), "{point}");
                let again = sysv::remove(&place.namespace, 0).unwrap_err();
                assert_eq!(again.errno(), libc::EINVAL, "{point}");
                // A remover that dies at MSG_REMOVED leaves the key symlink, which belongs to the victim, so a stranger can't create a queue of the
                // key.
                let key_is_taken = (next, *point, key) == (STRANGER, "MSG_REMOVED", KEY);
                as_user(next, point, || {
                    for _ in 0..ROUND {
                        open(&place, PRIVATE).remove().unwrap();
                    }
                    if !key_is_taken {
                        use_key(&place, point);
                    }
                });
                tidy(&place, &[], point);
            }
        }
    }
}

#[test]
fn the_symlink_that_a_killed_remover_left_keeps_the_key_from_strangers_until_its_owner_comes() {
    let _turn = turn();
    for next in [VICTIM, 0] {
        let Some(place) = all_users() else { return };
        die(VICTIM, "MSG_REMOVED", || {
            open(&place, KEY).remove().unwrap()
        });
        as_user(STRANGER, "a stranger", || {
            let error = find(&place, KEY).unwrap_err();
            assert!(matches!(error, OpenError::NotFound), "{error}");
            let mut options = OpenOptions::new();
            options.namespace(&place.namespace).create(true);
            let error = options.open(KEY).unwrap_err();
            assert!(matches!(error, OpenError::KeyTaken { .. }), "{error}");
            open(&place, KEY + 1).remove().unwrap();
        });
        assert_eq!(place.sysv_names(), ["0", "k-00001234"]);
        as_user(next, "the next", || use_key(&place, "the next"));
        as_user(STRANGER, "a stranger", || use_key(&place, "a stranger"));
        tidy(&place, &[], "in the end");
    }
}

#[test]
fn a_killed_sweeper_is_swept_after() {
    let place = Place::in_turn();
    die(0, "MSGGET_INDEXED", || drop(open(&place, KEY)));
    assert_eq!(place.sysv_names(), ["0"]);
    die(0, "MSGCTL_UNLABELLED", || {
        for _ in 0..ROUND {
            open(&place, PRIVATE).remove().unwrap();
        }
    });
    tidy(&place, &[], "after a killed sweeper");
}

#[test]
fn a_queue_whose_changer_is_killed_has_the_old_rights_or_the_new() {
    let _turn = turn();
    for point in CHANGE {
        let Some(place) = all_users() else { return };
        let change = Change {
            uid: Some(STRANGER),
            gid: Some(STRANGER),
            mode: Some(0o600),
            qbytes: Some(1 << 20),
        };
        let mut options = OpenOptions::new();
        options.namespace(&place.namespace).create(true).mode(0o600);
        as_user(VICTIM, point, || drop(options.open(KEY).unwrap()));
        die(0, point, || {
            sysv::set(&place.namespace, 0, &change).unwrap()
        });

        let entry = sysv::list(&place.namespace).unwrap()[0];
        let changed = *point != "MSGCTL_HANDED_OVER";
        let expected = match changed {
            true => (STRANGER, STRANGER, 1 << 20),
            false => (VICTIM, VICTIM, 16_384),
        };
        assert_eq!((entry.uid, entry.gid, entry.qbytes), expected, "{point}");
        // The creator has access in either case. The new owner has access once the header names this user.
        for (user, may) in [(VICTIM, true), (STRANGER, changed)] {
            as_user(user, point, || {
                let sent = find(&place, KEY).unwrap().try_send(1, b"x");
                assert_eq!(sent.is_ok(), may, "{point}, {user}");
            });
        }
        as_user(0, point, || {
            sysv::set(&place.namespace, 0, &change).unwrap()
        });
        as_user(STRANGER, point, || {
            find(&place, KEY).unwrap().remove().unwrap()
        });
        assert_eq!(place.sysv_names(), [""; 0], "{point}");
    }
}

#[test]
fn a_limit_of_queues_does_not_count_stale_files() {
    let place = Place::in_turn();
    let limits = umsg::Limits {
        msgmni: 3,
        ..umsg::Limits::default()
    };
    place.namespace.set_limits(&limits).unwrap();
    for point in ["MSGGET_INDEXED", "MSGGET_INDEXED", "MSGGET_INDEXED"] {
        die(0, point, || drop(open(&place, KEY)));
    }
    die(0, "MSG_REMOVED", || open(&place, KEY).remove().unwrap());
    let queues: Vec<Queue> = (1..=3).map(|key| open(&place, key)).collect();
    let mut options = OpenOptions::new();
    options.namespace(&place.namespace).create(true);
    let error = options.open(4).unwrap_err();
    assert!(matches!(error, OpenError::TooManyQueues(3)), "{error}");
    assert_eq!(
        keys(&place),
        [1, 2, 3].map(|n: i32| queues[n as usize - 1].key())
    );
}

#[test]
fn a_creator_that_dies_with_the_wanted_identifier_leaves_it_to_no_queue() {
    let place = Place::new();
    for (point, id) in [("MSGGET_ID_TAKEN", 98_305), ("MSGGET_NUMBERED", 98_307)] {
        let limits = umsg::Limits {
            next_id: Some(id),
            ..place.namespace.limits().unwrap()
        };
        place.namespace.set_limits(&limits).unwrap();
        die(0, point, || drop(open(&place, PRIVATE)));
        assert_eq!(place.namespace.limits().unwrap().next_id, None, "{point}");
        let next = open(&place, PRIVATE);
        assert!(next.id() < 64, "{point}: {}", next.id());
        next.remove().unwrap();
    }
    tidy(&place, &[], "wanted identifiers");
}
