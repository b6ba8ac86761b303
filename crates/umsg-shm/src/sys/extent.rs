//! Finds the allocated parts of a file without the lock of the file's inode.
//!
//! lseek(2) with SEEK_HOLE takes the lock of the inode. A process with write access can hold the lock for any time, by a write from a page whose
//! fault is never served. A process that waits for the lock can't be killed. In a tmpfs, mincore(2), cachestat(2) and pread(2) take no lock of the
//! file.

use super::map::{Mapping, PAGE};
use rustix::fd::{AsRawFd, BorrowedFd};
use rustix::fs::{SeekFrom, fstatfs, seek};
use rustix::io::{Errno, pread};
use std::ops::Range;

/// `f_type` of a tmpfs. Source: statfs(2).
const TMPFS_MAGIC: u64 = 0x0102_1994;

/// The number of cachestat(2) on all architectures but Alpha. Source: scripts/syscall.tbl in the kernel.
const CACHESTAT: libc::c_long = 451;

/// The number of pages that one call checks in the search for the first hole.
const PAGES: usize = 512;
/// The length of a part that is not divided further, in bytes.
const SHORT: usize = 16 * PAGE;

/// Returns whether a file or directory is in a tmpfs.
pub fn is_in_tmpfs(file: BorrowedFd<'_>) -> Result<bool, Errno> {
    let system = fstatfs(file)?;
    Ok(u64::try_from(system.f_type) == Ok(TMPFS_MAGIC))
}

/// Returns the first byte between `begin` and `end` at which a page of the file is a hole; `end` if there is no hole. `begin` is the first byte of a
/// page.
///
/// # Blocking
/// The call never blocks in a tmpfs. In other file systems, and if mincore(2) is refused, the call waits for the lock of the inode.
pub fn first_hole(file: BorrowedFd<'_>, begin: usize, end: usize) -> Result<usize, Errno> {
    if is_in_tmpfs(file) == Ok(true)
        && let Ok(hole) = first_absent(file, begin, end)
    {
        return Ok(hole);
    }
    match seek(file, SeekFrom::Hole(begin as u64)) {
        Ok(hole) => Ok((hole as usize).clamp(begin, end)),
        // The file ends before `begin`.
        Err(Errno::NXIO) => Ok(begin),
        Err(error) => Err(error),
    }
}

/// Returns the same as [`first_hole`], for a file in a tmpfs. A page that is not in memory is a hole or in the swap space. To distinguish these
/// cases, the function reads the page, which brings it back from the swap space.
fn first_absent(file: BorrowedFd<'_>, begin: usize, end: usize) -> Result<usize, Errno> {
    let mut at = begin;
    while at < end {
        let len = (end - at).min(PAGES * PAGE);
        let pages = Mapping::to_look_up(file, at, len)?;
        let mut present = [0; PAGES];
        pages.are_present(0, &mut present[..len.div_ceil(PAGE)])?;
        for (index, flag) in present[..len.div_ceil(PAGE)].iter_mut().enumerate() {
            if *flag & 1 == 0 {
                pread(file, &mut [0], (at + index * PAGE) as u64)?;
                pages.are_present(index, std::slice::from_mut(flag))?;
            }
            if *flag & 1 == 0 {
                return Ok(at + index * PAGE);
            }
        }
        at += len;
    }
    Ok(end)
}

/// Returns the parts of a file's first `end` bytes that may be allocated, in order. All other bytes are holes. If the system refuses to answer, the
/// whole file is one part.
///
/// # Blocking
/// The call never blocks.
pub(crate) fn real_parts(file: BorrowedFd<'_>, end: usize) -> Vec<Range<usize>> {
    let mut parts = Vec::new();
    let is_known = is_in_tmpfs(file) == Ok(true) && find_parts(file, 0..end, &mut parts).is_ok();
    match is_known {
        true => parts,
        false => std::iter::once(0..end).collect(),
    }
}

