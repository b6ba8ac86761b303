//! Several users in one namespace.

use super::child::{Child, Exit};
use super::place::Place;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use tempfile::TempDir;
use umsg::Namespace;
use umsg::posix::{OpenOptions, Queue};
pub use umsg_testkit::users::{NOBODY, become_user, is_root};

/// A namespace of all users, which root has made; removed when dropped.
pub struct Everybodys {
    dir: TempDir,
    pub namespace: Namespace,
}

impl Everybodys {
    /// Returns None, with a message, if the test can't act as several users.
    pub fn new() -> Option<Everybodys> {
        if !is_root() {
            return None;
        }
        let dir = tempfile::Builder::new()
            .prefix("umsg-test-")
            .tempdir_in("/dev/shm")
            .expect("a directory in /dev/shm");
        // Sets the mode regardless of the umask.
        let everybody = Permissions::from_mode(0o1777);
        std::fs::set_permissions(dir.path(), everybody).expect("its mode");
        let namespace = Namespace::at(dir.path()).expect("a namespace");
        Some(Everybodys { dir, namespace })
    }

    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    /// Returns the file of a POSIX queue.
    pub fn file(&self, name: &str) -> PathBuf {
        self.path().join("mq").join(&name[1..])
    }

    /// Options for a queue of a few short messages, for sending and receiving.
    pub fn options(&self, mode: u32) -> OpenOptions {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).mode(mode);
        options.max_messages(10).message_size(64);
        options.namespace(&self.namespace);
        options
    }

    /// Opens a queue that exists.
    pub fn open(&self, name: &str) -> Queue {
        let mut options = OpenOptions::new();
        options.read(true).write(true).namespace(&self.namespace);
        options.open(name).expect("an existing queue")
    }
}

/// Returns a namespace of all users, as a [`Place`]. Returns None, with a message, if the test can't act as several users.
pub fn all_users() -> Option<Place> {
    let place = Place::new();
    let everybody = Permissions::from_mode(0o1777);
    std::fs::set_permissions(place.path(), everybody).expect("its mode");
    Namespace::at(place.path()).expect("a namespace");
    is_root().then_some(place)
}

/// Starts a process of another user, without groups and without a umask, that does `work` and ends with its status.
pub fn start_as(user: u32, work: impl FnOnce() -> i32) -> Child {
    Child::run(|| {
        become_user(user);
        rustix::process::umask(rustix::fs::Mode::empty());
        work()
    })
}

/// Runs `work` in a process of another user, like [`start_as`], and waits for its end.
pub fn as_user(user: u32, what: &str, work: impl FnOnce()) {
    let mut child = start_as(user, || {
        work();
        0
    });
    child.expect(Exit::Code(0), what);
}
