//! The beginning of a queue's file, and the check that a process can attach to the file.

use super::findings::Findings;
use crate::error::OpenError;
use crate::error::SegmentError;
use rustix::fd::BorrowedFd;
use rustix::fs::FileType;

/// The first words of a file, read with a system call, and the file's length.
pub(super) struct Beginning {
    bytes: [u8; 64],
    /// The length of the file, in bytes.
    pub(super) file_len: u64,
}

impl Beginning {
    /// Reads the length of the file and its first words.
    ///
    /// # Errors
    /// `NotAQueue` if the file can't be a queue: it is not a regular file, or is shorter than a header.
    pub(super) fn read(file: BorrowedFd<'_>) -> Result<Beginning, OpenError> {
        let stat = rustix::fs::fstat(file).map_err(|e| OpenError::from_errno("fstat", e))?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Err(OpenError::Segment(SegmentError::NotAQueue(
                "not a regular file",
            )));
        }
        let mut bytes = [0; 64];
        let read = rustix::io::pread(file, &mut bytes, 0);
        if read.map_err(|e| OpenError::from_errno("pread", e))? < bytes.len() {
            return Err(OpenError::Segment(SegmentError::NotAQueue(
                "the file is shorter than a header",
            )));
        }
        Ok(Beginning {
            bytes,
            file_len: stat.st_size as u64,
        })
    }

    pub(super) fn u32_at(&self, at: usize) -> u32 {
        let word = &self.bytes[at..at + 4];
        u32::from_ne_bytes([word[0], word[1], word[2], word[3]])
    }

    pub(super) fn u64_at(&self, at: usize) -> u64 {
        u64::from(self.u32_at(at)) | u64::from(self.u32_at(at + 4)) << 32
    }

    /// Checks magic number, version and layout hash.
    ///
    /// # Errors
    /// `NotAQueue` if both magic number and layout hash differ from those of a queue of this kind; `OtherVersion` if the queue has another layout.
    pub(super) fn check_kind(
        &self,
        magic: u64,
        version: u32,
        layout_hash: u32,
        findings: &mut Findings,
    ) -> Result<(), OpenError> {
        let found = (self.u64_at(0), self.u32_at(8), self.u32_at(12));
        if found.0 != magic && (found.1, found.2) != (version, layout_hash) {
            return Err(OpenError::Segment(SegmentError::NotAQueue(
                "the file does not begin with the magic number",
            )));
        }
        if (found.1, found.2) != (version, layout_hash) {
            let (found, expected) = (found.1, version);
            return Err(OpenError::Segment(SegmentError::OtherVersion {
                found,
                expected,
            }));
        }
        let hex = |word: u64| format!("{word:#018x}");
        findings.equal_at(
            "the file begins with the magic number",
            0,
            hex(magic),
            hex(found.0),
        );
        Ok(())
    }

    /// Checks the length of the file against the header. Returns false if the file and the header's length agree, but contradict the
    /// header's other fields. Then the other fields are wrong, and truncating the file to the length that follows from them would lose messages.
    pub(super) fn check_len(&self, said_at: usize, len: u64, findings: &mut Findings) -> bool {
        findings.equal_at(
            "the header has the length that follows from its other fields",
            said_at as u64,
            len,
            self.u64_at(said_at),
        );
        // No word has a wrong value: the finding names the end of the file.
        findings.equal_at(
            "the file is as long as its header says",
            self.file_len.min(len),
            len,
            self.file_len,
        );
        self.file_len == len || self.file_len != self.u64_at(said_at)
    }
}
