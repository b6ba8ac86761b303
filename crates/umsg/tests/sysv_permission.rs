//! Permissions of System V queues: several users make the same calls on the kernel's queues and on umsg's.

mod support;

use std::ffi::c_int;
use std::fs::{self, Permissions, set_permissions};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::time::Duration;
use support::child::{Child, Exit};
use support::place::Place;
use umsg::sysv::{self, Change, ControlError, OpenOptions, Want};
use umsg::{Limits, Namespace};

const KEY: i32 = 0x1234;

/// A user: id, group, supplementary groups.
#[derive(Clone, Copy, Debug)]
struct User(u32, u32, &'static [u32]);

const ROOT: User = User(0, 0, &[]);
const MAKER: User = User(1001, 1001, &[]);
const USERS: [User; 7] = [
    ROOT,
    MAKER,
    User(1002, 1001, &[]),
    User(1002, 1002, &[1001]),
    User(1002, 1002, &[]),
    User(1003, 1003, &[1004]),
    User(1003, 1004, &[1001, 1002]),
];

impl User {
    /// Gives this process the user's ids, for the rest of its life.
    fn become_self(self) {
        let User(user, group, groups) = self;
        // SAFETY: the calls change ids of this process, a child that the test has forked. The list is a live slice.
        let done = unsafe {
            libc::setgroups(groups.len(), groups.as_ptr()) == 0
                && libc::setresgid(group, group, group) == 0
                && libc::setresuid(user, user, user) == 0
        };
        assert!(done, "{self:?}");
    }

    /// Runs `work` as this user, in a separate process.
    #[track_caller]
    fn does(self, work: impl FnOnce()) {
        let mut child = Child::run(|| {
            self.become_self();
            work();
            0
        });
        assert_eq!(
            child.wait(Duration::from_secs(30)),
            Some(Exit::Code(0)),
            "{self:?}"
        );
    }
}

/// An answer: the return value of a call, or minus its errno.
type Answer = i32;

/// The calls that the tests make on the kernel's queues and on umsg's.
trait Queues {
    fn get(&self, key: i32, flags: i32) -> Answer;
    fn send(&self, id: i32) -> Answer;
    fn receive(&self, id: i32) -> Answer;
    /// IPC_STAT. Also returns user, group, creator's user and group, and mode.
    fn stat(&self, id: i32) -> (Answer, [u32; 5]);
    fn stat_any(&self, index: i32) -> Answer;
    fn stat_index(&self, index: i32) -> Answer;
    /// IPC_SET: user, group, mode, bytes.
    fn set(&self, id: i32, to: [u32; 4]) -> Answer;
    fn remove(&self, id: i32) -> Answer;
}

struct Kernel;

#[repr(C)]
struct Message {
    mtype: libc::c_long,
    byte: u8,
}

fn answer(result: impl TryInto<i32>) -> Answer {
    match result.try_into() {
        Ok(-1) | Err(_) => -std::io::Error::last_os_error().raw_os_error().unwrap(),
        Ok(value) => value,
    }
}

impl Kernel {
    fn control(id: i32, command: c_int, data: &mut libc::msqid_ds) -> Answer {
        // SAFETY: the structure is a live local of the caller's.
        answer(unsafe { libc::msgctl(id, command, data) })
    }

    fn nothing() -> libc::msqid_ds {
        // SAFETY: the structure consists of integers, for which zeroes are valid.
        unsafe { std::mem::zeroed() }
    }
}

impl Queues for Kernel {
    fn get(&self, key: i32, flags: i32) -> Answer {
        // SAFETY: the call takes no pointers.
        answer(unsafe { libc::msgget(key, flags) })
    }

    fn send(&self, id: i32) -> Answer {
        let message = Message { mtype: 1, byte: 7 };
        // SAFETY: a type and one byte, a live local.
        answer(unsafe { libc::msgsnd(id, (&raw const message).cast(), 1, libc::IPC_NOWAIT) })
    }

    fn receive(&self, id: i32) -> Answer {
        let mut message = Message { mtype: 0, byte: 0 };
        // SAFETY: room for a type and one byte, a live local.
        let result = unsafe { libc::msgrcv(id, (&raw mut message).cast(), 1, 0, libc::IPC_NOWAIT) };
        answer(result)
    }

    fn stat(&self, id: i32) -> (Answer, [u32; 5]) {
        let mut data = Kernel::nothing();
        let answer = Kernel::control(id, libc::IPC_STAT, &mut data);
        let perm = data.msg_perm;
        let who = [perm.uid, perm.gid, perm.cuid, perm.cgid];
        (
            answer,
            [who[0], who[1], who[2], who[3], u32::from(perm.mode)],
        )
    }

    fn stat_any(&self, index: i32) -> Answer {
        Kernel::control(index, 13, &mut Kernel::nothing())
    }

    fn stat_index(&self, index: i32) -> Answer {
        Kernel::control(index, 11, &mut Kernel::nothing())
    }

    fn set(&self, id: i32, [user, group, mode, bytes]: [u32; 4]) -> Answer {
        let mut data = Kernel::nothing();
        (data.msg_perm.uid, data.msg_perm.gid) = (user, group);
        data.msg_perm.mode = mode as _;
        data.msg_qbytes = libc::msglen_t::from(bytes);
        Kernel::control(id, libc::IPC_SET, &mut data)
    }

    fn remove(&self, id: i32) -> Answer {
        Kernel::control(id, libc::IPC_RMID, &mut Kernel::nothing())
    }
}

struct Ours<'a>(&'a Namespace);

