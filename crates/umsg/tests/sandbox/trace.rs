//! The system calls that the paths make, as a supervisor sees them, compared with the table of `docs/syscalls.md`.

use super::calls::{CALLS, NEEDED, OLDER};
use super::paths::{self, LONG, Path};
use crate::support::child::{Child, Exit};
use crate::support::place::Place;
use crate::support::seccomp::supervise;
use crate::support::shared::Shared;
use crate::support::wait_until;
use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use umsg::Namespace;

/// Calls that no traced path makes: they are made after deaths, by repairs, by processes with more threads or users, or if another call was
/// refused.
const IN_OTHER_STATES: [&str; 10] = [
    "/proc",
    "cachestat",
    "connect",
    "membarrier",
    "mincore",
    "renameat2",
    "sched_getattr",
    "setfsuid",
    "tgkill",
    "tkill",
];

/// The number of times that each call was made.
type Counts = BTreeMap<libc::c_long, u64>;

/// Returns the request code of an ioctl that reads and writes a structure: asm-generic/ioctl.h.
const fn request<T>(number: u64) -> u64 {
    3 << 30 | (size_of::<T>() as u64) << 16 | (b'!' as u64) << 8 | number
}

const RECEIVE: u64 = request::<libc::seccomp_notif>(0);
const ANSWER: u64 = request::<libc::seccomp_notif_resp>(1);

/// Returns a copy of the child's descriptor in this process.
fn taken_over(child: &Child, descriptor: i32) -> OwnedFd {
    // SAFETY: the descriptors are new, and have no other owner.
    let own = unsafe {
        let process = libc::syscall(libc::SYS_pidfd_open, child.pid(), 0) as i32;
        assert!(process >= 0, "pidfd_open");
        let process = OwnedFd::from_raw_fd(process);
        libc::syscall(libc::SYS_pidfd_getfd, process.as_raw_fd(), descriptor, 0) as i32
    };
    assert!(own >= 0, "{}", std::io::Error::last_os_error());
    // SAFETY: the descriptor is new, and has no other owner.
    unsafe { OwnedFd::from_raw_fd(own) }
}

/// Notes the calls and lets them pass, until all calling processes have ended.
fn watch(listener: &OwnedFd, note: &mut dyn FnMut(libc::c_long)) {
    let fd = listener.as_raw_fd();
    loop {
        let mut polled = libc::pollfd {
            fd,
            events: libc::POLLIN,
            revents: 0,
        };
        // SAFETY: the call takes one entry, a local variable.
        let count = unsafe { libc::poll(&raw mut polled, 1, LONG.as_millis() as i32) };
        assert_eq!(count, 1, "a path that is stuck");
        if polled.revents & libc::POLLIN == 0 {
            return;
        }
        // SAFETY: the structures are zeroed, as the kernel requires, and have the size that the requests name.
        unsafe {
            let mut told: libc::seccomp_notif = std::mem::zeroed();
            if libc::ioctl(fd, RECEIVE, &raw mut told) != 0 {
                // A signal ended the call before the supervisor was notified.
                continue;
            }
            note(told.data.nr.into());
            let mut answer: libc::seccomp_notif_resp = std::mem::zeroed();
            answer.id = told.id;
            answer.flags = libc::SECCOMP_USER_NOTIF_FLAG_CONTINUE as u32;
            libc::ioctl(fd, ANSWER, &raw mut answer);
        }
    }
}

/// Counts the system calls of a path, from the opening of its namespace to the end of the path.
fn calls_of(path: &Path) -> Counts {
    let place = Place::new();
    path.furnish(&place);
    let mut counts = Counts::new();
    let walk = || {
        let namespace = Namespace::at(place.path()).expect("a namespace");
        (path.walk)(&namespace).expect("all that the path calls");
    };
    watch_child(path.name, walk, &mut |number| {
        *counts.entry(number).or_default() += 1;
    });
    counts
}

/// Runs `work` in a child. Notes each system call of the child before the kernel makes the call.
pub fn watch_child(what: &str, work: impl FnOnce(), note: &mut dyn FnMut(libc::c_long)) {
    let told = Shared::<AtomicU64>::new();
    let mut child = Child::run(|| {
        told.store(supervise() as u64 + 1, Ordering::SeqCst);
        work();
        0
    });
    let is_told = || told.load(Ordering::SeqCst) != 0;
    assert!(wait_until(LONG, is_told), "no supervisor");
    let listener = taken_over(&child, told.load(Ordering::SeqCst) as i32 - 1);
    watch(&listener, note);
    assert_eq!(
        child.wait(Duration::from_secs(60)),
        Some(Exit::Code(0)),
        "{what}"
    );
}

/// Returns the words in backquotes of the second column of the table.
fn documented() -> BTreeSet<&'static str> {
    let page = include_str!("../../../../docs/syscalls.md");
    let rows = page.lines().filter(|line| line.starts_with("| "));
    rows.filter_map(|row| row.split('|').nth(2))
        .flat_map(|calls| calls.split('`').skip(1).step_by(2))
        .collect()
}

fn name_of(number: libc::c_long) -> Option<&'static str> {
    let known = [CALLS, NEEDED, OLDER].concat();
    let found = known.iter().find(|(_, known)| *known == number);
    found.map(|(name, _)| *name)
}

#[test]
fn the_paths_make_the_system_calls_that_the_table_lists_and_no_others() {
    let documented = documented();
    let mut made = BTreeSet::new();
    let mut unknown = vec![];
    for path in paths::all() {
        for number in calls_of(path).into_keys() {
            let name = name_of(number);
            let is_needed = NEEDED
                .iter()
                .chain(OLDER)
                .any(|(_, needed)| *needed == number);
            if !is_needed && name.is_none_or(|name| !documented.contains(name)) {
                unknown.push(format!("{}: {} ({number})", path.name, name.unwrap_or("?")));
            }
            made.extend(name);
        }
    }
    assert!(unknown.is_empty(), "not in docs/syscalls.md: {unknown:#?}");
    made.extend(IN_OTHER_STATES);
    let unmade: Vec<_> = documented.difference(&made).collect();
    assert!(
        unmade.is_empty(),
        "in docs/syscalls.md, but made by no path: {unmade:?}"
    );
}

#[test]
fn a_thousand_messages_make_no_system_call() {
    let of = |name| calls_of(paths::all().find(|path| path.name == name).unwrap());
    let (one, many) = (of("posix_open"), of("send_and_receive"));
    let total = |counts: &Counts| counts.values().sum::<u64>();
    // The allocator of the tests may make some system calls.
    assert!(total(&many) < total(&one) + 50, "{one:?} and {many:?}");
}
