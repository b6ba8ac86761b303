//! Attaching to a segment: every part of the file is checked before use.

use super::mapped::Segment;
use super::{LAYOUT_HASH, Layout, MAGIC, Policy, VERSION};
use crate::fault::AttachError;
use crate::memory::OUT_OF_RANGE;
use rustix::fd::BorrowedFd;
use rustix::fs::FileType;

/// The maximum number of messages in the format. A namespace may set a lower limit.
pub const MOST_MESSAGES: u32 = 1_048_576;
/// The maximum message size in the format, in bytes. A namespace may set a lower limit.
pub const LARGEST_MESSAGE: u32 = 16 << 20;

/// The number of bytes of the header that are read from the file: see [`super::Header`].
const HEADER_BYTES: usize = 32;

/// Maps the segment in a file that is open for reading and writing.
pub fn attach(file: BorrowedFd<'_>) -> Result<Segment, AttachError> {
    let layout = check(file)?;
    let mut segment = Segment::map(file, layout)?;
    // The process joins the queue before it reads the policy, because the creator of a removed queue may be clearing the segment.
    if !segment.fixed().header.presence.join() {
        return Err(removed(file));
    }
    let policy = Policy::read(&segment.fixed().rules)
        .ok_or(AttachError::Damaged("the queue's policy is invalid"))?;
    segment.set_policy(policy);
    segment.settle_home();
    Ok(segment)
}

/// Returns the error for a segment without a queue. A segment without a queue is valid only if the owner alone may write the file.
#[cold]
fn removed(file: BorrowedFd<'_>) -> AttachError {
    match rustix::fs::fstat(file) {
        Ok(stat) if stat.st_mode & 0o7777 == 0o600 => AttachError::Removed,
        _ => AttachError::Damaged("the header says that the queue was removed"),
    }
}

/// Checks that a file that is open for reading is a segment.
pub fn check(file: BorrowedFd<'_>) -> Result<Layout, AttachError> {
    let stat = rustix::fs::fstat(file).map_err(|e| AttachError::from_errno("fstat", e))?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Err(AttachError::NotAQueue("not a regular file"));
    }
    let layout = read_layout(file)?;
    if stat.st_size as u64 != layout.len as u64 {
        return Err(AttachError::Damaged(
            "the file's length differs from the length in its header",
        ));
    }
    Ok(layout)
}

/// Reads the header with a system call: a file that is too short gives an error, not a SIGBUS.
fn read_layout(file: BorrowedFd<'_>) -> Result<Layout, AttachError> {
    let mut bytes = [0_u8; HEADER_BYTES];
    let len =
        rustix::io::pread(file, &mut bytes, 0).map_err(|e| AttachError::from_errno("pread", e))?;
    if len < HEADER_BYTES {
        return Err(AttachError::NotAQueue("the file is shorter than a header"));
    }
    let u32_at =
        |at: usize| u32::from_ne_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
    let u64_at = |at: usize| u64::from(u32_at(at)) | u64::from(u32_at(at + 4)) << 32;
    if u64_at(0) != MAGIC {
        return Err(AttachError::NotAQueue(
            "the file does not begin with the magic number",
        ));
    }
    let (version, layout_hash) = (u32_at(8), u32_at(12));
    if version != VERSION || layout_hash != LAYOUT_HASH {
        return Err(AttachError::OtherVersion {
            found: version,
            expected: VERSION,
        });
    }
    let (max_messages, message_size) = (u32_at(16), u32_at(20));
    if max_messages == 0
        || max_messages > MOST_MESSAGES
        || message_size == 0
        || message_size > LARGEST_MESSAGE
    {
        return Err(AttachError::Damaged(OUT_OF_RANGE));
    }
    let layout = Layout::new(max_messages as usize, message_size as usize);
    if u64_at(24) != layout.len as u64 {
        return Err(AttachError::Damaged(
            "the header's length does not fit its attributes",
        ));
    }
    Ok(layout)
}
