//! Mapped proof pages: [`crate::proof`].

use super::file::set_length;
use crate::fault::AttachError;
use crate::proof::ProofPage;
use crate::sys::map::{Mapping, PAGE};
use rustix::fd::BorrowedFd;
use rustix::io::Errno;
use std::fmt::{self, Debug, Formatter};

/// The proof page of a process, mapped.
pub struct MappedProofs(Mapping);

impl Debug for MappedProofs {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.debug_tuple("MappedProofs").finish()
    }
}

impl MappedProofs {
    /// Gives an empty file a page of zeroes, and maps it.
    ///
    /// # Errors
    /// `FileTooLarge`; that of pwrite(2) or mmap(2).
    pub fn make(file: BorrowedFd<'_>) -> Result<MappedProofs, AttachError> {
        set_length(file, PAGE)?;
        // A store to a page without memory would raise SIGBUS.
        let written = rustix::io::pwrite(file, &[0; PAGE], 0);
        match written.map_err(|e| AttachError::from_errno("pwrite", e))? {
            PAGE => MappedProofs::map(file).map_err(|e| AttachError::from_errno("mmap", e)),
            _ => Err(AttachError::from_errno("pwrite", Errno::NOSPC)),
        }
    }

    /// Maps the page of a file, which has at least that length.
    ///
    /// # Errors
    /// That of mmap(2).
    pub fn map(file: BorrowedFd<'_>) -> Result<MappedProofs, Errno> {
        Mapping::of_file(file, PAGE).map(MappedProofs)
    }

    /// Returns the page.
    pub fn page(&self) -> &ProofPage {
        // SAFETY: the mapping is as long as the type, page-aligned, and readable and writable until `self` is dropped. The type consists of
        // atomics, so any bytes are valid, also if other processes write them. A page that its file has lost is replaced by zeroes.
        unsafe { &*self.0.base().cast::<ProofPage>() }
    }
}
