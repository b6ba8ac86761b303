//! What users of a namespace left that were killed, and would have removed themselves.

use crate::last_close::{all_unused, remove_all_unused};
use crate::namespace::{Namespace, NamespaceError};
use std::ffi::OsString;

/// What [`Namespace::left_over`] found, or [`Namespace::sweep`] removed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct StaleFiles {
    /// Names of queues that were made to be [removed](crate::posix::OpenOptions::remove_on_last_close) when no process has them open any more,
    /// with their slashes, in order.
    pub queues: Vec<OsString>,
    /// How many FIFOs by which queues were polled.
    pub doorbells: usize,
    /// How many files and directories that were to become queues or limits, and labels of dead-letter queues whose queues are gone.
    pub temporary: usize,
}

impl StaleFiles {
    fn new(names: Vec<OsString>, doorbells: usize, temporary: usize) -> StaleFiles {
        let mut queues: Vec<OsString> = names.iter().map(with_slash).collect();
        queues.sort_unstable();
        StaleFiles {
            queues,
            doorbells,
            temporary,
        }
    }

    /// Nothing was left.
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// assert!(namespace.left_over()?.is_empty());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn is_empty(&self) -> bool {
        self.queues.is_empty() && self.doorbells == 0 && self.temporary == 0
    }
}

fn with_slash(name: &OsString) -> OsString {
    let mut whole = OsString::from("/");
    whole.push(name);
    whole
}

impl Namespace {
    /// What [`sweep`](Self::sweep) would remove. Nothing is changed.
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// let stale = namespace.left_over()?;
    /// assert!(stale.is_empty(), "{stale:?}");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Blocking
    /// Never. A process that opens one of these queues at the same moment may wait for some microseconds.
    ///
    /// # Errors
    /// If the namespace can't be listed.
    pub fn left_over(&self) -> Result<StaleFiles, NamespaceError> {
        Ok(StaleFiles::new(
            all_unused(self)?,
            self.stale_fifos()?,
            self.left_temporary()? + self.left_labels()? + self.left_lives(),
        ))
    }

    /// Removes what its last users would have removed if they had not been killed: queues that are
    /// [to go with them](crate::posix::OpenOptions::remove_on_last_close), doorbells that no process polls, and what was half made. Of other
    /// users only root can.
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
    /// For a millisecond a queue, if others look at it or remove it meanwhile.
    ///
    /// # Errors
    /// If the namespace can't be listed.
    ///
    /// # If the process dies
    /// Some is removed, the rest later.
    pub fn sweep(&self) -> Result<StaleFiles, NamespaceError> {
        Ok(StaleFiles::new(
            remove_all_unused(self)?,
            self.remove_stale_fifos()?,
            self.remove_left_temporary()? + self.remove_left_labels()? + self.remove_left_lives(),
        ))
    }
}
