//! Replacements for the kernel's files on message queues. If a program opens one of these files, the drop-in or the supervisor gives the program the
//! replacement.
//!
//! | what | where |
//! |---|---|
//! | the limits in /proc/sys | [`limit`] |
//! | /proc/sysvipc/msg | [`sysv_table`] |
//! | paths below /dev/mqueue | [`place`] |
//! | the line that a queue's descriptor reads as | [`queue_line`] |

pub mod limit;
pub mod place;
pub mod queue_line;
pub mod sysv_table;

use std::os::fd::{AsRawFd, OwnedFd};

use rustix::fs::{MemfdFlags, Mode, OFlags};

/// Creates a file in memory with a text, and opens it for reading, with further flags of open(2).
///
/// ```
/// let file = umsg::kernel_files::snapshot("msg", b"a table", 0)?;
/// assert_eq!(std::io::read_to_string(std::fs::File::from(file))?, "a table");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// The errno of the opening.
pub fn snapshot(name: &str, text: &[u8], flags: i32) -> Result<OwnedFd, rustix::io::Errno> {
    let file = rustix::fs::memfd_create(name, MemfdFlags::CLOEXEC)?;
    let mut rest = text;
    while !rest.is_empty() {
        let written = rustix::io::write(&file, rest)?;
        rest = &rest[written..];
    }
    // The file is opened once more, because the first descriptor can be written to.
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    let flags = OFlags::from_bits_retain(flags.cast_unsigned());
    rustix::fs::open(path, OFlags::RDONLY | flags, Mode::empty())
}
