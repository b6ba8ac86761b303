//! Scarcity: children with their own limits, a full private file system, and the resources that a process uses.

use super::child::{Child, Exit};
use std::ffi::CString;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Exit status of a child that could not set up its environment.
pub const LEFT_OUT: i32 = 77;

/// Runs `work` in a child, as root if this process is root. A failed assertion in the child fails the test.
#[track_caller]
pub fn in_child(work: impl FnOnce() -> i32) {
    in_child_for(Duration::from_secs(60), work);
}

/// Does the same as [`in_child`], with a time limit.
#[track_caller]
pub fn in_child_for(patience: Duration, work: impl FnOnce() -> i32) {
    let mut child = Child::run(work);
    match child.wait(patience) {
        Some(Exit::Code(0)) => {}
        Some(Exit::Code(LEFT_OUT)) => eprintln!("left out: not permitted here"),
        other => panic!("the child ended with {other:?}"),
    }
}

/// Sets a limit of this process, such as `RLIMIT_AS`. Returns the previous value.
pub fn limit(resource: libc::__rlimit_resource_t, soft: u64) -> u64 {
    // SAFETY: the first call fills in the limit, and the second call changes the limit of this process.
    unsafe {
        let mut limit: libc::rlimit = std::mem::zeroed();
        assert_eq!(libc::getrlimit(resource, &raw mut limit), 0);
        let before = limit.rlim_cur;
        limit.rlim_cur = soft;
        assert_eq!(libc::setrlimit(resource, &raw const limit), 0);
        before
    }
}

/// Limits the descriptors of this process so that `free` unused numbers are left.
pub fn leave_descriptors(free: usize) {
    // SAFETY: F_GETFD only asks whether the number is taken.
    let is_free = |number: &i32| unsafe { libc::fcntl(*number, libc::F_GETFD) } == -1;
    let end = match free {
        0 => 0,
        _ => (0..).filter(is_free).nth(free - 1).unwrap() + 1,
    };
    limit(libc::RLIMIT_NOFILE, end as u64);
}

/// Mounts a tmpfs that only this process, which has to be a child, and its children see. `options` are those of mount, such as `size=1m`. Returns
/// false if the process may not mount.
#[must_use]
pub fn mount_private(at: &Path, options: &str) -> bool {
    let at = CString::new(at.to_str().unwrap()).unwrap();
    let options = CString::new(format!("{options},mode=700")).unwrap();
    let no_data: *const libc::c_void = std::ptr::null();
    // SAFETY: the strings end with NUL and outlive the calls. The mount namespace is this process's own.
    unsafe {
        libc::unshare(libc::CLONE_NEWNS) == 0
            && libc::mount(
                c"none".as_ptr(),
                c"/".as_ptr(),
                c"".as_ptr(),
                libc::MS_REC | libc::MS_PRIVATE,
                no_data,
            ) == 0
            && libc::mount(
                c"tmpfs".as_ptr(),
                at.as_ptr(),
                c"tmpfs".as_ptr(),
                0,
                options.as_ptr().cast(),
            ) == 0
    }
}

/// Changes the options of a file system that [`mount_private`] has mounted.
pub fn remount(at: &Path, options: &str) {
    let at = CString::new(at.to_str().unwrap()).unwrap();
    let options = CString::new(options).unwrap();
    // SAFETY: the strings end with NUL and outlive the call.
    let result = unsafe {
        libc::mount(
            std::ptr::null(),
            at.as_ptr(),
            std::ptr::null(),
            libc::MS_REMOUNT,
            options.as_ptr().cast(),
        )
    };
    assert_eq!(result, 0, "remount");
}

/// A file that takes this number of bytes, or all free space of its file system if the free space is less. Dropping it removes the file.
pub struct Ballast(PathBuf);

impl Ballast {
    pub fn new(place: &Path, bytes: usize) -> Ballast {
        let path = place.join("ballast");
        let _ = fs::write(&path, vec![1; bytes]);
        Ballast(path)
    }
}

impl Drop for Ballast {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// The resources that this process has in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InUse {
    pub descriptors: usize,
    pub mappings: usize,
    /// The bytes of private memory. They include freed memory that malloc keeps.
    pub private: u64,
}

impl InUse {
    pub fn now() -> InUse {
        let status = fs::read_to_string("/proc/self/status").unwrap();
        let line = status.lines().find(|line| line.starts_with("RssAnon:"));
        let kibibytes = line.unwrap().split_whitespace().nth(1).unwrap();
        InUse {
            descriptors: fs::read_dir("/proc/self/fd").unwrap().count(),
            mappings: fs::read_to_string("/proc/self/maps")
                .unwrap()
                .lines()
                .count(),
            private: kibibytes.parse::<u64>().unwrap() << 10,
        }
    }
}

/// Returns all files below a directory. Omits directories, and two kinds of files that stay: the files of living processes, and the count of changes.
pub fn entries(place: &Path) -> Vec<String> {
    let mut names = everything(place);
    names.retain(|name| !is_life(name) && name != ".changes");
    names
}

/// Returns the number of processes that have a life in a directory.
pub fn lives(place: &Path) -> u64 {
    everything(place)
        .iter()
        .filter(|name| is_life(name))
        .count() as u64
}

fn is_life(path: &str) -> bool {
    path.starts_with(".life-") || path.starts_with("life/")
}

fn everything(place: &Path) -> Vec<String> {
    let mut names = Vec::new();
    for entry in fs::read_dir(place).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().to_string_lossy().into_owned();
        match entry.file_type().unwrap().is_dir() {
            true => names.extend(
                everything(&entry.path())
                    .iter()
                    .map(|inner| format!("{name}/{inner}")),
            ),
            false => names.push(name),
        }
    }
    names.sort_unstable();
    names
}
