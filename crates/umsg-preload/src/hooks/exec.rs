//! exec and posix_spawn: programs into which no library can be loaded.
//!
//! The dynamic linker loads the drop-in into the programs that this program starts. A statically linked program has no dynamic linker, and would use
//! the kernel's queues. So the drop-in starts the command `umsg run` instead. The command supervises the program, or says why it can't. `$UMSG_RUN`
//! names the command, and `umsg run` sets this variable. Without `$UMSG_RUN` or `$LD_PRELOAD` in the environment of the new program, nothing changes.
//!
//! This module allocates no memory: the child of vfork shares its parent's memory, and another thread may have held a lock of malloc at a fork.

use std::ffi::{CStr, c_char, c_int};
use std::mem::MaybeUninit;

use libc::{pid_t, posix_spawn_file_actions_t, posix_spawnattr_t};

use crate::{errno, kernel};

mod static_program;

use static_program::{File, is_static};

type Strings = *const *const c_char;

unsafe extern "C" {
    static environ: Strings;
}

const RUN: &[u8] = b"UMSG_RUN=";
const PRELOAD: &[u8] = b"LD_PRELOAD=";

const LONGEST_PATH: usize = 4096;

/// The directories that libc searches without PATH.
const DEFAULT_PATH: &[u8] = match cfg!(target_env = "musl") {
    true => b"/usr/local/bin:/bin:/usr/bin",
    false => b"/bin:/usr/bin",
};

/// The errors after which libc tries the next directory of PATH. musl knows the first three.
const PASSED_OVER: &[c_int] = match cfg!(target_env = "musl") {
    true => &[libc::EACCES, libc::ENOENT, libc::ENOTDIR],
    false => &[
        libc::EACCES,
        libc::ENOENT,
        libc::ENOTDIR,
        libc::ESTALE,
        libc::ENODEV,
        libc::ETIMEDOUT,
    ],
};

/// The numbers of strings that fit on the stack: the arguments of a variadic call, and those of `umsg run`.
const FEW_LISTED: usize = 64;
const FEW: usize = 128;

/// The next function of exec or posix_spawn, for a program and its arguments.
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

    /// Replaces the program by a program that is named by a path from a directory.
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

/// Returns the result of posix_spawn, which is an error number: a call that this module fails has set errno.
fn spawned(outcome: c_int) -> c_int {
    match outcome {
        -1 => errno::get(),
        outcome => outcome,
    }
}

/// Calls `call` with the program and its arguments, or with those of `umsg run`.
///
/// # Safety
/// The strings are those of a call of execve: they end with a null pointer, or are null.
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

/// Starts a program as [`start`] does, whose name has no slash. Only this function needs memory for a path: a thread may have a small stack.
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
        // SAFETY: as above.
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
        // A new program ends the mapping; in a child of vfork, the parent keeps it.
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

