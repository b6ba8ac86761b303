//! The shift of CLOCK_MONOTONIC in this process's time namespace: time_namespaces(7).

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

/// The inode of the initial time namespace. Source: linux/proc_ns.h, PROC_TIME_INIT_INO.
const INITIAL: u64 = 0xEFFF_FFFA;
const NANOSECONDS: i64 = 1_000_000_000;

/// Returns the number of nanoseconds that the kernel adds to CLOCK_MONOTONIC for this process; 0 if /proc does not show it.
///
/// /proc shows the offset that the process's future children will have. This differs from the offset of the process itself in one case: the process
/// is in a namespace with an offset, and has created another namespace with another offset for its children.
///
/// # Errors
/// Fails if the process lacks a descriptor or memory; a later call may succeed.
pub(super) fn monotonic_offset() -> Result<i64, Errno> {
    let own = match super::parent::time_namespace() {
        Some(own) => own,
        None => match rustix::fs::stat("/proc/self/ns/time") {
            Ok(own) => own.st_ino,
            Err(_) => return Ok(0),
        },
    };
    if own == INITIAL {
        return Ok(0);
    }
    let mut text = [0_u8; 128];
    match read("/proc/self/timens_offsets", &mut text) {
        Ok(len) => Ok(parse(&text[..len]).unwrap_or(0)),
        Err(error @ (Errno::MFILE | Errno::NFILE | Errno::NOMEM)) => Err(error),
        Err(_) => Ok(0),
    }
}

fn read(path: &str, text: &mut [u8]) -> Result<usize, Errno> {
    let file = rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    rustix::io::read(&file, text)
}

/// Parses the line `monotonic SECONDS NANOSECONDS`. Returns the nanoseconds.
fn parse(text: &[u8]) -> Option<i64> {
    let text = std::str::from_utf8(text).ok()?;
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("monotonic"))?;
    let mut numbers = line.split_ascii_whitespace().map(str::parse::<i64>);
    let (seconds, nanoseconds) = (numbers.next()?.ok()?, numbers.next()?.ok()?);
    seconds.checked_mul(NANOSECONDS)?.checked_add(nanoseconds)
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn the_offset_of_the_monotonic_clock_is_read_as_the_kernel_writes_it() {
        let text = b"monotonic       86400         5\nboottime             7         0\n";
        assert_eq!(parse(text), Some(86_400_000_000_005));
        let behind = b"monotonic          -1 500000000\nboottime             0         0\n";
        assert_eq!(parse(behind), Some(-500_000_000));
        for other in [&b""[..], b"monotonic", b"monotonic x 0", b"boottime 1 1"] {
            assert_eq!(parse(other), None);
        }
    }
}