/// Divides a part of a file until each piece is short, a hole, or wholly allocated. Adds the pieces that may be allocated to `found`. The kernel
/// skips holes of any length.
fn find_parts(
    file: BorrowedFd<'_>,
    part: Range<usize>,
    found: &mut Vec<Range<usize>>,
) -> Result<(), Errno> {
    let pages = pages_in(file, &part)?;
    if pages == 0 {
        return Ok(());
    }
    if part.len() <= SHORT || pages >= part.len().div_ceil(PAGE) {
        match found.last_mut() {
            Some(last) if last.end == part.start => last.end = part.end,
            _ => found.push(part),
        }
        return Ok(());
    }
    let middle = part.start + (part.len() / 2).next_multiple_of(PAGE);
    find_parts(file, part.start..middle, found)?;
    find_parts(file, middle..part.end, found)
}

/// Returns the number of pages of a part of a tmpfs file that are in memory or in the swap space. Source: cachestat(2), Linux 6.5.
///
/// # Errors
/// ENOSYS in an older kernel or a sandbox. EPERM for a file that the process may not write.
fn pages_in(file: BorrowedFd<'_>, part: &Range<usize>) -> Result<usize, Errno> {
    let range = [part.start as u64, part.len() as u64];
    // The numbers of pages that are in memory, dirty, under writeback, evicted, and recently evicted.
    let mut counts = [0_u64; 5];
    // SAFETY: the arguments are an open descriptor, a structure of two 64-bit numbers, a structure of five 64-bit numbers, which the call writes,
    // and no flags.
    let result = unsafe {
        libc::syscall(
            CACHESTAT,
            file.as_raw_fd(),
            range.as_ptr(),
            counts.as_mut_ptr(),
            0,
        )
    };
    match result {
        0 => Ok((counts[0] + counts[3]) as usize),
        _ => Err(Errno::from_raw_os_error(super::errno())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fd::{AsFd, OwnedFd};
    use rustix::fs::{FallocateFlags, MemfdFlags, fallocate, ftruncate, memfd_create};

    /// Returns a file of 2,000 pages, whose pages in `real` hold zeroes.
    fn file(real: std::ops::Range<usize>) -> OwnedFd {
        let file = memfd_create("extent", MemfdFlags::CLOEXEC).unwrap();
        ftruncate(&file, 2000 * PAGE as u64).unwrap();
        for page in real {
            rustix::io::pwrite(&file, &[0], (page * PAGE) as u64).unwrap();
        }
        file
    }

    #[test]
    fn memory_ends_at_the_first_page_that_was_never_written_though_it_holds_zeroes() {
        let file = file(3..1500);
        let hole = |from: usize, to: usize| first_hole(file.as_fd(), from * PAGE, to * PAGE);
        for (from, to, expected) in [
            (0, 2000, 0),
            (3, 2000, 1500),
            (3, 1000, 1000),
            (600, 1501, 1500),
            (1499, 1500, 1500),
            (1500, 2000, 1500),
            (5, 5, 5),
            // The part lies after the end of the file.
            (2100, 2200, 2100),
        ] {
            assert_eq!(hole(from, to), Ok(expected * PAGE), "{from}..{to}");
        }
    }

    #[test]
    fn the_parts_in_memory_hold_all_that_was_written_and_few_pages_more() {
        const END: usize = 1 << 32;
        let file = file(0..0);
        ftruncate(&file, END as u64 + 5).unwrap();
        assert_eq!(real_parts(file.as_fd(), END), []);
        let written = [
            3,
            4,
            5,
            900,
            16_383,
            16_384,
            700_000,
            END / PAGE - 1,
            END / PAGE,
        ];
        for page in written {
            rustix::io::pwrite(&file, &[0], (page * PAGE) as u64).unwrap();
        }
        let parts = real_parts(file.as_fd(), END + 5);
        for page in written {
            assert!(parts.iter().any(|part| part.contains(&(page * PAGE))));
        }
        assert!(parts.is_sorted_by(|one, next| one.end < next.start));
        let bytes: usize = parts.iter().map(Range::len).sum();
        assert!(bytes <= written.len() * SHORT, "{parts:?}");
    }

    #[test]
    fn the_answer_is_that_of_lseek() {
        let file = file(0..1800);
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        for page in [7, 511, 512, 1024, 1799] {
            fallocate(&file, flags, (page * PAGE) as u64, PAGE as u64).unwrap();
        }
        for from in (0..2000).step_by(9) {
            let begin = from * PAGE;
            let expected = seek(&file, SeekFrom::Hole(begin as u64)).unwrap() as usize;
            assert_eq!(first_absent(file.as_fd(), begin, 2000 * PAGE), Ok(expected));
        }
    }
}
