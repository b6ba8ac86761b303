//! Tests of transient queues.

use std::ffi::OsString;
use std::os::fd::AsFd;

use super::removal::unlink_in;
use super::*;
use crate::namespace::Unpublished;
use crate::namespace::queues::TO_NAMESPACE;
use crate::namespace::staged::Staged;
use crate::namespace::temporary::TemporaryName;
use crate::namespace::testing::{
    STRANGER, TestDir, as_user, chmod, chown, mode, name, without_forks,
};

/// Creates a queue that stays locked as long as the returned file is open.
fn make(namespace: &Namespace) -> Result<OwnedFd, FileError> {
    let new = Unpublished::create(namespace, 0o666)?;
    hold_unnamed(new.file()).unwrap();
    new.publish_transient(&name("/q"), 0o666)
}

fn open(namespace: &Namespace) -> Result<OwnedFd, FileError> {
    let (file, goes) = namespace.open_queue(&name("/q"), FileAccess::ReadWrite, false)?;
    assert!(goes);
    Ok(file)
}

fn remove(namespace: &Namespace) -> Result<Removal, FileError> {
    namespace.remove_unused(&name("/q"), |_| true)
}

#[test]
fn a_queue_that_goes_is_a_directory_with_its_file_and_is_listed_and_opened_as_others_are() {
    let dir = TestDir::new();
    let namespace = dir.namespace();
    let made = make(&namespace).unwrap();
    rustix::io::write(&made, b"whole").unwrap();
    assert_eq!(dir.queue_names(), ["q"]);
    assert_eq!(std::fs::read(dir.queue("q/queue")).unwrap(), b"whole");
    assert_eq!(mode(&dir.queue("q")), 0o711);
    dir.expect_no_leftovers();
    assert_eq!(namespace.queue_names().unwrap(), [name("/q")]);
    assert!(namespace.allocated_bytes().unwrap() >= 4096);
    let opened = open(&namespace).unwrap();
    let inode = |file: &OwnedFd| fs::fstat(file).unwrap().st_ino;
    assert_eq!(inode(&opened), inode(&made));
    assert_eq!(make(&namespace).unwrap_err(), FileError::AlreadyExists);
    let plain = Unpublished::create(&namespace, 0o600).unwrap();
    let outcome = plain.publish(&name("/q"), 0o600);
    assert_eq!(outcome.unwrap_err(), FileError::AlreadyExists);
}

#[test]
fn it_stays_while_it_is_held_or_not_due_and_goes_then() {
    let _without_forks = without_forks();
    let dir = TestDir::new();
    let namespace = dir.namespace();
    let made = make(&namespace).unwrap();
    assert_eq!(remove(&namespace), Ok(Removal::Stays));
    let opened = open(&namespace).unwrap();
    assert_eq!(hold(opened.as_fd()), Ok(Hold::Held));
    drop(made);
    assert_eq!(remove(&namespace), Ok(Removal::Stays));
    drop(opened);
    let early = namespace.remove_unused(&name("/q"), |_| false);
    assert_eq!(early, Ok(Removal::Stays));
    assert_eq!(namespace.remove_all_unused(|_| false), Ok(vec![]));
    let unused = Ok(vec![OsString::from("q")]);
    assert_eq!(namespace.all_unused(|_| true), unused);
    assert_eq!(dir.queue_names(), ["q"]);
    assert_eq!(namespace.remove_all_unused(|_| true), unused);
    assert_eq!(namespace.all_unused(|_| true), Ok(vec![]));
    assert!(dir.queue_names().is_empty());
    assert_eq!(open(&namespace).unwrap_err(), FileError::NotFound);
    assert_eq!(remove(&namespace), Ok(Removal::Gone));
}

#[test]
fn a_file_that_lost_its_name_before_it_was_locked_is_not_held() {
    let _without_forks = without_forks();
    let dir = TestDir::new();
    let namespace = dir.namespace();
    let made = make(&namespace).unwrap();
    let opened = open(&namespace).unwrap();
    drop(made);
    let removing = open(&namespace).unwrap();
    fs::flock(&removing, FlockOperation::NonBlockingLockExclusive).unwrap();
    assert_eq!(hold(opened.as_fd()), Ok(Hold::Leaving));
    drop(removing);
    assert_eq!(remove(&namespace), Ok(Removal::Gone));
    assert_eq!(hold(opened.as_fd()), Ok(Hold::Gone));
}

