//! Recognises statically linked programs, into which no library can be loaded. The module follows interpreters of scripts in the files that exec
//! would execute.
//!
//! The module allocates no memory, as the hooks of exec do.

use std::ffi::{CStr, c_char};
use std::mem::MaybeUninit;

use crate::kernel;

/// The maximum depth of nested interpreters. Source: execve(2).
const MOST_INTERPRETERS: usize = 5;
/// The number of bytes that the kernel reads of a program's file to learn the file's format.
const HEAD: usize = 256;

/// Returns whether a program is statically linked, for this machine, and gains no privilege at its start. For a script, the answer is that for its
/// interpreter.
pub(super) fn is_static(path: *const c_char) -> bool {
    is_static_within(path, MOST_INTERPRETERS)
}

/// Does the same as [`is_static`], with at most `more` interpreters of scripts.
fn is_static_within(path: *const c_char, more: usize) -> bool {
    let mut head = [0; HEAD];
    let Some((file, len)) = File::open(path, &mut head) else {
        return false;
    };
    if head.starts_with(b"\x7fELF") {
        return is_static_elf(&file, &head) && !is_linker(path) && !file.gains_privilege();
    }
    drop(file);
    let interpreter = interpreter(&mut head, len);
    more > 0 && interpreter.is_some_and(|path| is_static_within(path, more - 1))
}

/// Finds the path of a script's interpreter in the first `len` bytes of the script. Writes a zero byte after the path, and returns the path's
/// address.
fn interpreter(head: &mut [u8; HEAD], len: usize) -> Option<*const c_char> {
    if !head.starts_with(b"#!") {
        return None;
    }
    let line = &head[..len];
    let end = line.iter().position(|byte| *byte == b'\n').unwrap_or(len);
    let is_blank = |byte: &u8| matches!(byte, b' ' | b'\t');
    let begin = 2 + line[2..end].iter().position(|byte| !is_blank(byte))?;
    let rest = line[begin..end].iter().position(is_blank);
    *head.get_mut(rest.map_or(end, |len| begin + len))? = 0;
    Some(head[begin..].as_ptr().cast())
}

/// Returns whether a file is a dynamic linker, by its name. A linker is statically linked, but loads the drop-in into the program that it starts, so
/// it needs no `umsg run`. ldd(1) starts linkers with an environment that would make the command `umsg` print its own libraries.
fn is_linker(path: *const c_char) -> bool {
    // SAFETY: the argument is a C string.
    let path = unsafe { CStr::from_ptr(path) }.to_bytes();
    let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or(path);
    let begins: [&[u8]; 3] = [b"ld-linux", b"ld-musl-", b"ld.so"];
    begins.iter().any(|begin| name.starts_with(begin))
}

/// Returns whether the beginning of a file is that of a statically linked program. Source: elf(5), for 64 bits.
fn is_static_elf(file: &File, head: &[u8; HEAD]) -> bool {
    const CLASS: usize = 4;
    const CLASS_64: u8 = 2;
    const TYPE: usize = 16;
    const MACHINE: usize = 18;
    const HEADERS: usize = 32;
    const SIZE: usize = 54;
    const NUMBER: usize = 56;
    const EXECUTABLE: u16 = 2;
    const SHARED: u16 = 3;
    const INTERPRETER: u32 = 3;
    const OWN: u16 = match cfg!(target_arch = "x86_64") {
        true => 62,
        false => 183,
    };
    let short = |at: usize| u16::from_le_bytes([head[at], head[at + 1]]);
    let is_program = matches!(short(TYPE), EXECUTABLE | SHARED);
    if head[CLASS] != CLASS_64 || short(MACHINE) != OWN || !is_program {
        return false;
    }
    let Some((start, _)) = head[HEADERS..].split_first_chunk() else {
        return false;
    };
    let (start, size) = (u64::from_le_bytes(*start), u64::from(short(SIZE)));
    (0..u64::from(short(NUMBER))).all(|index| {
        let mut kind = [0; 4];
        let place = start.saturating_add(index * size);
        file.read_at(&mut kind, place) == kind.len() && u32::from_le_bytes(kind) != INTERPRETER
    })
}

/// A file that this module reads by system calls, because the functions of libc are hooked.
pub(super) struct File(pub(super) usize);

impl File {
    fn open(path: *const c_char, head: &mut [u8]) -> Option<(File, usize)> {
        let flags = libc::O_RDONLY | libc::O_CLOEXEC | libc::O_NONBLOCK | libc::O_NOCTTY;
        let at = libc::AT_FDCWD as usize;
        let arguments = [at, path.expose_provenance(), flags as usize, 0, 0, 0];
        // SAFETY: the argument is a C string.
        let file = unsafe { kernel::call(libc::SYS_openat, arguments) };
        let file = File(file.ok()? as usize);
        let len = file.read_at(head, 0);
        Some((file, len))
    }

    fn read_at(&self, room: &mut [u8], offset: u64) -> usize {
        let start = room.as_mut_ptr().expose_provenance();
        let arguments = [self.0, start, room.len(), offset as usize, 0, 0];
        // SAFETY: the arguments are a buffer and its length.
        let read = unsafe { kernel::call(libc::SYS_pread64, arguments) };
        read.map_or(0, |len| len as usize)
    }

    fn gains_privilege(&self) -> bool {
        let mut found = MaybeUninit::<libc::stat>::uninit();
        let arguments = [self.0, found.as_mut_ptr().expose_provenance(), 0, 0, 0, 0];
        // SAFETY: the buffer has room for the result.
        match unsafe { kernel::call(libc::SYS_fstat, arguments) } {
            Ok(_) => {
                // SAFETY: the kernel has written the status.
                let mode = unsafe { found.assume_init() }.st_mode;
                mode & (libc::S_ISUID | libc::S_ISGID) != 0 || self.gains_capabilities()
            }
            Err(_) => true,
        }
    }

    /// Returns whether the program's file has capabilities that the process would gain. Root gains none, because root has all capabilities. Source:
    /// capabilities(7).
    fn gains_capabilities(&self) -> bool {
        let name = c"security.capability".as_ptr().expose_provenance();
        // SAFETY: the argument is a C string. Without a buffer, the kernel returns only the length of the value.
        let found = unsafe { kernel::call(libc::SYS_fgetxattr, [self.0, name, 0, 0, 0, 0]) };
        // SAFETY: the call has no arguments.
        found.is_ok() && unsafe { kernel::call(libc::SYS_getuid, [0; 6]) } != Ok(0)
    }
}

impl Drop for File {
    fn drop(&mut self) {
        // SAFETY: the call closes a descriptor of this value.
        let _ = unsafe { kernel::call(libc::SYS_close, [self.0, 0, 0, 0, 0, 0]) };
    }
}
