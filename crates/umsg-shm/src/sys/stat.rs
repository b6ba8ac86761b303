//! The state of a thread or process in /proc: proc_pid_stat(5).

use super::stack::roomy;
use rustix::fs::{Mode, OFlags};
use std::ffi::CStr;
use std::io::Write;

/// Source: linux/sched.h.
const PF_EXITING: u64 = 4;

/// Some fields of a file `stat` in /proc.
pub struct Stat {
    /// Field 3. `Z` and `X` mean that the thread is dead. For a process, they mean that its first thread is dead.
    pub state: u8,
    /// A flag of field 9: the process is ending, and runs no code of its program any more.
    pub(crate) exiting: bool,
    /// Field 20: the number of live threads of the process. The number always includes the first thread.
    pub(crate) threads: u64,
    /// Field 22: the start time, in clock ticks since boot.
    pub(crate) birth: u64,
    /// Field 28: the start address of the stack; 0 for a caller without the permission.
    pub(crate) stack: u64,
}

impl Stat {
    /// Reads the state of a thread. None if /proc does not show it.
    pub fn of_thread(pid: u32, tid: u32) -> Option<Stat> {
        read(format_args!("/proc/{pid}/task/{tid}/stat\0"))
    }

    /// Reads the state of a process. None if /proc does not show it.
    pub fn of_process(pid: u32) -> Option<Stat> {
        read(format_args!("/proc/{pid}/stat\0"))
    }

    /// Returns the real user of a process. None if /proc does not show it.
    pub fn real_user(pid: u32) -> Option<u32> {
        let mut text = [0_u8; 1024];
        let text = contents(format_args!("/proc/{pid}/status\0"), &mut text)?;
        let line = text
            .split(|&byte| byte == b'\n')
            .find_map(|line| line.strip_prefix(b"Uid:"))?;
        let first = line
            .split(u8::is_ascii_whitespace)
            .find(|field| !field.is_empty())?;
        std::str::from_utf8(first).ok()?.parse().ok()
    }

    /// Returns the effective user of a process, without a descriptor. None if /proc does not show it.
    pub(crate) fn effective_user(pid: u32) -> Option<u32> {
        let mut bytes = [0_u8; 64];
        let path = path_in(&mut bytes, format_args!("/proc/{pid}\0"))?;
        Some(rustix::fs::stat(path).ok()?.st_uid)
    }
}

/// Reads and parses a file `stat`, on the library's stack, which has room for the text. A receive that checks the holders of leases calls this
/// function deep within its own frames.
fn read(path: std::fmt::Arguments<'_>) -> Option<Stat> {
    roomy(|| {
        let mut text = [0_u8; 1024];
        parse(contents(path, &mut text)?)
    })
}

/// Reads the beginning of a file into `text`. The function allocates nothing, because it may run in a signal handler.
pub(crate) fn contents<'a>(path: std::fmt::Arguments<'_>, text: &'a mut [u8]) -> Option<&'a [u8]> {
    if cfg!(miri) {
        return None;
    }
    let mut bytes = [0_u8; 64];
    let path = path_in(&mut bytes, path)?;
    let file = rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()?;
    let len = rustix::io::read(&file, &mut *text).ok()?;
    Some(&text[..len])
}

/// Writes a path that ends with a zero byte into `bytes`. None if the path is too long.
pub(crate) fn path_in<'a>(bytes: &'a mut [u8], path: std::fmt::Arguments<'_>) -> Option<&'a CStr> {
    (&mut *bytes).write_fmt(path).ok()?;
    CStr::from_bytes_until_nul(bytes).ok()
}

/// Parses the text of a file `stat`. Field 2, the command, may contain any bytes. The field ends with the last closing parenthesis.
fn parse(text: &[u8]) -> Option<Stat> {
    let command_end = text.iter().rposition(|&byte| byte == b')')?;
    let mut fields = text[command_end + 1..]
        .split(|byte| byte.is_ascii_whitespace())
        .filter(|field| !field.is_empty());
    let mut number = |skip: usize| std::str::from_utf8(fields.nth(skip)?).ok()?.parse().ok();
    // The first field after the command is field 3.
    let state = *text[command_end + 1..]
        .iter()
        .find(|byte| !byte.is_ascii_whitespace())?;
    Some(Stat {
        state,
        exiting: number(9 - 3)? & PF_EXITING != 0,
        threads: number(20 - 9 - 1)?,
        birth: number(22 - 20 - 1)?,
        stack: number(28 - 22 - 1).unwrap_or(0),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_may_contain_anything() {
        let text =
            b"7 (a) Z 1 (b)) S 1 7 7 0 -1 4194304 1 2 3 4 5 6 7 8 20 0 3 0 99887 100 200 300 1 2 140721";
        let stat = parse(text).unwrap();
        assert_eq!((stat.state, stat.threads), (b'S', 3));
        assert_eq!((stat.birth, stat.stack), (99887, 140_721));
    }

    #[test]
    fn this_process_runs() {
        let stat = Stat::of_process(std::process::id()).unwrap();
        assert!(stat.threads >= 1 && stat.birth > 0 && stat.stack > 0);
        assert!(Stat::of_process(u32::MAX).is_none());
        let own = rustix::process::getuid().as_raw();
        assert_eq!(Stat::real_user(std::process::id()), Some(own));
        let effective = rustix::process::geteuid().as_raw();
        assert_eq!(Stat::effective_user(std::process::id()), Some(effective));
        assert_eq!(Stat::effective_user(u32::MAX), None);
    }
}
