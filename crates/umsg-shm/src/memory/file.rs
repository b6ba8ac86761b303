//! What the files of both kinds of queue have in common.

use crate::fault::AttachError;
use rustix::fd::BorrowedFd;

/// What is wrong with a header whose attributes no queue can have.
pub const OUT_OF_RANGE: &str = "the header's attributes are out of range";

/// Gives a new file its length.
pub fn set_length(file: BorrowedFd<'_>, len: usize) -> Result<(), AttachError> {
    if cfg!(miri) {
        return Ok(());
    }
    check_file_size_limit(len)?;
    rustix::fs::ftruncate(file, len as u64).map_err(|e| AttachError::from_errno("ftruncate", e))
}

/// Growing a file past RLIMIT_FSIZE is answered with a signal that kills: asking first gives an error instead.
fn check_file_size_limit(len: usize) -> Result<(), AttachError> {
    let limit = crate::sys::limit::of_file_size();
    if limit.is_some_and(|limit| limit < len as u64) {
        return Err(AttachError::FileTooLarge { len: len as u64 });
    }
    Ok(())
}

/// FNV-1a over numbers of 32 bits.
pub const fn fnv(facts: &[usize]) -> u32 {
    let mut hash = 0x811c_9dc5_u32;
    let mut index = 0;
    while index < facts.len() {
        hash = (hash ^ facts[index] as u32).wrapping_mul(0x0100_0193);
        index += 1;
    }
    hash
}
