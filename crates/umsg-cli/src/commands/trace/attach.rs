//! Finds the request for records (see `umsg_trace::Request`) in the memory of a process, and writes it.

use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use object::Endianness;
use object::elf::{FileHeader64, SHT_DYNSYM, Sym64};
use object::read::elf::{FileHeader as _, SectionHeader as _, Sym as _};
use object::read::{ReadCache, ReadRef};
use rustix::process::Pid;
use umsg_trace::Request;
use umsg_trace::request::{PLACE, SYMBOL};

use super::PREFIX;
use crate::failure::{Code, Failure, Result};
use crate::remote;

/// A process that sends records to this command.
pub struct Attached {
    pid: Pid,
    /// The address of the [`Request`] in that process.
    request: u64,
    turn: u32,
}

impl Attached {
    pub fn id(&self) -> u32 {
        self.pid.as_raw_nonzero().get().cast_unsigned()
    }

    /// Asks a process to send records to a ring.
    pub fn to(pid: Pid, place: &[u8]) -> Result<Attached> {
        let attached = Attached {
            pid,
            request: find(pid)?,
            // The turn is the process id of this command, because no earlier command has written this number to the traced process.
            turn: std::process::id(),
        };
        if let Some(running) = attached.other_command()? {
            let line = format_args!(
                "process {pid} is already traced by process {running}; end that process first"
            );
            return Err(Failure::new(Code::Failed, line));
        }
        let mut path = place.to_vec();
        path.push(0);
        attached.write(Request::REFUSED, &0_u32.to_ne_bytes())?;
        attached.write(Request::PLACE, &path)?;
        attached.write(Request::TURN, &attached.turn.to_ne_bytes())?;
        Ok(attached)
    }

    /// Returns the process id of the running `umsg trace` that gets the records of this process. The function takes the id from the name of that
    /// command's ring, and not from the turn: the turn is 1 if that command started the program.
    fn other_command(&self) -> Result<Option<u32>> {
        if self.word(Request::TURN)? == 0 {
            return Ok(None);
        }
        let mut place = [0; PLACE];
        self.read(Request::PLACE, &mut place)?;
        Ok(command_of(&place).filter(|&running| is_a_trace(running)))
    }

    /// Fails if the process has refused the request.
    pub fn check(&self) -> Result {
        if self.word(Request::TURN)? == self.turn {
            return Ok(());
        }
        let errno = self.word(Request::REFUSED)?;
        let reason = io::Error::from_raw_os_error(errno.cast_signed());
        let line = format_args!(
            "process {} can't send records: {reason}; with --dir, choose a directory that the process can use",
            self.pid
        );
        Err(Failure::new(Code::Failed, line))
    }

    /// Withdraws the request. Does nothing if the process has ended, or if another command has written a request since.
    pub fn release(&self) {
        if self.word(Request::TURN).is_ok_and(|turn| turn == self.turn) {
            let _ = self.write(Request::TURN, &0_u32.to_ne_bytes());
        }
    }

    fn word(&self, offset: usize) -> Result<u32> {
        let mut bytes = [0; 4];
        self.read(offset, &mut bytes)?;
        Ok(u32::from_ne_bytes(bytes))
    }

    fn read(&self, offset: usize, into: &mut [u8]) -> Result {
        remote::read(self.pid, self.address(offset), into)
            .map_err(|error| unreachable_memory(self.pid, &error))
    }

    /// Returns the address of a field of the request. The addition wraps around, because the traced process may have given any address.
    fn address(&self, offset: usize) -> u64 {
        self.request.wrapping_add(offset as u64)
    }

    fn write(&self, offset: usize, bytes: &[u8]) -> Result {
        remote::write(self.pid, self.address(offset), bytes)
            .map_err(|error| unreachable_memory(self.pid, &error))
    }
}

/// Returns the process id of the command to whose ring this path leads. The path ends with a zero byte.
fn command_of(place: &[u8]) -> Option<u32> {
    let path = place.split(|&byte| byte == 0).next()?;
    let slash = path.iter().rposition(|&byte| byte == b'/')?;
    let number = path[slash..].strip_prefix(PREFIX.as_bytes())?;
    std::str::from_utf8(number).ok()?.parse().ok()
}

/// Returns whether a process is a running `umsg trace`. The check is needed because a killed command leaves its process id in the request.
fn is_a_trace(pid: u32) -> bool {
    let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    words.split(|&byte| byte == 0).any(|word| word == b"trace")
}

/// Returns the address of the request in the memory of a process.
fn find(pid: Pid) -> Result<u64> {
    let maps =
        fs::read(format!("/proc/{pid}/maps")).map_err(|error| unreachable_memory(pid, &error))?;
    let libraries = maps.split(|&byte| byte == b'\n').filter_map(mapped);
    for (start, path) in libraries {
        let is_ours = path.file_name().is_some_and(|name| {
            let name = name.as_bytes();
            name.starts_with(b"libumsg_preload") && !name.ends_with(b" (deleted)")
        });
        if !is_ours {
            continue;
        }
        let Some(symbol) = symbol_of(pid, &path) else {
            continue;
        };
        let mut address = [0; 8];
        remote::read(pid, start.wrapping_add(symbol), &mut address)
            .map_err(|error| unreachable_memory(pid, &error))?;
        return Ok(u64::from_ne_bytes(address));
    }
    let line = format_args!(
        "process {pid} does not use the drop-in library of this version; start its program with `umsg run` or `umsg trace`"
    );
    Err(Failure::new(Code::Failed, line))
}

