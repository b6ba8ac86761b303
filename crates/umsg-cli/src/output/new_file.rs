//! Files that appear completely or not at all.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// A file with a temporary name. The file is removed unless it replaces the target.
pub struct NewFile {
    pub file: File,
    path: PathBuf,
}

impl NewFile {
    /// Creates a file in the directory of the target. The umask applies to `mode`. The temporary name contains `purpose`.
    pub fn beside(target: &Path, purpose: &str, mode: u32) -> io::Result<NewFile> {
        let path = target.with_file_name(format!(".umsg-{purpose}-{}", std::process::id()));
        let mut options = File::options();
        options.write(true).create_new(true).mode(mode);
        let file = match options.open(&path) {
            // A killed process with the same id has left this file behind.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                fs::remove_file(&path)?;
                options.open(&path)?
            }
            file => file?,
        };
        Ok(NewFile { file, path })
    }

    pub fn replace(self, target: &Path) -> io::Result<()> {
        self.file.sync_all()?;
        fs::rename(&self.path, target)
    }
}

impl Drop for NewFile {
    fn drop(&mut self) {
        // After a successful rename, the temporary name no longer exists, and this removal fails.
        let _ = fs::remove_file(&self.path);
    }
}

/// A file that is written only up to the limit of file sizes. Beyond the limit, the system would kill the command with SIGXFSZ, and an incomplete
/// file would stay.
pub struct Bounded<'a> {
    file: &'a File,
    left: u64,
}

impl Bounded<'_> {
    pub fn new(file: &File) -> Bounded<'_> {
        let limit = rustix::process::getrlimit(rustix::process::Resource::Fsize);
        let left = limit.current.unwrap_or(u64::MAX);
        Bounded { file, left }
    }
}

impl Write for Bounded<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if bytes.len() as u64 > self.left {
            return Err(io::Error::from_raw_os_error(libc::EFBIG));
        }
        let written = self.file.write(bytes)?;
        self.left -= written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}