impl Ours<'_> {
    fn open(&self, id: i32) -> Result<sysv::Queue, i32> {
        let opened = OpenOptions::new().namespace(self.0).open_id(id);
        opened.map_err(|error| -error.errno())
    }
}

fn control<T>(result: Result<T, ControlError>) -> Result<T, Answer> {
    result.map_err(|error| match error {
        ControlError::Removed => -libc::EINVAL,
        error => -error.errno(),
    })
}

fn either(result: Result<Answer, Answer>) -> Answer {
    result.unwrap_or_else(|error| error)
}

impl Queues for Ours<'_> {
    fn get(&self, key: i32, flags: i32) -> Answer {
        either(sysv::msgget(self.0, key, flags).map_err(|error| -error.errno()))
    }

    fn send(&self, id: i32) -> Answer {
        let sent = |queue: sysv::Queue| queue.try_send(1, &[7]).map_err(|error| -error.errno());
        either(self.open(id).and_then(sent).map(|()| 0))
    }

    fn receive(&self, id: i32) -> Answer {
        let received = |queue: sysv::Queue| {
            let received = queue.try_receive(Want::Any, &mut [0]);
            received.map_err(|error| -error.errno())
        };
        either(self.open(id).and_then(received).map(|r| r.len as i32))
    }

    fn stat(&self, id: i32) -> (Answer, [u32; 5]) {
        match self.open(id).and_then(|queue| control(queue.entry())) {
            Ok(is) => (0, [is.uid, is.gid, is.cuid, is.cgid, is.mode]),
            Err(error) => (error, [0; 5]),
        }
    }

    fn stat_any(&self, index: i32) -> Answer {
        either(control(sysv::msg_stat(self.0, index, true)).map(|entry| entry.id))
    }

    fn stat_index(&self, index: i32) -> Answer {
        either(control(sysv::msg_stat(self.0, index, false)).map(|entry| entry.id))
    }

    fn set(&self, id: i32, [user, group, mode, bytes]: [u32; 4]) -> Answer {
        let change = Change {
            uid: Some(user),
            gid: Some(group),
            mode: Some(mode),
            qbytes: Some(bytes.into()),
        };
        either(control(sysv::set(self.0, id, &change)).map(|()| 0))
    }

    fn remove(&self, id: i32) -> Answer {
        either(control(sysv::remove(self.0, id)).map(|()| 0))
    }
}

/// Makes the same call on the kernel's queues and on umsg's. The results have to be equal.
macro_rules! same {
    ($place:expr, $what:expr, |$queues:ident| $call:expr) => {{
        let ours = {
            let $queues = &Ours(&$place.namespace);
            $call
        };
        let kernels = {
            let $queues = &Kernel;
            $call
        };
        assert_eq!(ours, kernels, "{}: {}", $what, stringify!($call));
        ours
    }};
}

