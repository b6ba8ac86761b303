//! The properties that the files of both kinds of queues share.

use crate::fault::AttachError;
use rustix::fd::BorrowedFd;

/// The text of [`AttachError::Damaged`] for a header with attributes that no queue can have.
pub const OUT_OF_RANGE: &str = "the header's attributes are out of range";

/// Sets the length of a new file.
pub fn set_length(file: BorrowedFd<'_>, len: usize) -> Result<(), AttachError> {
    if cfg!(miri) {
        return Ok(());
    }
    check_file_size_limit(len)?;
    rustix::fs::ftruncate(file, len as u64).map_err(|e| AttachError::from_errno("ftruncate", e))
}

/// Returns an error if a file of this length would exceed RLIMIT_FSIZE. Without this check, the kernel would kill the process by a signal.
fn check_file_size_limit(len: usize) -> Result<(), AttachError> {
    let limit = crate::sys::limit::of_file_size();
    if limit.is_some_and(|limit| limit < len as u64) {
        return Err(AttachError::FileTooLarge { len: len as u64 });
    }
    Ok(())
}

/// Returns the FNV-1a hash of numbers of 32 bits.
pub const fn fnv(facts: &[usize]) -> u32 {
    let mut hash = 0x811c_9dc5_u32;
    let mut index = 0;
    while index < facts.len() {
        hash = (hash ^ facts[index] as u32).wrapping_mul(0x0100_0193);
        index += 1;
    }
    hash
}

#[cfg(all(test, not(loom)))]
mod tests {
    use crate::{posix_engine, sysv_engine};

    #[test]
    fn the_specification_names_both_layouts() {
        let specification = include_str!("../../../../docs/format.md");
        for hash in [
            posix_engine::segment::LAYOUT_HASH,
            sysv_engine::segment::LAYOUT_HASH,
        ] {
            let hash = format!("{hash:#010x}");
            assert!(specification.contains(&hash), "docs/format.md: {hash}");
        }
    }
}
