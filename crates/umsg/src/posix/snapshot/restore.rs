//! Restoring: a new queue from a snapshot, or a snapshot's messages sent to an existing queue.

use super::Snapshot;
use super::error::RestoreError;
use crate::posix::options::OpenOptions;
use crate::posix::queue::Queue;
use std::ffi::OsStr;
use umsg_shm::posix_engine::{Seen, SeenHistory};
use umsg_shm::sys::{clock, thread};

impl Snapshot {
    /// Creates the queue `name` with the attributes, the policy and the messages of the snapshot. Of the options, only the access and the namespace
    /// are used. The mode comes from the snapshot, and the umask does not change it. Each message keeps its priority, place, history, time of
    /// sending, process id of the sender, and number of failed leases. The delay of a delayed message is the delay that remained when the snapshot
    /// was taken. If the queue was closed for sending, the new queue is closed, too.
    ///
    /// If returned leases have filled the saved queue beyond its capacity, the new queue may hold more messages than its capacity, too.
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// # let queue = umsg::posix::OpenOptions::new().read(true).write(true).create(true).namespace(&namespace).open("/q")?;
    /// queue.send(b"job", 7)?;
    /// let snapshot = umsg::posix::Snapshot::of(&queue)?;
    /// let mut options = umsg::posix::OpenOptions::new();
    /// options.read(true).write(true).create(true).namespace(&namespace);
    /// let copy = snapshot.restore("/copy", &options)?;
    /// assert_eq!(copy.receive_vec()?.priority, 7);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`RestoreError::Open`]: the queue exists (EEXIST), or the namespace's limits are too low for it; [`RestoreError::Send`]
    /// with ENOSPC or ENOMEM. After an error there is no queue.
    ///
    /// # If the process dies
    /// If the process dies during the call, the queue does not exist, or is complete: the queue gets its name after all messages are in it.
    pub fn restore(
        &self,
        name: impl AsRef<OsStr>,
        options: &OpenOptions,
    ) -> Result<Queue, RestoreError> {
        let messages = u32::try_from(self.look.messages.len()).unwrap_or(u32::MAX);
        let most = self.max_messages.max(messages);
        let mut options = options.clone();
        options.max_messages(most).message_size(self.message_size);
        options.set_policy(&self.policy);
        options.create_filled(name.as_ref(), self.mode, |queue| {
            for (at, (seen, bytes)) in self.look.iter().enumerate() {
                queue.send_saved((seen, self.look.history(at)), bytes)?;
            }
            if self.send_closed {
                queue.close_saved()?;
            }
            Ok(())
        })
    }

    /// Sends all messages to an existing queue, after the messages of the same priority that the queue holds. The queue keeps its own attributes. The
    /// messages have the caller as their sender, and the current time as their time of sending. A delayed message is sent for a delivery after the
    /// delay that remained in the snapshot.
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// # let queue = umsg::posix::OpenOptions::new().read(true).write(true).create(true).namespace(&namespace).open("/q")?;
    /// queue.send(b"job", 7)?;
    /// let snapshot = umsg::posix::Snapshot::of(&queue)?;
    /// snapshot.send_all(&queue)?;
    /// assert_eq!(queue.attributes().messages, 2);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Blocking
    /// Does not wait for room, like [`Queue::try_send_batch`].
    ///
    /// # Errors
    /// [`RestoreError::TooLong`], `NoRoom`, `Send`. After an error nothing was sent. One exception: another process closes the queue during
    /// the call, after the messages without a delay were sent.
    ///
    /// # If the process dies
    /// If the process dies during the call, all messages without a delay were sent, or none. Of the delayed messages, some may be missing.
    pub fn send_all(&self, queue: &Queue) -> Result<(), RestoreError> {
        self.check_that_all_fit(queue)?;
        let (mut batch, mut delayed) = (Vec::new(), Vec::new());
        for (seen, bytes) in self.look.iter() {
            if seen.delay == 0 {
                batch.push((bytes, seen.key as u32));
                continue;
            }
            let mut room = queue.try_reserve(bytes.len())?;
            room.write_at(0, bytes);
            delayed.push((room, seen));
        }
        queue.try_send_batch(&batch)?;
        // The room is reserved, so a commit fails only if the queue has been closed or corrupted since the reservation.
        for (room, seen) in delayed {
            room.commit_at(
                seen.key as u32,
                clock::monotonic().saturating_add(seen.delay),
            )?;
        }
        Ok(())
    }

    fn check_that_all_fit(&self, queue: &Queue) -> Result<(), RestoreError> {
        let attributes = queue.attributes();
        let max = attributes.message_size;
        let mut lengths = self.look.messages.iter().map(|seen| seen.len).enumerate();
        if let Some((position, len)) = lengths.find(|(_, len)| *len > max) {
            return Err(RestoreError::TooLong { position, len, max });
        }
        let taken =
            attributes.messages + attributes.reserved + attributes.leased + attributes.delayed;
        let room = attributes.max_messages.saturating_sub(taken);
        let messages = self.look.messages.len();
        if messages > room {
            return Err(RestoreError::NoRoom { messages, room });
        }
        Ok(())
    }
}

impl Queue {
    /// Sends a message with its saved sender and time. The queue must not have a name yet.
    fn send_saved(
        &self,
        seen: (&Seen, Option<&SeenHistory>),
        bytes: &[u8],
    ) -> Result<(), RestoreError> {
        self.engine
            .send_saved(thread::current(), seen, bytes)
            .map_err(|refused| self.send_error(refused).into())
    }

    /// Closes a queue that has no name yet, whatever the access of the handle.
    fn close_saved(&self) -> Result<(), RestoreError> {
        let closed = self.engine.close_send(thread::current());
        closed.map_err(|refused| self.send_error(refused))?;
        Ok(())
    }
}