/// Makes all calls on an existing queue that any process can make without changing the queue's rights.
fn questions(place: &Place, id: i32, what: &str) {
    const CREATE: i32 = libc::IPC_CREAT;
    for flags in [
        0,
        0o400,
        0o200,
        0o600,
        0o060,
        0o040,
        0o004,
        0o666,
        CREATE,
        CREATE | 0o600,
        CREATE | libc::IPC_EXCL,
    ] {
        same!(place, format!("{what}, flags {flags:o}"), |q| q
            .get(KEY, flags));
    }
    same!(place, what, |q| q.send(id));
    same!(place, what, |q| q.receive(id));
    same!(place, what, |q| q.stat(id));
    same!(place, what, |q| q.stat_any(id));
    same!(place, what, |q| q.stat_index(id));
    same!(place, what, |q| q.stat(id + 32_768));
    same!(place, what, |q| q.send(id + 32_768));
    same!(place, what, |q| q.stat_any(id + 1));
}

#[test]
fn a_namespace_that_allows_enforced_modes_only_refuses_others() {
    let place = Place::new();
    let before = place.create_sysv(1);
    let change = |mode| Change {
        mode: Some(mode),
        ..Change::default()
    };
    before.set(&change(0o622)).unwrap();
    let limits = Limits {
        enforced_modes: true,
        ..Limits::default()
    };
    place.namespace.set_limits(&limits).unwrap();
    let make = |mode| {
        let mut options = OpenOptions::new();
        options
            .create(true)
            .mode(mode)
            .namespace(&place.namespace)
            .open(2)
    };
    let error = make(0o640).unwrap_err();
    assert!(matches!(
        error,
        sysv::OpenError::ModeNotEnforced { mode: 0o640 }
    ));
    assert_eq!(error.errno(), libc::EACCES);
    let made = make(0o660).unwrap();
    let error = made.set(&change(0o662)).unwrap_err();
    assert!(matches!(
        error,
        ControlError::ModeNotEnforced { mode: 0o662 }
    ));
    assert_eq!(error.errno(), libc::EPERM);
    made.set(&change(0o600)).unwrap();
    // IPC_SET always passes a mode, so the existing queue may keep the mode that it had before the limit.
    before.set(&change(0o622)).unwrap();
}

/// Runs a test as root in a private IPC namespace, in a shared namespace of umsg with the kernel's limits.
fn with_both(test: impl FnOnce(&Place)) {
    const LEFT_OUT: i32 = 77;
    let place = Place::new();
    let limits = Limits {
        max_qbytes: 16_384,
        ..Limits::default()
    };
    place.namespace.set_limits(&limits).unwrap();
    set_permissions(place.path(), Permissions::from_mode(0o1777)).unwrap();
    if let Err(error) = Namespace::at(place.path()) {
        return eprintln!("left out: {error}");
    }
    let mut child = Child::run(|| {
        // SAFETY: the calls change settings of a child process.
        if unsafe { libc::unshare(libc::CLONE_NEWIPC) } != 0 {
            return LEFT_OUT;
        }
        test(&place);
        0
    });
    match child.wait(Duration::from_secs(120)) {
        Some(Exit::Code(LEFT_OUT)) => eprintln!("left out: needs root, to act as several users"),
        end => assert_eq!(end, Some(Exit::Code(0))),
    }
}

/// Returns the identifier of the key's queue, which exists in the kernel and in umsg. If there is none, `maker` makes it with this mode.
fn provide(place: &Place, maker: User, mode: i32) -> i32 {
    maker.does(|| {
        same!(place, "provide", |q| q.get(KEY, libc::IPC_CREAT | mode));
    });
    same!(place, "provide", |q| q.get(KEY, 0))
}

const MODES: [i32; 12] = [
    0o600, 0o000, 0o400, 0o200, 0o060, 0o006, 0o640, 0o604, 0o622, 0o666, 0o460, 0o704,
];

#[test]
fn every_user_is_granted_what_the_kernel_grants_in_every_mode() {
    with_both(|place| {
        for mode in MODES {
            for user in USERS {
                let id = provide(place, MAKER, mode);
                let what = format!("mode {mode:o}, {user:?}");
                user.does(|| questions(place, id, &what));
                user.does(|| {
                    same!(place, what, |q| q.set(id, [1001, 1001, mode as u32, 100]));
                    same!(place, what, |q| q
                        .set(id, [1001, 1001, mode as u32, 1 << 20]));
                    same!(place, what, |q| q
                        .set(id, [u32::MAX, 1001, mode as u32, 100]));
                    same!(place, what, |q| q.stat(id));
                    same!(place, what, |q| q.remove(id));
                    same!(place, what, |q| q.remove(id));
                });
            }
        }
    });
}

