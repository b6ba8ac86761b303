//! exec and posix_spawn, for programs into which no library can be loaded.
//!
//! The dynamic linker loads the drop-in into the programs that this program starts. A statically linked program has no dynamic linker, and would use
//! the kernel's queues. So the drop-in starts the command `umsg run` instead. The command supervises the program, or prints why it can't.
//! `$UMSG_RUN`, which `umsg run` sets, has the path of the command. Without `$UMSG_RUN` or `$LD_PRELOAD` in the environment of the new program, the
//! drop-in passes the call on.
//!
//! This module allocates no memory: the child of vfork shares its parent's memory, and another thread may have held a lock of malloc at a fork.

use std::ffi::{CStr, c_char, c_int};

use libc::{pid_t, posix_spawn_file_actions_t, posix_spawnattr_t};

use crate::{errno, kernel};

mod listed;
mod path;
mod static_program;

use path::{LONGEST_PATH, Named, Path, is_executable};
use static_program::{File, is_static};

type Strings = *const *const c_char;

unsafe extern "C" {
    static environ: Strings;
}

const RUN: &[u8] = b"UMSG_RUN=";
const PRELOAD: &[u8] = b"LD_PRELOAD=";

/// The number of arguments of `umsg run`, with the final null pointer, that fit into the array on the stack.
const FEW: usize = 128;

/// A function that calls the next library's exec or posix_spawn with a program and its arguments.
type Call<'a> = &'a dyn Fn(*const c_char, Strings) -> c_int;

hooks! {
    /// Replaces the program.
    fn [execve](path: *const c_char, arguments: Strings, environment: Strings) -> c_int {
        next => start((path, false), (arguments, environment), |path, arguments| {
            next(path, arguments, environment)
        })
    }

    /// Replaces the program, which keeps the environment of this process.
    fn [execv](path: *const c_char, arguments: Strings) -> c_int {
        next => start((path, false), (arguments, environ), |path, arguments| next(path, arguments))
    }

    /// Replaces the program by a program that is looked up in PATH.
    fn [execvp](name: *const c_char, arguments: Strings) -> c_int {
        next => start((name, true), (arguments, environ), |name, arguments| next(name, arguments))
    }

    /// Replaces the program as execvp does, with another environment.
    fn [execvpe](name: *const c_char, arguments: Strings, environment: Strings) -> c_int {
        next => start((name, true), (arguments, environment), |name, arguments| {
            next(name, arguments, environment)
        })
    }

    /// Replaces the program by the program of a descriptor.
    fn [fexecve](fd: c_int, arguments: Strings, environment: Strings) -> c_int {
        next => match of_descriptor(fd, environment) {
            Some(program) => execve(program.start(), arguments, environment),
            None => next(fd, arguments, environment),
        }
    }

    /// Replaces the program by the program at a path relative to a directory.
    fn [execveat](directory: c_int, path: *const c_char, arguments: Strings, environment: Strings, flags: c_int) -> c_int {
        next => match beside(directory, path, environment, flags) {
            Some(program) => execve(program.start(), arguments, environment),
            None => next(directory, path, arguments, environment, flags),
        }
    }

    /// Starts a program in a new process.
    fn [posix_spawn](pid: *mut pid_t, path: *const c_char, actions: *const posix_spawn_file_actions_t, attributes: *const posix_spawnattr_t, arguments: Strings, environment: Strings) -> c_int {
        next => spawned(start((path, false), (arguments, environment), |path, arguments| {
            next(pid, path, actions, attributes, arguments, environment)
        }))
    }

    /// Starts a program that is looked up in PATH.
    fn [posix_spawnp](pid: *mut pid_t, name: *const c_char, actions: *const posix_spawn_file_actions_t, attributes: *const posix_spawnattr_t, arguments: Strings, environment: Strings) -> c_int {
        next => spawned(start((name, true), (arguments, environment), |name, arguments| {
            next(pid, name, actions, attributes, arguments, environment)
        }))
    }
}

/// Converts the result of posix_spawn to an error number. The result -1 comes from this module, which has set errno.
fn spawned(outcome: c_int) -> c_int {
    match outcome {
        -1 => errno::get(),
        outcome => outcome,
    }
}

/// Calls `call` with the program and its arguments, or with those of `umsg run`.
///
/// # Safety
/// The strings are those of a call of execve: an array that ends with a null pointer, or null.
unsafe fn start(
    (name, is_looked_up): (*const c_char, bool),
    (arguments, environment): (Strings, Strings),
    call: impl Fn(*const c_char, Strings) -> c_int,
) -> c_int {
    // SAFETY: by this function's contract.
    let command = unsafe { command(environment) };
    let Some(command) = command.filter(|_| !name.is_null() && !arguments.is_null()) else {
        return call(name, arguments);
    };
    // SAFETY: by this function's contract.
    let bytes = unsafe { CStr::from_ptr(name) }.to_bytes();
    // SAFETY: by this function's contract.
    unsafe {
        match bytes.contains(&b'/') {
            true => start_at((name, name), arguments, command, &call),
            false => start_named((name, is_looked_up), arguments, command, &call),
        }
    }
}

