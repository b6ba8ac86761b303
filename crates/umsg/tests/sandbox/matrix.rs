//! Each system call refused on each path. Either the path works without the system call, or its first library call fails with an error that names the
//! system call: the module `expected` says which of the two.

use super::calls::CALLS;
use super::expected::{Expected, expected};
use super::paths::{self, LONG, Path};
use crate::support::child::{Child, Exit};
use crate::support::place::Place;
use crate::support::seccomp::{Call, refuse};
use umsg::Namespace;

const REFUSALS: [i32; 4] = [libc::ENOSYS, libc::EPERM, libc::EINVAL, libc::EACCES];

/// Exit status of a child in which the path's first library call failed, and the error named the system call.
const NAMED: i32 = 3;
/// Exit status of a child in which the path's first library call failed, and the error did not name the system call.
const UNNAMED: i32 = 4;

/// System calls whose refusal causes an error with other words than the name of the call, each with these words.
const OTHER_WORDS: &[(&str, &str)] = &[
    // If the kernel refuses an unlink, the library's error says that the queue belongs to another user.
    ("unlinkat", "owner or root can unlink"),
    ("unlinkat", "can't create or remove files"),
    // One function of the library opens and reads a directory. Its errors name only the open.
    ("getdents64", "open failed on"),
    ("getdents64", "can't search"),
    // The errors of fchmodat name the call chmod.
    ("fchmodat", "chmod failed on"),
    ("pread64", "read failed on"),
    // One function writes a record and sets the file's mode. Its errors name only the write.
    ("fchmod", "write failed on"),
    // One function makes a ring's socket, binds it and sets its mode. Its errors name only the bind.
    ("socket", "bind"),
    ("fchmodat", "bind"),
    (
        "sendmsg",
        "the descriptor could not be sent to the receiver",
    ),
    ("renameat", "can't create or remove files"),
];

fn names(path: &Path, call: &str, error: &str) -> bool {
    let stem = call.trim_end_matches("64").trim_end_matches("at");
    // The errors of poll(2) and epoll_ctl(2) have only an errno.
    let has_errno_only = path.name.contains("poll") && error.contains("os error");
    let is_known = |(of, words): &(&str, &str)| *of == call && error.contains(words);
    has_errno_only || error.contains(stem) || OTHER_WORDS.iter().any(is_known)
}

/// Walks a path while the kernel refuses a system call. Returns a description of the result if the result is not the expected one.
fn walk_without(path: &Path, (name, number): (&str, libc::c_long), errno: i32) -> Option<String> {
    let place = Place::new();
    path.furnish(&place);
    let mut child = Child::run(|| {
        refuse(&[Call::from(number)], errno);
        let namespace = Namespace::at(place.path());
        let outcome = namespace.map_err(Into::into);
        match outcome.and_then(|namespace| (path.walk)(&namespace)) {
            Ok(()) => 0,
            Err(error) if names(path, name, &error.to_string()) => NAMED,
            Err(error) => {
                eprintln!("{}, {name} refused with {errno}: {error}", path.name);
                UNNAMED
            }
        }
    });
    let expected = expected(path.name, name);
    let result = match child.wait(LONG + LONG) {
        Some(Exit::Code(0)) => Ok(Expected::Works),
        Some(Exit::Code(NAMED)) => Ok(Expected::Fails),
        end => Err(end),
    };
    (result != Ok(expected)).then(|| {
        let path = path.name;
        format!("{path}, {name} refused with errno {errno}: expected {expected:?}, got {result:?}")
    })
}

/// Tests every fourth call, from call `part` on: the parts run in parallel.
fn walk_all(part: usize) {
    let calls = CALLS.iter().skip(part).step_by(4);
    let on_all_paths = |call| paths::all().map(move |path| (call, path));
    let wrong: Vec<_> = calls
        .flat_map(on_all_paths)
        .flat_map(|walk| REFUSALS.map(|errno| (walk, errno)))
        .filter_map(|((call, path), errno)| walk_without(path, *call, errno))
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_refused_call_is_done_without_or_named_by_the_first_call_that_fails_part_1() {
    walk_all(0);
}

#[test]
fn a_refused_call_is_done_without_or_named_by_the_first_call_that_fails_part_2() {
    walk_all(1);
}

#[test]
fn a_refused_call_is_done_without_or_named_by_the_first_call_that_fails_part_3() {
    walk_all(2);
}

#[test]
fn a_refused_call_is_done_without_or_named_by_the_first_call_that_fails_part_4() {
    walk_all(3);
}