/// Returns the first address and the file of a line of /proc/PID/maps, if the line maps the beginning of a file.
fn mapped(line: &[u8]) -> Option<(u64, PathBuf)> {
    let mut words = line.splitn(6, |&byte| byte == b' ');
    let addresses = std::str::from_utf8(words.next()?).ok()?;
    let offset = words.nth(1)?;
    let path = words.nth(2)?.trim_ascii_start();
    let start = u64::from_str_radix(addresses.split_once('-')?.0, 16).ok()?;
    let is_beginning = offset.iter().all(|&byte| byte == b'0');
    let path = PathBuf::from(std::ffi::OsStr::from_bytes(path));
    (is_beginning && path.is_absolute()).then_some((start, path))
}

/// The maximum length of a library's file, in bytes. The command does not search a longer file for the symbol.
const LARGEST: u64 = 64 << 20;

/// Returns the address of the symbol [`SYMBOL`] in a library's file. Opens the file in the mount namespace of the process.
fn symbol_of(pid: Pid, path: &Path) -> Option<u64> {
    let seen = Path::new("/proc")
        .join(pid.to_string())
        .join("root")
        .join(path.strip_prefix("/").ok()?);
    // The process chooses the file. The file may be a FIFO, which would block the open, or a terminal.
    let flags = libc::O_NONBLOCK | libc::O_NOCTTY;
    let file = fs::OpenOptions::new()
        .read(true)
        .custom_flags(flags)
        .open(seen);
    let file = file.ok()?;
    let kind = file.metadata().ok()?;
    let len = kind.len();
    if !kind.is_file() || len > LARGEST {
        return None;
    }
    // The process may append to the file meanwhile. Only the length that was checked is read.
    let cache = ReadCache::<File>::new(file);
    address_in(cache.range(0, len))
}

/// Returns the address of the symbol [`SYMBOL`] in a library. Reads only the headers, the dynamic symbols and their names: a hundredth of the file.
fn address_in<'a>(file: impl ReadRef<'a>) -> Option<u64> {
    let header = FileHeader64::<Endianness>::parse(file).ok()?;
    let order = header.endian().ok()?;
    let sections = header.sections(order, file).ok()?;
    let mut kinds = sections.iter();
    let dynamic = kinds.find(|section| section.sh_type(order) == SHT_DYNSYM)?;
    let names = sections.section(dynamic.link(order)).ok()?;
    // All names are read with one call: reading names one by one would read a page of the file for each name.
    let names = names.data(order, file).ok()?;
    let symbols: &[Sym64<Endianness>] = dynamic.data_as_array(order, file).ok()?;
    let is_wanted = |symbol: &&Sym64<Endianness>| {
        // Compares only the beginning of each name: in a hostile file, searching for the ends of all names could take very long.
        let name = names.get(symbol.st_name(order) as usize..);
        let rest = name.and_then(|name| name.strip_prefix(SYMBOL.as_bytes()));
        rest.and_then(<[u8]>::first) == Some(&0)
    };
    symbols
        .iter()
        .find(is_wanted)
        .map(|symbol| symbol.st_value(order))
}

/// The file of the security module that permits traces of children only, unless the file contains 0. Source: ptrace(2).
const YAMA: &str = "/proc/sys/kernel/yama/ptrace_scope";

fn unreachable_memory(pid: Pid, error: &io::Error) -> Failure {
    let advice = match error.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => {
            match std::fs::read_to_string(YAMA).is_ok_and(|scope| scope.trim() != "0") {
                true => {
                    "the kernel does not permit this user to trace the process: set kernel.yama.ptrace_scope to 0 (see ptrace(2)), or start the program with `umsg trace`"
                }
                false => {
                    "the kernel does not permit this user to trace the process: run the command as the process's user or as root, or start the program with `umsg trace`"
                }
            }
        }
        Some(libc::ESRCH | libc::ENOENT) => "the process has ended",
        Some(libc::EFAULT) => "the process has executed another program",
        _ => "the memory of the process can't be read",
    };
    Failure::new(
        Code::Failed,
        format_args!("process {pid}: {error}; {advice}"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_path_of_a_ring_names_its_command() {
        assert_eq!(
            command_of(b"/dev/shm/umsg-0/umsg-trace-4711\0\0"),
            Some(4711)
        );
        for other in [&b""[..], b"umsg-trace-1", b"/d/umsg-trace-", b"/d/other-1"] {
            assert_eq!(command_of(other), None);
        }
    }

    #[test]
    fn a_file_that_is_no_library_is_refused_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let [fifo, endless, text] = ["fifo", "endless", "text"].map(|name| dir.path().join(name));
        let mode = rustix::fs::Mode::from_raw_mode(0o600);
        rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, mode, 0).unwrap();
        fs::File::create(&endless)
            .unwrap()
            .set_len(1 << 40)
            .unwrap();
        fs::write(&text, "no library").unwrap();
        let zeroes = PathBuf::from("/dev/zero");
        for path in [fifo, endless, text, zeroes] {
            let own = rustix::process::getpid();
            assert_eq!(symbol_of(own, &path), None, "{}", path.display());
        }
    }

    #[test]
    fn a_line_of_maps_is_taken_if_it_has_the_beginning_of_a_file() {
        let line =
            b"7f0000001000-7f0000002000 r--p 00000000 fe:00 42   /usr/lib/umsg/libumsg_preload.so";
        let path = PathBuf::from("/usr/lib/umsg/libumsg_preload.so");
        assert_eq!(mapped(line), Some((0x7f00_0000_1000, path)));
        for other in [
            &b"7f0000001000-7f0000002000 r-xp 00001000 fe:00 42   /usr/lib/x.so"[..],
            b"7ffd00000000-7ffd00021000 rw-p 00000000 00:00 0    [stack]",
            b"7ffd00000000-7ffd00021000 rw-p 00000000 00:00 0 ",
            b"",
        ] {
            assert_eq!(mapped(other), None);
        }
    }
}