/// Starts a program whose name has no slash, as [`start`] does. Only this function needs memory for a path: a thread may have a small stack.
///
/// # Safety
/// The name is a string, and the arguments end with a null pointer.
#[inline(never)]
unsafe fn start_named(
    (name, is_looked_up): (*const c_char, bool),
    arguments: Strings,
    command: *const c_char,
    call: Call<'_>,
) -> c_int {
    // SAFETY: by this function's contract.
    let bytes = unsafe { CStr::from_ptr(name) }.to_bytes();
    let mut path = Path::new();
    let errno = errno::get();
    let is_found = match is_looked_up {
        _ if bytes.is_empty() => false,
        true => path.look_up(bytes),
        false => path.join(&[b"./", bytes]),
    };
    errno::set(errno);
    match is_found {
        // SAFETY: by this function's contract.
        true => unsafe { start_at((path.start(), name), arguments, command, call) },
        false => call(name, arguments),
    }
}

/// Starts the program at a path as [`start`] does. `name` is the program as the caller names it.
///
/// # Safety
/// The path and the name are strings, and the arguments end with a null pointer.
#[inline(never)]
unsafe fn start_at(
    (path, name): (*const c_char, *const c_char),
    arguments: Strings,
    command: *const c_char,
    call: Call<'_>,
) -> c_int {
    let errno = errno::get();
    let is_ours = is_static(path) && is_executable(path);
    errno::set(errno);
    match is_ours {
        // SAFETY: by this function's contract.
        true => unsafe { instead(command, path, arguments, call) },
        false => call(name, arguments),
    }
}

/// Calls `call` with `umsg run --argv0 NAME -- PATH ARGUMENTS`.
///
/// # Safety
/// The path is a string, and the arguments end with a null pointer.
#[inline(never)]
unsafe fn instead(
    command: *const c_char,
    path: *const c_char,
    arguments: Strings,
    call: Call<'_>,
) -> c_int {
    // SAFETY: by this function's contract.
    let count = unsafe { count(arguments) };
    let name = match count {
        0 => path,
        // SAFETY: by this function's contract.
        _ => unsafe { *arguments },
    };
    let words = [
        c"umsg".as_ptr(),
        c"run".as_ptr(),
        c"--argv0".as_ptr(),
        name,
        c"--".as_ptr(),
        path,
    ];
    let all = words.len() + count.max(1);
    let mut few = [std::ptr::null(); FEW];
    let room: *mut *const c_char = match all <= FEW {
        true => few.as_mut_ptr(),
        // An exec that succeeds ends the mapping. After an exec in a child of vfork, the mapping stays in the parent.
        false => map(all * size_of::<*const c_char>()).cast(),
    };
    if room.is_null() {
        return errno::fail(libc::ENOMEM);
    }
    // SAFETY: the room has `all` places. The arguments end with a null pointer, which is copied.
    unsafe {
        room.copy_from_nonoverlapping(words.as_ptr(), words.len());
        let behind = room.add(words.len());
        match count {
            0 => behind.write(std::ptr::null()),
            _ => behind.copy_from_nonoverlapping(arguments.add(1), count),
        }
    }
    let outcome = call(command, room);
    // A posix_spawn that succeeds returns 0. An exec returns only after a failure.
    if outcome != 0 {
        explain_missing(command);
    }
    if all > FEW {
        let errno = errno::get();
        unmap(room.cast(), all * size_of::<*const c_char>());
        errno::set(errno);
    }
    outcome
}

/// If the supervising command can't be executed, prints why the program was not started: the program sees only an errno.
#[cold]
fn explain_missing(command: *const c_char) {
    if is_executable(command) {
        return;
    }
    let errno = errno::get();
    // SAFETY: the pointer is a C string.
    let name = unsafe { CStr::from_ptr(command) }.to_bytes();
    let parts: [&[u8]; 3] = [
        b"umsg: ",
        name,
        b": $UMSG_RUN names no command, and static programs need that command. Install umsg again, and start the program again\n",
    ];
    let parts = parts.map(|part| libc::iovec {
        iov_base: part.as_ptr().cast_mut().cast(),
        iov_len: part.len(),
    });
    let arguments = [
        libc::STDERR_FILENO as usize,
        parts.as_ptr().expose_provenance(),
        parts.len(),
        0,
        0,
        0,
    ];
    // SAFETY: the parts are readable. A failure can't be reported.
    let _ = unsafe { kernel::call(libc::SYS_writev, arguments) };
    errno::set(errno);
}

/// # Safety
/// The strings end with a null pointer.
unsafe fn count(strings: Strings) -> usize {
    let mut count = 0;
    // SAFETY: by this function's contract.
    while unsafe { !(*strings.add(count)).is_null() } {
        count += 1;
    }
    count
}