/// Prints why a program was not started, if the command that supervises it can't be executed: the program sees only the error of the command.
#[cold]
fn explain_missing(command: *const c_char) {
    if is_executable(command) {
        return;
    }
    let errno = errno::get();
    // SAFETY: a string.
    let name = unsafe { CStr::from_ptr(command) }.to_bytes();
    let parts: [&[u8]; 3] = [
        b"umsg: ",
        name,
        b": $UMSG_RUN names no command, and static programs need umsg run; install umsg again, and start the program anew\n",
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

/// Returns the path of the command in the environment of a new program. None if the program is to be left alone.
///
/// # Safety
/// The environment ends with a null pointer, or is null.
unsafe fn command(environment: Strings) -> Option<*const c_char> {
    // SAFETY: by this function's contract.
    unsafe { value(environment, PRELOAD)? };
    // SAFETY: as above.
    unsafe { value(environment, RUN) }
}

/// Returns the value of a variable that is not empty.
///
/// # Safety
/// The conditions of [`command`].
unsafe fn value(environment: Strings, name: &[u8]) -> Option<*const c_char> {
    // SAFETY: by this function's contract; a value is a string.
    unsafe { variable(environment, name).filter(|value| **value != 0) }
}

/// Returns the value of a variable.
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

/// A path in a buffer of its own.
struct Path([u8; LONGEST_PATH]);

/// The path of a program that the caller names by a descriptor. If the path leads to a duplicate of the descriptor, the end of this value closes the
/// duplicate: the execution has failed then.
pub(super) struct Named {
    path: Path,
    _duplicate: Option<File>,
}

impl Named {
    fn by(path: Path) -> Named {
        Named {
            path,
            _duplicate: None,
        }
    }

    pub(super) fn start(&self) -> *const c_char {
        self.path.start()
    }
}

impl Path {
    fn new() -> Path {
        Path([0; LONGEST_PATH])
    }

    fn joined(parts: &[&[u8]]) -> Option<Path> {
        let mut path = Path::new();
        path.join(parts).then_some(path)
    }

    /// Writes the parts one behind the other. Returns false if they are too long.
    fn join(&mut self, parts: &[&[u8]]) -> bool {
        let mut at = 0;
        for part in parts {
            let end = at + part.len();
            // The last byte is for the zero byte behind the path.
            let Some(room) = self.0[..LONGEST_PATH - 1].get_mut(at..end) else {
                return false;
            };
            room.copy_from_slice(part);
            at = end;
        }
        self.0[at] = 0;
        true
    }

    /// Looks a name up in PATH, as execvp does: an empty directory is the working directory, and the search ends with an error that says nothing
    /// about the other directories. Returns false if no directory has such a program. Source: posix/execvpe.c of glibc, src/process/execvp.c of musl.
    fn look_up(&mut self, name: &[u8]) -> bool {
        // SAFETY: the process's environment ends with a null pointer.
        let list = unsafe { variable(environ, b"PATH=") };
        // SAFETY: a value is a string.
        let list = list.map_or(DEFAULT_PATH, |list| unsafe {
            CStr::from_ptr(list).to_bytes()
        });
        for directory in list.split(|byte| *byte == b':') {
            let is_joined = match directory {
                b"" => self.join(&[b"./", name]),
                directory => self.join(&[directory, b"/", name]),
            };
            // libc skips a directory whose path is too long.
            match is_joined.then(|| executable(self.start())) {
                Some(Ok(true)) => return true,
                // Something that is no file can't be executed: EACCES.
                Some(Ok(false)) | None => {}
                Some(Err(errno)) if PASSED_OVER.contains(&errno) => {}
                Some(Err(_)) => return false,
            }
        }
        false
    }

    /// Returns the path `/proc/self/fd/NUMBER` of a descriptor. None for a negative number.
    fn of_number(fd: c_int) -> Option<Path> {
        let mut digits = [0; 10];
        let mut at = digits.len();
        let mut rest = u32::try_from(fd).ok()?;
        loop {
            at -= 1;
            digits[at] = b'0' + (rest % 10) as u8;
            rest /= 10;
            if rest == 0 {
                break;
            }
        }
        Path::joined(&[b"/proc/self/fd/", &digits[at..]])
    }

    fn start(&self) -> *const c_char {
        self.0.as_ptr().cast()
    }
}

fn is_executable(path: *const c_char) -> bool {
    executable(path) == Ok(true)
}

/// Returns whether a path leads to a file that the process may execute, or else to a directory or another object. An error is that of the path.
fn executable(path: *const c_char) -> Result<bool, c_int> {
    let at = libc::AT_FDCWD as usize;
    let (path, access) = (path.expose_provenance(), libc::X_OK as usize);
    // Like exec, the call uses the effective ids. Linux before 5.8 checks the real ones, and so do filters of containers that refuse the new call
    // with EPERM.
    let effective = [at, path, access, libc::AT_EACCESS as usize, 0, 0];
    // SAFETY: the argument is a C string.
    let checked = unsafe { kernel::call(libc::SYS_faccessat2, effective) };
    match checked {
        // SAFETY: the argument is a C string.
        Err(libc::ENOSYS | libc::EPERM) => unsafe { kernel::call(libc::SYS_faccessat, effective)? },
        other => other?,
    };
    let mut found = MaybeUninit::<libc::stat>::uninit();
    let arguments = [at, path, found.as_mut_ptr().expose_provenance(), 0, 0, 0];
    // SAFETY: the arguments are a C string, and room for the result.
    unsafe { kernel::call(libc::SYS_newfstatat, arguments)? };
    // SAFETY: the kernel has written the status.
    Ok(unsafe { found.assume_init() }.st_mode & libc::S_IFMT == libc::S_IFREG)
}

/// Returns the path of a descriptor's static program. The program gets a duplicate of the descriptor, by which `umsg run` executes it.
///
/// # Safety
/// As [`command`].
unsafe fn of_descriptor(fd: c_int, environment: Strings) -> Option<Named> {
    // SAFETY: by this function's contract.
    unsafe { command(environment)? };
    let path = Path::of_number(fd)?;
    if !is_static(path.start()) {
        return None;
    }
    // SAFETY: the call takes only a number.
    let copy = unsafe { kernel::call(libc::SYS_dup, [fd as usize, 0, 0, 0, 0, 0]) };
    let duplicate = File(copy.ok()? as usize);
    Some(Named {
        path: Path::of_number(duplicate.0 as c_int)?,
        _duplicate: Some(duplicate),
    })
}

/// Returns the path of a static program as [`of_descriptor`] does, for the arguments of execveat.
///
/// # Safety
/// As [`command`]; the path is a string or null.
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
        // With AT_SYMLINK_NOFOLLOW, the kernel follows no symbolic link.
        _ if flags != 0 => None,
        [b'/', ..] => Path::joined(&[name]).map(Named::by),
        _ if directory == libc::AT_FDCWD => Path::joined(&[b"./", name]).map(Named::by),
        name => {
            let number = Path::of_number(directory)?;
            // The descriptor of the directory may be close-on-exec, so its path is needed.
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
            // The path of a directory outside of the root, for example, leads to no program: the call with the descriptor executes it.
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

/// Collects the arguments of a variadic call, from the registers and from the stack. A null pointer ends them.
///
/// # Safety
/// The addresses are those of the caller's arguments.
unsafe fn listed(
    (registers, stack): (Strings, Strings),
    call: impl FnOnce(Strings, Strings) -> c_int,
) -> c_int {
    // SAFETY: by this function's contract.
    let at = |index: usize| unsafe {
        match index < REGISTERS {
            true => *registers.add(index),
            false => *stack.add(index - REGISTERS),
        }
    };
    let mut count = 0;
    while !at(count).is_null() {
        count += 1;
    }
    // execle has the environment behind the null pointer.
    let mut few = [std::ptr::null(); FEW_LISTED];
    let room: *mut *const c_char = match count < FEW_LISTED {
        true => few.as_mut_ptr(),
        false => map((count + 1) * size_of::<*const c_char>()).cast(),
    };
    if room.is_null() {
        return errno::fail(libc::ENOMEM);
    }
    for index in 0..=count {
        // SAFETY: the room has a place for each argument and for the null pointer.
        unsafe { room.add(index).write(at(index)) };
    }
    let outcome = call(room, at(count + 1).cast());
    if count >= FEW_LISTED {
        let errno = errno::get();
        unmap(room.cast(), (count + 1) * size_of::<*const c_char>());
        errno::set(errno);
    }
    outcome
}

/// The number of registers that hold arguments behind the first argument.
const REGISTERS: usize = match cfg!(target_arch = "x86_64") {
    true => 5,
    false => 7,
};

/// # Safety
/// The conditions of libc's execl.
unsafe extern "C" fn list(path: *const c_char, registers: Strings, stack: Strings) -> c_int {
    // SAFETY: by this function's contract.
    unsafe { listed((registers, stack), |arguments, _| execv(path, arguments)) }
}

/// # Safety
/// The conditions of libc's execlp.
unsafe extern "C" fn list_in_path(
    name: *const c_char,
    registers: Strings,
    stack: Strings,
) -> c_int {
    // SAFETY: by this function's contract.
    unsafe { listed((registers, stack), |arguments, _| execvp(name, arguments)) }
}

/// # Safety
/// The conditions of libc's execle.
unsafe extern "C" fn list_with_environment(
    path: *const c_char,
    registers: Strings,
    stack: Strings,
) -> c_int {
    // SAFETY: by this function's contract.
    unsafe {
        listed((registers, stack), |arguments, environment| {
            execve(path, arguments, environment)
        })
    }
}

/// Exports a variadic function: passes the addresses of its arguments to a function of Rust.
macro_rules! variadic {
    ($(#[doc = $doc:literal] fn $name:ident => $function:ident;)*) => {
        $(
            #[doc = $doc]
            #[cfg_attr(not(test), unsafe(no_mangle))]
            #[unsafe(naked)]
            pub unsafe extern "C" fn $name() {
                #[cfg(target_arch = "x86_64")]
                std::arch::naked_asm!(
                    ".cfi_startproc",
                    "sub rsp, 56",
                    ".cfi_def_cfa_offset 64",
                    "mov [rsp], rsi",
                    "mov [rsp + 8], rdx",
                    "mov [rsp + 16], rcx",
                    "mov [rsp + 24], r8",
                    "mov [rsp + 32], r9",
                    "mov rsi, rsp",
                    "lea rdx, [rsp + 64]",
                    "call {function}",
                    "add rsp, 56",
                    ".cfi_def_cfa_offset 8",
                    "ret",
                    ".cfi_endproc",
                    function = sym $function,
                );
                #[cfg(target_arch = "aarch64")]
                std::arch::naked_asm!(
                    ".cfi_startproc",
                    "stp x29, x30, [sp, -80]!",
                    ".cfi_def_cfa_offset 80",
                    ".cfi_offset x29, -80",
                    ".cfi_offset x30, -72",
                    "stp x1, x2, [sp, 16]",
                    "stp x3, x4, [sp, 32]",
                    "stp x5, x6, [sp, 48]",
                    "str x7, [sp, 64]",
                    "add x1, sp, 16",
                    "add x2, sp, 80",
                    "bl {function}",
                    "ldp x29, x30, [sp], 80",
                    ".cfi_def_cfa_offset 0",
                    ".cfi_restore x29",
                    ".cfi_restore x30",
                    "ret",
                    ".cfi_endproc",
                    function = sym $function,
                );
            }
        )*
    };
}

variadic! {
    /// Replaces the program. The arguments of the program are the further arguments of the call.
    fn execl => list;
    /// Replaces the program as execl does. The program is looked up in PATH.
    fn execlp => list_in_path;
    /// Replaces the program as execl does. The environment follows the arguments.
    fn execle => list_with_environment;
}