#[test]
fn a_queue_that_is_given_away_is_its_new_owners_and_its_creators() {
    with_both(|place| {
        for giver in [ROOT, MAKER] {
            for mode in [0o600_u32, 0o640, 0o066, 0o604] {
                for user in USERS {
                    let id = provide(place, MAKER, 0o600);
                    let to = [1002, 1004, mode, 16_384];
                    giver.does(|| {
                        same!(place, "giving", |q| q.set(id, to));
                    });
                    let what = format!("given by {giver:?} with mode {mode:o}, {user:?}");
                    user.does(|| {
                        questions(place, id, &what);
                        same!(place, what, |q| q.set(id, to));
                        same!(place, what, |q| q.remove(id));
                    });
                    ROOT.does(|| {
                        Kernel.remove(id);
                        Ours(&place.namespace).remove(id);
                        // If the creator or the owner that removed the queue does not own the names in this directory, the names stay, and occupy the
                        // key.
                        for name in fs::read_dir(place.path().join("msg")).unwrap() {
                            fs::remove_file(name.unwrap().path()).unwrap();
                        }
                    });
                }
            }
        }
    });
}

#[test]
fn what_root_gives_away_belongs_to_the_new_owner_names_and_all() {
    with_both(|place| {
        let id = provide(place, MAKER, 0o600);
        ROOT.does(|| {
            same!(place, "giving", |q| q.set(id, [1002, 1002, 0o600, 100]));
        });
        let at = |name: &str| place.path().join("msg").join(name);
        for name in ["0", "k-00001234"] {
            assert_eq!(at(name).symlink_metadata().unwrap().uid(), 1002, "{name}");
        }
        User(1002, 1002, &[]).does(|| {
            same!(place, "owner", |q| q.set(id, [1002, 1002, 0o660, 100]));
            same!(place, "owner", |q| q.remove(id));
        });
        assert!(!at("0").exists() && at("k-00001234").symlink_metadata().is_err());
    });
}

#[test]
fn a_new_owner_that_does_not_own_the_file_learns_which_rights_it_can_not_change() {
    with_both(|place| {
        let id = provide(place, MAKER, 0o600);
        let ours = Ours(&place.namespace);
        MAKER.does(|| assert_eq!(ours.set(id, [1002, 1002, 0o600, 100]), 0));
        User(1002, 1002, &[]).does(|| {
            // The kernel permits this change, because its queues have no files.
            assert_eq!(ours.set(id, [1002, 1002, 0o666, 100]), -libc::EPERM);
            assert_eq!(ours.set(id, [1002, 1002, 0o600, 200]), 0);
            assert_eq!(ours.stat(id), (0, [1002, 1002, 1001, 1001, 0o600]));
            assert_eq!(ours.remove(id), 0);
            // The names of the queue stay, because they belong to another user, and occupy the key.
            assert_eq!(ours.get(KEY, 0), -libc::ENOENT);
            assert_eq!(ours.get(KEY, libc::IPC_CREAT | 0o600), -libc::EACCES);
            let private = ours.get(libc::IPC_PRIVATE, 0o600);
            assert!(private > id);
            assert_eq!(ours.remove(private), 0);
        });
        MAKER.does(|| {
            let next = ours.get(KEY, libc::IPC_CREAT | 0o600);
            assert!(next > id);
            assert_eq!(ours.remove(next), 0);
        });
        User(1002, 1002, &[]).does(|| assert!(ours.get(KEY, libc::IPC_CREAT | 0o600) > id));
    });
}

#[test]
fn a_queue_that_one_may_not_read_is_listed_with_what_is_known_of_it() {
    with_both(|place| {
        let id = provide(place, MAKER, 0o640);
        User(1003, 1003, &[]).does(|| {
            let entry = sysv::list(&place.namespace).unwrap()[0];
            assert_eq!((entry.id, entry.key, entry.readable), (id, KEY, false));
            assert_eq!((entry.uid, entry.gid, entry.mode), (1001, 1001, 0o660));
            assert_eq!((entry.messages, entry.qbytes, entry.changed), (0, 0, None));
            assert_eq!(sysv::totals(&place.namespace).unwrap().queues, 1);
        });
        User(1002, 1001, &[]).does(|| {
            let entry = sysv::list(&place.namespace).unwrap()[0];
            assert_eq!(
                (entry.mode, entry.qbytes, entry.readable),
                (0o640, 16_384, true)
            );
        });
    });
}

/// The offset of uid, gid, cuid, cgid and mode of a queue in its file; see docs/format.md.
const RIGHTS: u64 = 128 + 8;