/// Returns the path of the command `umsg run`, from the environment of a new program. Returns None if the drop-in must not start that command instead
/// of the program.
///
/// # Safety
/// The environment ends with a null pointer, or is null.
unsafe fn command(environment: Strings) -> Option<*const c_char> {
    // SAFETY: by this function's contract.
    unsafe { value(environment, PRELOAD)? };
    // SAFETY: by this function's contract.
    unsafe { value(environment, RUN) }
}

/// Returns the value of an environment variable, if it is not empty. `name` ends with `=`.
///
/// # Safety
/// The conditions of [`command`].
unsafe fn value(environment: Strings, name: &[u8]) -> Option<*const c_char> {
    // SAFETY: by this function's contract; a value is a string.
    unsafe { variable(environment, name).filter(|value| **value != 0) }
}

/// Returns the value of an environment variable. `name` ends with `=`.
///
/// # Safety
/// The conditions of [`command`].
unsafe fn variable(environment: Strings, name: &[u8]) -> Option<*const c_char> {
    if environment.is_null() {
        return None;
    }
    // SAFETY: by this function's contract; a string is read up to its end.
    unsafe {
        let mut at = environment;
        while !(*at).is_null() {
            let string = *at;
            let same = |index: usize| *string.add(index).cast::<u8>() == name[index];
            if (0..name.len()).all(same) {
                return Some(string.add(name.len()));
            }
            at = at.add(1);
        }
    }
    None
}

/// If a descriptor refers to a static program, returns a path of the program. The path leads to a duplicate of the descriptor, through which `umsg
/// run` executes the program.
///
/// # Safety
/// The conditions of [`command`].
unsafe fn of_descriptor(fd: c_int, environment: Strings) -> Option<Named> {
    // SAFETY: by this function's contract.
    unsafe { command(environment)? };
    let path = Path::of_number(fd)?;
    if !is_static(path.start()) {
        return None;
    }
    // SAFETY: the call takes no pointers.
    let copy = unsafe { kernel::call(libc::SYS_dup, [fd as usize, 0, 0, 0, 0, 0]) };
    let duplicate = File(copy.ok()? as usize);
    Some(Named {
        path: Path::of_number(duplicate.0 as c_int)?,
        _duplicate: Some(duplicate),
    })
}

/// Returns a path of the program that execveat(2) with these arguments would execute. Returns None if the drop-in has to pass the call on.
///
/// # Safety
/// The conditions of [`command`]. The path is a C string or null.
pub(super) unsafe fn beside(
    directory: c_int,
    path: *const c_char,
    environment: Strings,
    flags: c_int,
) -> Option<Named> {
    // SAFETY: by this function's contract.
    let name = unsafe { (!path.is_null()).then(|| CStr::from_ptr(path))? }.to_bytes();
    // SAFETY: by this function's contract.
    unsafe { command(environment)? };
    match name {
        b"" if flags & libc::AT_EMPTY_PATH != 0 => {
            // SAFETY: by this function's contract.
            unsafe { of_descriptor(directory, environment) }
        }
        // A call with flags is left to the kernel. For example, with AT_SYMLINK_NOFOLLOW the kernel must not follow a symbolic link.
        _ if flags != 0 => None,
        [b'/', ..] => Path::joined(&[name]).map(Named::by),
        _ if directory == libc::AT_FDCWD => Path::joined(&[b"./", name]).map(Named::by),
        name => {
            let number = Path::of_number(directory)?;
            // The descriptor of the directory may be close-on-exec, so the new program needs the directory's path.
            let mut target = [0; LONGEST_PATH];
            let arguments = [
                libc::AT_FDCWD as usize,
                number.start().expose_provenance(),
                target.as_mut_ptr().expose_provenance(),
                LONGEST_PATH,
                0,
                0,
            ];
            // SAFETY: the arguments are a C string, and a buffer with its length.
            let read = unsafe { kernel::call(libc::SYS_readlinkat, arguments) };
            let len = read.ok()? as usize;
            // The path may be invalid, for example for a directory outside of the process's root. Then the drop-in passes the call on, with the
            // descriptor.
            Path::joined(&[&target[..len], b"/", name])
                .filter(|path| is_static(path.start()))
                .map(Named::by)
        }
    }
}

fn map(len: usize) -> *mut u8 {
    let (access, kind) = (
        libc::PROT_READ | libc::PROT_WRITE,
        libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
    );
    let arguments = [0, len, access as usize, kind as usize, usize::MAX, 0];
    // SAFETY: the kernel chooses the address of the new memory.
    let mapped = unsafe { kernel::call(libc::SYS_mmap, arguments) };
    mapped.map_or(std::ptr::null_mut(), |address| {
        std::ptr::with_exposed_provenance_mut(address as usize)
    })
}

fn unmap(start: *mut u8, len: usize) {
    // SAFETY: the memory is from [`map`], and is no longer used.
    let _ = unsafe {
        kernel::call(
            libc::SYS_munmap,
            [start.expose_provenance(), len, 0, 0, 0, 0],
        )
    };
}