#[test]
fn a_remover_leaves_another_of_its_name_alone() {
    let dir = TestDir::new();
    let namespace = dir.namespace();
    for is_plain in [false, true] {
        drop(make(&namespace).unwrap());
        // This process has locked the queue, and has not yet unlinked it. Meanwhile, another process replaces the queue by a new one.
        let queues = namespace.queues().unwrap();
        let old = home(&queues, name("/q").as_os_str()).unwrap();
        namespace.unlink_queue_file(&name("/q")).unwrap();
        let new = match is_plain {
            true => Unpublished::create(&namespace, 0o600)
                .unwrap()
                .publish(&name("/q"), 0o600),
            false => make(&namespace),
        };
        let removed = unlink_in(&queues, &old, name("/q").as_os_str());
        assert_eq!(removed, Err(FileError::NotFound));
        assert!(fs::fstat(new.unwrap()).unwrap().st_nlink == 1);
        namespace.unlink_queue_file(&name("/q")).unwrap();
    }
}

#[test]
fn what_a_dead_remover_or_creator_left_hinders_no_process() {
    let dir = TestDir::new();
    let namespace = dir.namespace();
    type Make = fn(&Namespace) -> Result<OwnedFd, FileError>;
    let plain: Make =
        |namespace| Unpublished::create(namespace, 0o600)?.publish(&name("/q"), 0o600);
    let leave = || {
        std::fs::create_dir(dir.queue("q")).unwrap();
        chmod(&dir.queue("q"), MODE);
    };
    for make in [make as Make, plain] {
        leave();
        assert!(namespace.queue_names().unwrap().is_empty());
        assert_eq!(open(&namespace).unwrap_err(), FileError::NotFound);
        drop(make(&namespace).unwrap());
        namespace.unlink_queue_file(&name("/q")).unwrap();
    }
    leave();
    let gone = namespace.unlink_queue_file(&name("/q"));
    assert_eq!(gone, Err(FileError::NotFound));
    assert!(dir.queue_names().is_empty());
}

#[test]
fn a_directory_of_something_else_is_neither_taken_nor_removed() {
    let dir = TestDir::new();
    let namespace = dir.namespace();
    std::fs::create_dir(dir.queue("q")).unwrap();
    let stays = || {
        assert_eq!(make(&namespace).unwrap_err(), FileError::Directory);
        let plain = Unpublished::create(&namespace, 0o600).unwrap();
        let outcome = plain.publish(&name("/q"), 0o600);
        assert_eq!(outcome.unwrap_err(), FileError::Directory);
        assert_eq!(open(&namespace).unwrap_err(), FileError::Directory);
        let gone = namespace.unlink_queue_file(&name("/q"));
        assert_eq!(gone, Err(FileError::Directory));
        assert_eq!(namespace.remove_all_unused(|_| true), Ok(vec![]));
    };
    // An empty directory may belong to a process that is about to put a file into the directory.
    stays();
    std::fs::write(dir.queue("q/letter"), b"").unwrap();
    stays();
    assert!(dir.queue("q/letter").exists());
}

#[test]
fn a_link_in_place_of_the_directory_or_its_file_is_not_followed() {
    let dir = TestDir::new();
    let namespace = dir.namespace();
    let elsewhere = dir.path().join("elsewhere");
    std::fs::create_dir(&elsewhere).unwrap();
    std::fs::write(elsewhere.join("queue"), b"").unwrap();
    std::os::unix::fs::symlink(&elsewhere, dir.queue("q")).unwrap();
    assert!(open(&namespace).is_err());
    assert_eq!(remove(&namespace), Ok(Removal::Stays));
    std::fs::remove_file(dir.queue("q")).unwrap();
    std::fs::create_dir(dir.queue("q")).unwrap();
    std::os::unix::fs::symlink(elsewhere.join("queue"), dir.queue("q/queue")).unwrap();
    assert_eq!(open(&namespace).unwrap_err(), FileError::Symlink);
    assert_eq!(remove(&namespace), Err(FileError::Symlink));
    assert!(elsewhere.join("queue").exists());
}