fn path_of(place: &Place, id: i32) -> std::path::PathBuf {
    place.path().join(format!("msg/{}", id % 32_768))
}

/// Writes into a queue's file that the queue belongs to this user and group, and has the mode 0666.
fn forge(place: &Place, id: i32, user: u32) {
    let path = path_of(place, id);
    let file = std::fs::File::options().write(true).open(path).unwrap();
    for (number, word) in [user, user, user, user, 0o666].into_iter().enumerate() {
        let at = RIGHTS + 4 * number as u64;
        file.write_all_at(&word.to_ne_bytes(), at).unwrap();
    }
}

fn may_open_the_file(place: &Place, id: i32) -> bool {
    std::fs::File::options()
        .read(true)
        .open(path_of(place, id))
        .is_ok()
}

/// Narrows a queue's mode, as a program does that first reads the queue's rights.
fn narrow(place: &Place, id: i32, mode: u32) {
    let queues = Ours(&place.namespace);
    let (answer, [uid, gid, ..]) = queues.stat(id);
    assert_eq!(answer, 0);
    assert_eq!(queues.set(id, [uid, gid, mode, 1000]), 0);
}

#[test]
fn a_forger_of_a_queues_rights_keeps_no_access_when_its_owner_narrows_the_mode() {
    const PEER: User = User(1003, 1003, &[]);
    with_both(|place| {
        // The owner makes the change in the first round, and root in the second one.
        for changer in [MAKER, ROOT] {
            let id = provide(place, MAKER, 0o666);
            PEER.does(|| forge(place, id, 1003));
            changer.does(|| narrow(place, id, 0o600));
            PEER.does(|| assert!(!may_open_the_file(place, id), "{changer:?}"));
            MAKER.does(|| {
                assert!(may_open_the_file(place, id));
                let (_, rights) = Ours(&place.namespace).stat(id);
                assert_eq!(rights, [1001, 1001, 1001, 1001, 0o600]);
                same!(place, "remove", |q| q.remove(q.get(KEY, 0)));
            });
        }
    });
}

#[test]
fn a_forger_of_a_queues_owner_does_not_keep_the_owner_from_removing_it() {
    const PEER: User = User(1003, 1003, &[]);
    with_both(|place| {
        let id = provide(place, MAKER, 0o666);
        PEER.does(|| forge(place, id, 1003));
        MAKER.does(|| {
            same!(place, "remove", |q| q.remove(q.get(KEY, 0)));
            same!(place, "find", |q| q.get(KEY, 0));
        });
    });
}

#[test]
fn a_former_owner_of_a_queue_cannot_forge_to_be_its_creator() {
    const PEER: User = User(1003, 1003, &[]);
    with_both(|place| {
        for giver in [MAKER, ROOT] {
            let id = provide(place, MAKER, 0o600);
            giver.does(|| assert_eq!(Ours(&place.namespace).set(id, [1003, 1001, 0o600, 1000]), 0));
            PEER.does(|| {
                assert!(may_open_the_file(place, id));
                forge(place, id, 1003);
            });
            giver.does(|| {
                let queues = Ours(&place.namespace);
                assert_eq!(queues.set(id, [1001, 1001, 0o600, 1000]), 0);
            });
            PEER.does(|| assert!(!may_open_the_file(place, id), "{giver:?}"));
            MAKER.does(|| {
                same!(place, "remove", |q| q.remove(q.get(KEY, 0)));
            });
        }
    });
}

#[test]
fn a_blocked_process_is_checked_again_when_the_rights_change() {
    with_both(|place| {
        let queue = OpenOptions::new()
            .namespace(&place.namespace)
            .create(true)
            .mode(0o666)
            .open(KEY)
            .unwrap();
        let mut waiter = Child::run(|| {
            User(1002, 1002, &[]).become_self();
            let options = OpenOptions::new().namespace(&place.namespace).clone();
            let error = options.open(KEY).unwrap().receive(Want::Any, &mut [0]);
            error.map_err(|error| error.errno()).unwrap_err()
        });
        assert!(support::wait_until(Duration::from_secs(10), || {
            queue.status().unwrap().blocked_receivers == 1
        }));
        let change = Change {
            mode: Some(0o600),
            ..Change::default()
        };
        queue.set(&change).unwrap();
        waiter.expect(Exit::Code(libc::EACCES), "the blocked receiver");
    });
}
