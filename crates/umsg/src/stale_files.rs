//! Stale files: files that killed processes would have removed themselves.

use crate::last_close::{all_unused, remove_all_unused};
use crate::namespace::{Namespace, NamespaceError};
use std::ffi::OsString;

/// The files that [`Namespace::stale_files`] finds, or that [`Namespace::sweep`] removes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct StaleFiles {
    /// The names, with their slashes and in order, of queues that were created with
    /// [`remove_on_last_close`](crate::posix::OpenOptions::remove_on_last_close) and that no process has open any more.
    pub queues: Vec<OsString>,
    /// Number of stale FIFOs, through which processes polled queues.
    pub poll_fifos: usize,
    /// Number of unfinished files and directories of queues and limits, labels of queues that no longer exist, files of removed queues, sockets of
    /// removed rings whose receivers have ended, and directories of ended IPC namespaces. A living program may have kept the file of a removed queue
    /// for its next queue. If the file is missing, the program makes another one.
    pub incomplete: usize,
}

impl StaleFiles {
    fn new(names: Vec<OsString>, poll_fifos: usize, incomplete: usize) -> StaleFiles {
        let mut queues: Vec<OsString> = names.iter().map(with_slash).collect();
        queues.sort_unstable();
        StaleFiles {
            queues,
            poll_fifos,
            incomplete,
        }
    }

    /// Returns whether there are no stale files.
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// assert!(namespace.stale_files()?.is_empty());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.queues.is_empty() && self.poll_fifos == 0 && self.incomplete == 0
    }
}

fn with_slash(name: &OsString) -> OsString {
    let mut whole = OsString::from("/");
    whole.push(name);
    whole
}

impl Namespace {
    /// Returns the files that [`sweep`](Self::sweep) would remove. Changes nothing.
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// let stale = namespace.stale_files()?;
    /// assert!(stale.is_empty(), "{stale:?}");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Blocking
    /// Never blocks. A process that opens one of these queues at the same moment may wait for some microseconds.
    ///
    /// # Errors
    /// [`NamespaceError`] if the namespace can't be listed.
    pub fn stale_files(&self) -> Result<StaleFiles, NamespaceError> {
        Ok(StaleFiles::new(
            all_unused(self)?,
            self.stale_fifos()?,
            self.left_temporary()?
                + self.left_labels()?
                + self.left_lives()
                + self.left_sockets()
                + self.all_vacant()?
                + self.left_ipc(),
        ))
    }

    /// Removes stale files: queues made with [`remove_on_last_close`](crate::posix::OpenOptions::remove_on_last_close) that no
    /// process has open, FIFOs that no process polls, sockets of removed rings whose receivers have ended, and unfinished files.
    ///
    /// Only root can remove the files of other users.
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// let removed = namespace.sweep()?;
    /// assert!(removed.is_empty(), "{removed:?}");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Blocking
    /// Blocks for at most a millisecond for each queue that other processes inspect or remove meanwhile.
    ///
    /// # Errors
    /// [`NamespaceError`] if the namespace can't be listed.
    ///
    /// # If the process dies
    /// If the process dies during the call, some of the files are removed. A later call removes the others.
    pub fn sweep(&self) -> Result<StaleFiles, NamespaceError> {
        let mut removed = self.sweep_files()?;
        removed.incomplete += self.remove_left_sockets() + self.remove_left_ipc();
        Ok(removed)
    }

    /// Removes stale files as [`sweep`](Self::sweep) does, apart from the sockets of rings and the directories of IPC namespaces: the search for
    /// dead receivers connects to sockets, and the search for ended IPC namespaces inspects all processes of the machine.
    #[doc(hidden)]
    pub fn sweep_files(&self) -> Result<StaleFiles, NamespaceError> {
        Ok(StaleFiles::new(
            remove_all_unused(self)?,
            self.remove_stale_fifos()?,
            self.remove_left_temporary()?
                + self.remove_left_labels()?
                + self.remove_left_lives()
                + self.remove_all_vacant()?,
        ))
    }
}
