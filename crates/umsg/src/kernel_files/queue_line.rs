//! The line that read(2) returns for the descriptor of a POSIX queue.

use std::io::Write;

use crate::posix::{NotifyKind, Queue, Registered};

/// Memory for a line.
pub type Room = [u8; 96];

/// Returns the line that describes a queue.
///
/// ```
/// use umsg::kernel_files::queue_line;
/// # let dir = tempfile::tempdir_in("/dev/shm")?;
/// # let namespace = umsg::Namespace::at(dir.path())?;
/// let queue = umsg::posix::OpenOptions::new().create(true).read(true).write(true).namespace(&namespace).open("/jobs")?;
/// queue.send(b"four", 0)?;
/// let mut room = [0; 96];
/// assert!(queue_line::of(&queue, &mut room).starts_with(b"QSIZE:4 "));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn of<'a>(queue: &Queue, room: &'a mut Room) -> &'a [u8] {
    describe(queue.attributes().bytes, queue.registered(), room)
}

/// Writes the line as the kernel does. Source: `mqueue_read_file` in ipc/mqueue.c.
fn describe(bytes: u64, registered: Option<Registered>, line: &mut Room) -> &[u8] {
    let (notify, signal) = match registered.map(|registered| registered.kind) {
        None => (0, 0),
        Some(NotifyKind::Signal(signal)) => (libc::SIGEV_SIGNAL, signal),
        Some(NotifyKind::Call) => (libc::SIGEV_THREAD, 0),
        Some(_) => (libc::SIGEV_NONE, 0),
    };
    let pid = registered.map_or(0, |registered| registered.pid);
    let mut rest = line.as_mut_slice();
    // The line has 85 bytes at most, so it fits.
    let _ = writeln!(
        rest,
        "QSIZE:{bytes:<10} NOTIFY:{notify:<5} SIGNO:{signal:<5} NOTIFY_PID:{pid:<6}"
    );
    let left = rest.len();
    &line[..line.len() - left]
}

#[cfg(test)]
mod tests {
    use super::describe;

    #[test]
    fn the_line_is_the_kernels() {
        let mut line = [0; 96];
        let expected = "QSIZE:129        NOTIFY:0     SIGNO:0     NOTIFY_PID:0     \n";
        assert_eq!(
            std::str::from_utf8(describe(129, None, &mut line)).unwrap(),
            expected
        );
        assert_eq!(describe(u64::MAX, None, &mut line).len(), 70);
    }
}