#[test]
fn a_stranger_may_use_what_the_mode_allows_and_removes_nothing() {
    umsg_testkit::needs_root!();
    let _without_forks = without_forks();
    let dir = TestDir::shared();
    let namespace = dir.namespace();
    drop(make(&namespace).unwrap());
    as_user(STRANGER, || {
        assert_eq!(remove(&namespace), Ok(Removal::Denied));
        let unlinked = namespace.unlink_queue_file(&name("/q"));
        assert_eq!(unlinked, Err(FileError::Denied));
        assert_eq!(make(&namespace).unwrap_err(), FileError::AlreadyExists);
        // The directory can be searched but not read.
        for access in [FileAccess::Read, FileAccess::ReadWrite] {
            let (file, _) = namespace.open_queue(&name("/q"), access, false).unwrap();
            assert_eq!(hold(file.as_fd()), Ok(Hold::Held));
        }
    });
    assert_eq!(remove(&namespace), Ok(Removal::Gone));
    as_user(STRANGER, || drop(make(&namespace).unwrap()));
    assert_eq!(remove(&namespace), Ok(Removal::Gone));
}

/// Tries to remove the queue without permission. Meanwhile, a duplicate of the descriptor is made, as a forked child would have it.
fn try_in_vain(namespace: &Namespace) {
    let childs = std::cell::Cell::new(None);
    let removal = namespace.remove_unused(&name("/q"), |file| {
        childs.set(Some(rustix::io::dup(file).unwrap()));
        true
    });
    assert_eq!(removal, Ok(Removal::Denied));
    assert_eq!(hold(open(namespace).unwrap().as_fd()), Ok(Hold::Held));
    assert!(childs.take().is_some());
}

#[test]
fn a_process_that_may_not_remove_one_keeps_no_other_from_opening_it_though_a_child_was_forked_meanwhile()
 {
    umsg_testkit::needs_root!();
    let _without_forks = without_forks();
    let dir = TestDir::shared();
    let namespace = dir.namespace();
    drop(make(&namespace).unwrap());
    as_user(STRANGER, || try_in_vain(&namespace));
    chown(&dir.queue("q"), STRANGER);
    chmod(&dir.queue("q"), 0o511);
    as_user(STRANGER, || {
        try_in_vain(&namespace);
        // The process had locked the queue before it was refused.
        assert_eq!(namespace.all_unused(|_| true).unwrap().len(), 1);
    });
    assert_eq!(remove(&namespace), Ok(Removal::Gone));
}

#[test]
fn a_directory_that_takes_no_queue_is_an_error() {
    umsg_testkit::needs_root!();
    let dir = TestDir::shared();
    let namespace = dir.namespace();
    let mut way = namespace.queues().unwrap();
    let staged = Staged::create(&mut way, TO_NAMESPACE, 0o600).unwrap();
    rustix::fs::fchown(staged.file(), Some(fs::Uid::from_raw(STRANGER)), None).unwrap();
    // The mode of the directory changes between the creation of the file and the creation of its name.
    chmod(&dir.path().join("mq"), 0o755);
    as_user(STRANGER, || {
        let queues = namespace.queues().unwrap();
        let refused = publish(&staged, &queues, OsStr::new("q")).unwrap_err();
        assert_eq!(refused.errno(), Errno::ACCESS.raw_os_error());
    });
    assert_eq!(dir.names(), ["bell", "mq", "msg", "own", "ring"]);
}

#[test]
fn a_temporary_name_that_is_taken_is_passed_over() {
    let _without_forks = without_forks();
    let dir = TestDir::new();
    let namespace = dir.namespace();
    // The test takes more names than the other tests may use meanwhile.
    let mine = TemporaryName::next("").path().to_str().unwrap().to_owned();
    let (maker, number) = mine.rsplit_once('-').unwrap();
    let number: u32 = number.parse().unwrap();
    for taken in number..number + 1000 {
        std::fs::create_dir(dir.path().join(format!("{maker}-{taken}"))).unwrap();
    }
    drop(make(&namespace).unwrap());
    assert_eq!(remove(&namespace), Ok(Removal::Gone));
}

#[test]
fn a_file_without_o_tmpfile_is_published_too() {
    let dir = TestDir::new();
    let namespace = dir.namespace();
    let queues = namespace.queues().unwrap();
    let mut way = namespace.queues().unwrap();
    let staged = Staged::create_temporary(&mut way, TO_NAMESPACE, 0o600).unwrap();
    publish(&staged, &queues, OsStr::new("q")).unwrap();
    drop(staged.discard(&queues));
    assert_eq!(open(&namespace).map(drop), Ok(()));
    dir.expect_no_leftovers();
}
