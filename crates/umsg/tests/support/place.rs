//! A namespace for one test. It is removed when the value is dropped.

use super::turn;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::MutexGuard;
use tempfile::TempDir;
use umsg::Namespace;
use umsg::posix::{OpenOptions, Queue};
use umsg::sysv;

/// A directory in /dev/shm; or in `UMSG_TEST_DIRECTORY`, which a process that kills a test removes.
pub struct Place {
    dir: TempDir,
    pub namespace: Namespace,
    _turn: Option<MutexGuard<'static, ()>>,
}

impl Place {
    pub fn new() -> Place {
        let parent = std::env::var_os("UMSG_TEST_DIRECTORY");
        Place::below(parent.as_deref().unwrap_or("/dev/shm".as_ref()))
    }

    /// Returns a place of a test that runs alone: as long as the place exists, other tests of this program that run alone wait.
    pub fn in_turn() -> Place {
        let turn = Some(turn());
        Place {
            _turn: turn,
            ..Place::new()
        }
    }

    /// Makes a place in this directory, which may be on any file system.
    pub fn below(parent: impl AsRef<Path>) -> Place {
        let dir = tempfile::Builder::new()
            .prefix("umsg-test-")
            .permissions(Permissions::from_mode(0o700))
            .tempdir_in(parent)
            .expect("a directory");
        let namespace = Namespace::at(dir.path()).expect("a namespace");
        Place {
            dir,
            namespace,
            _turn: None,
        }
    }

    /// Returns the names of the poll FIFOs.
    pub fn poll_fifos(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.path().join("bell")).expect("the directory");
        let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        names.collect()
    }

    /// Fails if a poll FIFO is left. To be called when no process polls any more.
    pub fn expect_no_poll_fifos(&self, what: &str) {
        let fifos = self.poll_fifos();
        assert!(fifos.is_empty(), "{what}: left: {fifos:?}");
    }

    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    /// Returns the names of the files of System V queues, sorted.
    pub fn sysv_names(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.path().join("msg")).expect("the directory");
        let names = entries.map(|entry| entry.expect("an entry").file_name());
        let mut names: Vec<String> = names.map(|name| name.into_string().unwrap()).collect();
        names.sort();
        names
    }

    /// Options that open a queue for sending and receiving, and create it if it does not exist.
    pub fn options(&self, max_messages: u32, message_size: u32) -> OpenOptions {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true);
        options
            .max_messages(max_messages)
            .message_size(message_size);
        options.namespace(&self.namespace);
        options
    }

    /// Opens a queue for sending and receiving; creates it if it does not exist.
    pub fn create(&self, name: &str, max_messages: u32, message_size: u32) -> Queue {
        let options = self.options(max_messages, message_size);
        options.open(name).expect("a queue")
    }

    /// Does the same as [`create`](Self::create), and also returns the place.
    pub fn with_queue(self, name: &str, max_messages: u32, message_size: u32) -> (Place, Queue) {
        let queue = self.create(name, max_messages, message_size);
        (self, queue)
    }

    /// Opens a queue that exists.
    pub fn open(&self, name: &str) -> Queue {
        OpenOptions::new()
            .read(true)
            .write(true)
            .namespace(&self.namespace)
            .open(name)
            .expect("an existing queue")
    }

    /// Opens the System V queue of a key; creates it if it does not exist.
    pub fn create_sysv(&self, key: i32) -> sysv::Queue {
        let mut options = sysv::OpenOptions::new();
        options.create(true).namespace(&self.namespace);
        options.open(key).expect("a System V queue")
    }

    /// Does the same as [`create_sysv`](Self::create_sysv), and also returns the place.
    pub fn with_sysv_queue(self, key: i32) -> (Place, sysv::Queue) {
        let queue = self.create_sysv(key);
        (self, queue)
    }

    /// Opens the System V queue of a key, which exists.
    pub fn open_sysv(&self, key: i32) -> sysv::Queue {
        let mut options = sysv::OpenOptions::new();
        options.namespace(&self.namespace);
        options.open(key).expect("an existing System V queue")
    }
}
