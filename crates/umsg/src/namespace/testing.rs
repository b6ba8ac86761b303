//! Helpers for the tests of the namespace: private directories, and other users.

use std::ffi::OsStr;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use rustix::process::{Gid, Uid};
use rustix::thread;

use super::{Namespace, QueueName};

/// The id of a user that owns no files.
pub(super) const STRANGER: u32 = 65534;
/// The id of another user, with no special rights.
pub(super) const OTHER_STRANGER: u32 = 65533;

/// The lock between the tests of this process that start children and the tests in which a closed file or socket must be closed. A child has its
/// parent's open files until it executes a program or ends. A lock of flock(2) ends, and a socket is closed, only with the last descriptor.
static FORKS: RwLock<()> = RwLock::new(());

/// Keeps other tests from starting children until the returned value is dropped. Several tests may have such a value at once.
pub(crate) fn without_forks() -> RwLockReadGuard<'static, ()> {
    FORKS.read().unwrap_or_else(PoisonError::into_inner)
}

/// Waits for the tests that run [`without_forks`]. The caller keeps the returned value until its child has executed a program or has ended.
pub(crate) fn forking() -> RwLockWriteGuard<'static, ()> {
    FORKS.write().unwrap_or_else(PoisonError::into_inner)
}

/// A directory in /dev/shm, which is removed when the value is dropped.
pub(super) struct TestDir(PathBuf);

impl TestDir {
    /// Makes a directory of mode 0700.
    pub(super) fn new() -> TestDir {
        static COUNTER: AtomicU32 = AtomicU32::new(0);
        let n = COUNTER.fetch_add(1, Ordering::Relaxed);
        let path = PathBuf::from(format!("/dev/shm/umsg-test-{}-{n}", std::process::id()));
        std::fs::create_dir(&path).unwrap();
        chmod(&path, 0o700);
        TestDir(path)
    }

    /// Makes a directory of mode 1777.
    pub(super) fn shared() -> TestDir {
        let dir = TestDir::new();
        chmod(&dir.0, 0o1777);
        dir
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }

    pub(super) fn namespace(&self) -> Namespace {
        Namespace::at(&self.0).unwrap()
    }

    /// Returns the path of a queue's file.
    pub(super) fn queue(&self, name: &str) -> PathBuf {
        self.0.join("mq").join(name)
    }

    pub(super) fn names(&self) -> Vec<String> {
        names_in(&self.0)
    }

    /// Fails if the namespace has more than its record and its directories.
    #[track_caller]
    pub(super) fn expect_no_leftovers(&self) {
        let bare = [".namespace", "bell", "mq", "msg", "own", "ring"];
        assert_eq!(self.names(), bare);
    }

    pub(super) fn queue_names(&self) -> Vec<String> {
        names_in(&self.0.join("mq"))
    }
}

impl Drop for TestDir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn names_in(path: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(path).unwrap();
    let mut names: Vec<_> = entries
        .map(|e| e.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

pub(super) fn name(name: &str) -> QueueName {
    QueueName::parse(OsStr::new(name)).unwrap()
}

pub(super) fn chmod(path: &Path, mode: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

pub(super) fn mode(path: &Path) -> u32 {
    path.symlink_metadata().unwrap().mode() & 0o7777
}

pub(super) fn chown(path: &Path, user: u32) {
    std::os::unix::fs::chown(path, Some(user), None).unwrap();
}

pub(super) fn owner(path: &Path) -> u32 {
    path.symlink_metadata().unwrap().uid()
}

/// Returns the umask of this process, without changing it.
pub(super) fn umask() -> u32 {
    let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
    let line = status
        .lines()
        .find_map(|l| l.strip_prefix("Umask:"))
        .unwrap();
    u32::from_str_radix(line.trim(), 8).unwrap()
}

/// Runs `act` as another user, in a thread that permanently gives up the rights of root. In the kernel, each thread has its own user.
pub(super) fn as_user(user: u32, act: impl FnOnce() + Send) {
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            become_user(user);
            act();
        });
        thread
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    });
}

fn become_user(user: u32) {
    let (uid, gid) = (Uid::from_raw(user), Gid::from_raw(user));
    thread::set_thread_groups(&[]).expect("these tests need root");
    thread::set_thread_res_gid(gid, gid, gid).unwrap();
    thread::set_thread_res_uid(uid, uid, uid).unwrap();
}

/// A test that runs a part of itself in a separate process, with a directory.
pub(super) struct Alone(&'static str);

impl Alone {
    const VARIABLE: &str = "UMSG_TEST_ALONE";

    /// Creates the value for the test of this name, which is the name of its function.
    pub(super) const fn new(test: &'static str) -> Alone {
        Alone(test)
    }

    /// Returns the directory. None outside of the separate process.
    pub(super) fn directory(&self) -> Option<PathBuf> {
        std::env::var_os(Alone::VARIABLE).map(PathBuf::from)
    }

    /// Expects that the part in the separate process succeeds. If `command` is not empty, the process runs under that command.
    pub(super) fn passes(&self, directory: &Path, command: &[&str]) {
        let output = self.run(directory, command);
        let text = String::from_utf8_lossy(&output.stdout);
        let passed = output.status.success() && text.contains("1 passed");
        assert!(passed, "{text}{}", String::from_utf8_lossy(&output.stderr));
    }

    /// Expects that SIGKILL kills the process.
    pub(super) fn is_killed(&self, directory: &Path) {
        let output = self.run(directory, &[]);
        assert_eq!(output.status.signal(), Some(9), "{output:?}");
    }

    fn run(&self, directory: &Path, command: &[&str]) -> Output {
        let this = std::env::current_exe().unwrap();
        let mut words: Vec<&OsStr> = command.iter().map(OsStr::new).collect();
        words.extend([
            this.as_os_str(),
            OsStr::new(self.0),
            OsStr::new("--test-threads=1"),
        ]);
        let _forking = forking();
        let mut run = Command::new(words[0]);
        run.args(&words[1..])
            .env(Alone::VARIABLE, directory)
            .output()
            .unwrap()
    }
}
