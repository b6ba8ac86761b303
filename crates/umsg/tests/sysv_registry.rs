//! Tests the set of System V queues: many processes, dead processes and strangers find, make, change and remove queues.

mod support;

use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};
use support::Random;
use support::child::{Child, Exit};
use support::place::Place;
use support::scarce::leave_descriptors;
use umsg::QueueError;
use umsg::sysv::{self, Change, ControlError, MsgInfo, OpenError, OpenOptions, PRIVATE, Queue};
use umsg::{Limits, Namespace};

const KEY: i32 = 0x1234;

fn options(namespace: &Namespace) -> OpenOptions {
    let mut options = OpenOptions::new();
    options.namespace(namespace);
    options
}

fn make(namespace: &Namespace, key: i32) -> Result<Queue, OpenError> {
    options(namespace).create(true).open(key)
}

fn find(namespace: &Namespace, key: i32) -> Result<Queue, OpenError> {
    options(namespace).open(key)
}

/// Returns the names in `msg/`.
fn names(place: &Place) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(place.path().join("msg"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

/// Returns the file in which the user notes the last identifier.
fn last(place: &Place) -> PathBuf {
    let user = rustix::process::geteuid().as_raw();
    place.path().join(format!("own/{user}/next"))
}

#[test]
fn a_queue_is_found_by_its_key_and_by_its_identifier_until_it_is_removed() {
    let place = Place::new();
    let namespace = &place.namespace;
    assert!(matches!(find(namespace, KEY), Err(OpenError::NotFound)));
    let queue = make(namespace, KEY).unwrap();
    assert_eq!((queue.id(), queue.key()), (0, KEY));
    assert_eq!(names(&place), ["0", "k-00001234"]);
    queue.send(3, b"hello").unwrap();
    let same = find(namespace, KEY).unwrap();
    let also = options(namespace).open_id(queue.id()).unwrap();
    assert_eq!((same.id(), also.id()), (0, 0));
    assert_eq!(also.status().unwrap().entry.messages, 1);
    queue.remove().unwrap();
    assert!(names(&place).is_empty());
    assert!(matches!(find(namespace, KEY), Err(OpenError::NotFound)));
    for id in [0, 1, -1, i32::MAX, i32::MIN] {
        let error = options(namespace).open_id(id).unwrap_err();
        assert_eq!(error.errno(), libc::EINVAL, "{id}: {error}");
    }
    assert!(matches!(same.status(), Err(ControlError::Removed)));
    assert!(matches!(same.remove(), Err(ControlError::Removed)));
}

#[test]
fn queues_without_a_key_are_distinct_and_found_by_their_identifier() {
    let place = Place::new();
    let one = make(&place.namespace, PRIVATE).unwrap();
    let other = options(&place.namespace).open(PRIVATE).unwrap();
    assert_eq!((one.id(), other.id(), one.key()), (0, 1, 0));
    assert_eq!(names(&place), ["0", "1", "p-0", "p-1"]);
    let again = options(&place.namespace).open_id(1).unwrap();
    other.send(1, b"hello").unwrap();
    assert_eq!(again.status().unwrap().entry.messages, 1);
    sysv::remove(&place.namespace, 0).unwrap();
    assert!(one.is_removed());
}

#[test]
fn a_request_for_a_new_queue_fails_if_there_is_one() {
    let place = Place::new();
    make(&place.namespace, KEY).unwrap();
    let exclusive = options(&place.namespace)
        .create(true)
        .exclusive(true)
        .open(KEY);
    assert!(matches!(exclusive, Err(OpenError::AlreadyExists)));
    let alone = options(&place.namespace).exclusive(true).open(KEY);
    assert_eq!(alone.unwrap().id(), 0);
}

/// Calls on the kernel's queues, in an IPC namespace of the caller's own.
mod kernel {
    pub fn unshare() -> bool {
        // SAFETY: the caller is a child process.
        unsafe { libc::unshare(libc::CLONE_NEWIPC) == 0 }
    }

    pub fn get(key: i32) -> i32 {
        // SAFETY: the call takes no pointers.
        unsafe { libc::msgget(key, libc::IPC_CREAT | 0o600) }
    }

    pub fn send(id: i32, len: usize) {
        let message = [1_u8; 8 + 4096];
        // SAFETY: a type and the given number of bytes, in a live local.
        let result = unsafe { libc::msgsnd(id, message.as_ptr().cast(), len, libc::IPC_NOWAIT) };
        assert_eq!(result, 0);
    }

    /// Returns the return value and the fields of IPC_INFO or MSG_INFO.
    pub fn info(command: i32) -> (i32, [i32; 7], u16) {
        let mut words = [0xaa_u32 as i32; 8];
        // SAFETY: the commands fill a `struct msginfo`, which is seven ints and a short.
        let highest = unsafe { libc::msgctl(0, command, words.as_mut_ptr().cast()) };
        let mut fields = [0; 7];
        fields.copy_from_slice(&words[..7]);
        (highest, fields, words[7] as u16)
    }

    pub fn remove(id: i32) {
        // SAFETY: IPC_RMID takes no pointer.
        let result = unsafe { libc::msgctl(id, libc::IPC_RMID, std::ptr::null_mut()) };
        assert_eq!(result, 0);
    }
}

/// Exit status of a child that can't do its part.
const LEFT_OUT: i32 = 77;

#[track_caller]
fn left_out_or_well(child: &mut Child, needs: &str) {
    match child.wait(Duration::from_secs(60)) {
        Some(Exit::Code(LEFT_OUT)) => eprintln!("left out: needs {needs}"),
        end => assert_eq!(end, Some(Exit::Code(0))),
    }
}

#[test]
fn identifiers_come_in_the_order_of_the_kernels() {
    let place = Place::new();
    let mut child = Child::run(|| {
        if !kernel::unshare() {
            return LEFT_OUT;
        }
        let mut random = Random::new(1);
        let mut queues: Vec<Queue> = Vec::new();
        for step in 0..3000 {
            // There are up to a hundred queues, and at times only a few.
            let most = if step / 500 % 2 == 0 { 100 } else { 5 };
            if random.below(most) >= queues.len() as u64 {
                let key = match random.below(3) {
                    0 => PRIVATE,
                    _ => 1 + random.below(60) as i32,
                };
                let queue = make(&place.namespace, key).unwrap();
                assert_eq!(queue.id(), kernel::get(key), "step {step}");
                if queues.iter().all(|known| known.id() != queue.id()) {
                    queues.push(queue);
                }
            } else {
                let queue = queues.swap_remove(random.below(queues.len() as u64) as usize);
                kernel::remove(queue.id());
                queue.remove().unwrap();
            }
        }
        0
    });
    left_out_or_well(&mut child, "root, for an IPC namespace");
}

#[test]
fn what_is_reported_of_all_queues_is_what_the_kernel_reports() {
    const IPC_INFO: i32 = 3;
    const MSG_INFO: i32 = 12;
    fn fields(info: MsgInfo) -> (i32, [i32; 7], u16) {
        let first = [info.msgpool, info.msgmap, info.msgmax, info.msgmnb];
        let [a, b, c, d] = first;
        let fields = [a, b, c, d, info.msgmni, info.msgssz, info.msgtql];
        (info.highest_index, fields, info.msgseg)
    }
    let place = Place::new();
    let namespace = &place.namespace;
    let mut child = Child::run(|| {
        if !kernel::unshare() {
            return LEFT_OUT;
        }
        let same = || {
            let ours = fields(sysv::ipc_info(namespace).unwrap());
            assert_eq!(ours, kernel::info(IPC_INFO));
            let ours = fields(sysv::msg_info(namespace).unwrap());
            assert_eq!(ours, kernel::info(MSG_INFO));
        };
        same();
        for key in [PRIVATE, KEY, PRIVATE, 5] {
            let queue = make(namespace, key).unwrap();
            assert_eq!(kernel::get(key), queue.id());
            for len in [0, 1, 100, 4096] {
                queue.try_send(1, &vec![1; len]).unwrap();
                kernel::send(queue.id(), len);
            }
            same();
        }
        for id in [1, 3, 0, 2] {
            sysv::remove(namespace, id).unwrap();
            kernel::remove(id);
            same();
        }
        0
    });
    left_out_or_well(&mut child, "root, for an IPC namespace");
}

#[test]
fn queues_are_made_up_to_the_namespaces_limit_and_as_it_says() {
    let place = Place::new();
    let limits = Limits {
        msgmni: 3,
        msgmax: 100,
        msgmnb: 150,
        ..Limits::default()
    };
    place.namespace.set_limits(&limits).unwrap();
    let queues: Vec<Queue> = (1..=3)
        .map(|key| make(&place.namespace, key).unwrap())
        .collect();
    let error = make(&place.namespace, 4).unwrap_err();
    expect_error!(error, OpenError::TooManyQueues(3), libc::ENOSPC);
    assert_eq!(make(&place.namespace, 3).unwrap().id(), queues[2].id());
    assert_eq!(
        (queues[0].msgmax(), queues[0].entry().unwrap().qbytes),
        (100, 150)
    );
    // The existing queues keep the limits with which they were created.
    place.namespace.set_limits(&Limits::default()).unwrap();
    assert_eq!(
        (queues[0].msgmax(), queues[0].entry().unwrap().qbytes),
        (100, 150)
    );
    assert_eq!(make(&place.namespace, 4).unwrap().msgmax(), 8192);

    place
        .namespace
        .set_limits(&Limits {
            max_bytes: Some(1),
            ..Limits::default()
        })
        .unwrap();
    let error = make(&place.namespace, 5).unwrap_err();
    assert!(
        matches!(error, OpenError::Queue(QueueError::OverLimit)),
        "{error}"
    );
    assert_eq!(names(&place).len(), 8);
}

#[test]
fn a_queue_is_made_larger_without_privilege_as_far_as_the_namespace_says() {
    let place = Place::new();
    let queue = make(&place.namespace, KEY).unwrap();
    let before = queue.entry().unwrap();
    let larger = |qbytes| Change {
        qbytes: Some(qbytes),
        ..Change::default()
    };
    queue.set(&larger(1 << 30)).unwrap();
    let after = queue.entry().unwrap();
    assert_eq!(after.qbytes, 1 << 30);
    assert_eq!(
        (after.mode, after.uid, after.gid),
        (before.mode, before.uid, before.gid)
    );
    assert!(after.changed >= before.changed && after.changed <= Some(SystemTime::now()));
    let mut child = Child::run(|| {
        // SAFETY: the call changes the ids of a child process. Its files belong to another user by now, and it keeps its open files.
        if unsafe { libc::setresuid(1001, 1001, 1001) } != 0 {
            return LEFT_OUT;
        }
        // The process is not the owner any more.
        let error = queue.set(&larger(100)).unwrap_err();
        assert_eq!(error.errno(), libc::EPERM);
        0
    });
    left_out_or_well(&mut child, "root, to act as another user");
    queue.set(&larger(0)).unwrap();
    assert!(matches!(queue.try_send(1, b""), Err(sysv::SendError::Full)));
}

#[test]
fn the_mode_is_taken_whole_and_what_follows_for_the_file_from_it() {
    let place = Place::new();
    for (mode, file) in [
        (0o600, 0o600),
        (0o000, 0o600),
        (0o620, 0o660),
        (0o604, 0o606),
        (0o777, 0o666),
        (0o1711, 0o600),
    ] {
        let mut options = options(&place.namespace);
        let queue = options.mode(mode).open(PRIVATE).unwrap();
        assert_eq!(queue.entry().unwrap().mode, mode & 0o777);
        let path = place.path().join("msg").join(queue.id().to_string());
        assert_eq!(path.metadata().unwrap().mode() & 0o7777, file, "{mode:o}");
        let change = Change {
            mode: Some(0o060),
            ..Change::default()
        };
        queue.set(&change).unwrap();
        assert_eq!(path.metadata().unwrap().mode() & 0o7777, 0o660, "{mode:o}");
    }
}

#[test]
fn foreign_files_among_the_queues_are_no_queues_and_block_no_process() {
    let place = Place::new();
    let at = |name: &str| place.path().join("msg").join(name);
    fs::write(at("0"), b"no queue at all").unwrap();
    fs::write(at("1"), vec![0; 1 << 16]).unwrap();
    fs::create_dir(at("2")).unwrap();
    symlink("/etc/passwd", at("3")).unwrap();
    symlink("4", at("4")).unwrap();
    symlink("99", at("k-00001234")).unwrap();
    symlink("5", at("k-00001234-1")).unwrap();
    symlink("5", at("p-7")).unwrap();
    fs::create_dir(at("p-6")).unwrap();
    for name in ["k-0000000g", "32768", "letter", "p-6-1-1"] {
        fs::write(at(name), b"").unwrap();
    }
    let before = names(&place).len();
    let namespace = &place.namespace;
    assert!(sysv::list(namespace).unwrap().is_empty());
    for id in 0..5 {
        let error = options(namespace).open_id(id).unwrap_err();
        assert_eq!(error.errno(), libc::EINVAL, "{id}: {error}");
    }
    assert!(matches!(find(namespace, KEY), Err(OpenError::NotFound)));
    let keyed = make(namespace, KEY).unwrap();
    assert_eq!(keyed.id() % 32_768, 5);
    assert_eq!(find(namespace, KEY).unwrap().id(), keyed.id());
    let private: Vec<i32> = (0..3)
        .map(|_| make(namespace, PRIVATE).unwrap().id() % 32_768)
        .collect();
    // Index 6 is left out, because a directory has the name of its key symlink.
    assert_eq!(private, [7, 8, 9]);
    assert_eq!(sysv::totals(namespace).unwrap().queues, 4);
    for entry in sysv::list(namespace).unwrap() {
        assert_eq!(
            options(namespace).open_id(entry.id).unwrap().key(),
            entry.key
        );
        sysv::remove(namespace, entry.id).unwrap();
    }
    // The creation of the queues has removed two of the key symlinks: one led to no file, the other led to the file of another queue.
    assert_eq!(names(&place).len(), before - 2);
}

#[test]
fn a_file_with_another_identifier_or_key_than_its_names_is_not_taken_for_a_queue() {
    let place = Place::new();
    let at = |name: &str| place.path().join("msg").join(name);
    let queue = make(&place.namespace, KEY).unwrap();
    fs::hard_link(at("0"), at("9")).unwrap();
    symlink("0", at("k-00000001")).unwrap();
    symlink("9", at("p-9")).unwrap();
    symlink("0", at("p-0")).unwrap();
    assert!(matches!(
        find(&place.namespace, 1),
        Err(OpenError::NotFound)
    ));
    let error = options(&place.namespace).open_id(9).unwrap_err();
    assert!(matches!(error, OpenError::NoSuchId), "{error}");
    let entries = sysv::list(&place.namespace).unwrap();
    assert_eq!(
        entries.iter().map(|entry| entry.id).collect::<Vec<_>>(),
        [0]
    );
    assert_eq!(make(&place.namespace, 1).unwrap().id(), 1);
    queue.remove().unwrap();
}

#[test]
fn a_key_leads_to_the_queue_of_its_one_symlink_whatever_other_names_there_are() {
    let (place, elsewhere) = (Place::new(), Place::new());
    let queue = make(&place.namespace, KEY).unwrap();
    let at = |name: &str| place.path().join("msg").join(name);
    let is_found = || {
        let found = find(&place.namespace, KEY).unwrap().id();
        let made = make(&place.namespace, KEY).unwrap().id();
        let entries = sysv::list(&place.namespace).unwrap();
        let is_listed = entries.iter().any(|entry| entry.id == queue.id());
        assert_eq!((found, made, is_listed), (queue.id(), queue.id(), true));
    };
    symlink("nothing", at("k-00001234-1")).unwrap();
    is_found();
    // A complete queue of the same key, made in another namespace, is linked into this namespace.
    drop(make(&elsewhere.namespace, PRIVATE).unwrap());
    let other = make(&elsewhere.namespace, KEY).unwrap().id();
    let file = elsewhere.path().join("msg").join(other.to_string());
    fs::hard_link(file, at(&other.to_string())).unwrap();
    symlink(other.to_string(), at("k-00001234-2")).unwrap();
    is_found();
    // Every user may set the times of a symbolic link to now. The clock of files has ticks.
    std::thread::sleep(Duration::from_millis(50));
    touch(&at("k-00001234"));
    is_found();
    queue.remove().unwrap();
    let error = find(&place.namespace, KEY).unwrap_err();
    assert!(matches!(error, OpenError::NotFound), "{error}");
}

#[test]
fn a_name_in_the_way_of_a_key_symlink_keeps_this_key_from_being_used_and_no_other() {
    let place = Place::new();
    let at = |name: &str| place.path().join("msg").join(name);
    fs::create_dir(at("k-00001234")).unwrap();
    let error = make(&place.namespace, KEY).unwrap_err();
    expect_error!(error, OpenError::KeyTaken { .. }, libc::EACCES);
    let error = find(&place.namespace, KEY).unwrap_err();
    assert!(matches!(error, OpenError::NotFound), "{error}");
    // No file is left of the queue whose creation failed.
    assert_eq!(names(&place), ["k-00001234"]);
    make(&place.namespace, KEY + 1).unwrap().remove().unwrap();
    fs::remove_dir(at("k-00001234")).unwrap();
    let queue = make(&place.namespace, KEY).unwrap();
    assert_eq!(find(&place.namespace, KEY).unwrap().id(), queue.id());
    sysv::diagnose(&place.namespace, KEY).unwrap();
}

/// Sets the times of a key symlink to now, as `touch -h` does.
fn touch(link: &Path) {
    use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, UTIME_NOW, utimensat};
    let now = Timespec {
        tv_sec: 0,
        tv_nsec: UTIME_NOW,
    };
    let times = Timestamps {
        last_access: now,
        last_modification: now,
    };
    utimensat(CWD, link, &times, AtFlags::SYMLINK_NOFOLLOW).unwrap();
}

#[test]
fn a_damaged_or_foreign_header_is_reported_and_not_believed() {
    let place = Place::new();
    let path = place.path().join("msg/0");
    make(&place.namespace, KEY).unwrap();
    let at_index = |index: u32| place.path().join(format!("msg/{index}")).exists();
    // If the file of the next identifier has this number, the next creation tries index 0 first.
    let next = 64_u64.to_le_bytes();
    let good = fs::File::options()
        .read(true)
        .write(true)
        .open(&path)
        .unwrap();
    let change = |at: u64, byte: u8| {
        use std::os::unix::fs::FileExt;
        let mut was = [0];
        good.read_exact_at(&mut was, at).unwrap();
        good.write_all_at(&[byte], at).unwrap();
        was[0]
    };
    // Magic number, version, capacity, length, longest message, identifier, key.
    for at in [0, 8, 16, 24, 32, 36, 37, 39, 40, 43] {
        let was = change(at, 0x5a);
        let by_id = options(&place.namespace).open_id(0).unwrap_err();
        let expected = match at {
            8 => libc::EINVAL,
            _ => libc::EBADMSG,
        };
        assert_eq!(by_id.errno(), expected, "byte {at}: {by_id}");
        for by_key in [find, make] {
            let refused = by_key(&place.namespace, KEY).unwrap_err();
            assert_eq!(refused.errno(), expected, "byte {at}: {refused}");
        }
        // The list shows only that a queue of this key exists.
        let listed = sysv::list(&place.namespace).unwrap();
        let known: Vec<_> = listed.iter().map(|one| (one.key, one.readable)).collect();
        assert_eq!(known, [(KEY, false)], "byte {at}");
        // The index of the queue stays occupied as well: the next creation does not get it.
        fs::write(last(&place), next).unwrap();
        let own = make(&place.namespace, KEY + 1).unwrap();
        assert!(own.id() % 32_768 != 0 && at_index(0));
        own.remove().unwrap();
        change(at, was);
    }
    let len = good.metadata().unwrap().len();
    good.set_len(4096).unwrap();
    let error = find(&place.namespace, KEY).unwrap_err();
    assert_eq!(error.errno(), libc::EBADMSG, "{error}");
    good.set_len(len).unwrap();
    // All pages but the first are gone; the attach does not touch them.
    drop(find(&place.namespace, KEY).unwrap());
}

#[test]
fn a_queue_that_can_not_be_used_can_be_removed() {
    let place = Place::new();
    for at in [0, 8, 16, 36, 40] {
        let id = make(&place.namespace, KEY).unwrap().id();
        let path = place.path().join(format!("msg/{id}"));
        let file = fs::File::options().write(true).open(path).unwrap();
        std::os::unix::fs::FileExt::write_all_at(&file, &[0x5a], at).unwrap();
        let wrong = id + 32_768;
        let error = sysv::remove(&place.namespace, wrong).unwrap_err();
        assert_eq!(error.errno(), libc::EINVAL, "{error}");
        sysv::remove(&place.namespace, id).unwrap();
        assert_eq!(
            find(&place.namespace, KEY).unwrap_err().errno(),
            libc::ENOENT
        );
        assert!(names(&place).is_empty());
    }
}

#[test]
fn identifiers_go_on_where_they_ended_and_a_lost_note_does_not_bring_them_back() {
    let place = Place::new();
    for expected in 0..3 {
        let queue = make(&place.namespace, PRIVATE).unwrap();
        assert_eq!(queue.id(), expected);
        queue.remove().unwrap();
    }
    let kept = make(&place.namespace, PRIVATE).unwrap();
    fs::remove_file(last(&place)).unwrap();
    let next = make(&place.namespace, PRIVATE).unwrap();
    assert!(
        next.id() > kept.id() && next.id() % 32_768 == 0,
        "{}",
        next.id()
    );
    let after = make(&place.namespace, PRIVATE).unwrap();
    assert_eq!(after.id(), next.id() + 1);
}

#[test]
fn one_descriptor_is_enough_to_find_a_queue_and_four_to_make_one() {
    let place = Place::new();
    make(&place.namespace, KEY).unwrap();
    let mut child = Child::run(|| {
        leave_descriptors(1);
        assert_eq!(find(&place.namespace, KEY).unwrap().id(), 0);
        options(&place.namespace).open_id(0).unwrap();
        let error = make(&place.namespace, PRIVATE).unwrap_err();
        assert_eq!(error.errno(), libc::EMFILE, "{error}");
        leave_descriptors(3);
        let error = make(&place.namespace, PRIVATE).unwrap_err();
        assert_eq!(error.errno(), libc::EMFILE, "{error}");
        leave_descriptors(4);
        assert_eq!(make(&place.namespace, PRIVATE).unwrap().id(), 1);
        0
    });
    assert_eq!(child.wait(Duration::from_secs(60)), Some(Exit::Code(0)));
    assert_eq!(names(&place), ["0", "1", "k-00001234", "p-1"]);
}
