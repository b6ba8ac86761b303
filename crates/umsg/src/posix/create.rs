//! Creation of queues: the creator fills a file without a name, and names the file when it is complete.

use super::access::file_mode;
use super::open::Opened;
use super::options::OpenOptions;
use super::queue::Queue;
use crate::error::OpenError;
use crate::error::QueueError;
use crate::last_close::{self, LastClose};
use crate::namespace::{
    FileAccess, FileError, Limits, Namespace, NewDeadLetterLabel, QueueName, Removal, Unpublished,
    charge, hold_unnamed, presence_of,
};
use std::ffi::OsStr;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use umsg_shm::crash::crash_point;
use umsg_shm::posix_engine::segment::{self, Layout, Policy};

/// Fails if `limit`, a value of RLIMIT_MSGQUEUE in bytes, leaves no room for the queue.
fn check_rlimit(namespace: &Namespace, layout: &Layout, limit: u64) -> Result<(), OpenError> {
    let new = charge(layout.max_messages as u64, layout.message_size as u64);
    let bytes = namespace.charges_of_caller()?.saturating_add(new);
    match bytes <= limit {
        true => Ok(()),
        false => Err(OpenError::OverMsgqueueLimit { bytes, limit }),
    }
}

impl OpenOptions {
    pub(super) fn create_new(
        &self,
        namespace: &Namespace,
        name: &QueueName,
    ) -> Result<Opened, OpenError> {
        let unnamed = self.build(namespace, name, None)?;
        self.publish(unnamed, name)
    }

    /// Creates a queue with this mode, which the umask does not change. Fills the queue before the queue gets its name, so no process sees a
    /// half-filled queue. If filling fails or the process dies, no queue is created.
    pub(super) fn create_filled<E: From<OpenError>>(
        &self,
        name: &OsStr,
        mode: u32,
        fill: impl FnOnce(&Queue) -> Result<(), E>,
    ) -> Result<Queue, E> {
        let name = QueueName::parse(name).map_err(OpenError::from)?;
        let namespace = self.resolve()?;
        if exists(&namespace, &name) {
            return Err(OpenError::AlreadyExists.into());
        }
        let unnamed = self.build(&namespace, &name, Some(mode))?;
        fill(&unnamed.queue)?;
        unnamed.check_quota(&namespace)?;
        match self.publish(unnamed, &name)? {
            Opened::Created(queue, _) | Opened::Existing(queue) => Ok(queue),
        }
    }

    /// Sets a new queue's policy for messages that it can't accept, keep or deliver.
    pub(super) fn set_policy(&mut self, policy: &Policy) {
        self.policy = policy.clone();
    }

    /// Creates a queue without a name. The queue's mode is the given mode, or the mode of the options after the umask is applied.
    pub(super) fn build(
        &self,
        namespace: &Namespace,
        name: &QueueName,
        mode: Option<u32>,
    ) -> Result<Unnamed, OpenError> {
        let limits = namespace.limits_of_creation()?;
        let layout = self.layout(&limits)?;
        let own = || rustix::process::getrlimit(rustix::process::Resource::Msgqueue).current;
        if limits.rlimit_msgqueue
            && let Some(limit) = self.bytes_of_user.unwrap_or_else(own)
        {
            check_rlimit(namespace, &layout, limit)?;
        }
        self.check_policy(name)?;
        if self.policy.remove_on_last_close {
            last_close::remove_some_unused(namespace)?;
        }
        let new = self.stage(namespace, limits.max_queues)?;
        crash_point!(CREATE_EMPTY);
        let label = self.provide_dead_letter_queue(namespace, &layout, new.file())?;
        crash_point!(CREATE_LABELLED);
        if limits.max_bytes.is_some() && !namespace.allows(0) {
            let gone = last_close::remove_all_unused(namespace)?.len();
            if gone + namespace.remove_all_vacant()? == 0 || !namespace.allows(0) {
                return Err(OpenError::Queue(QueueError::OverLimit));
            }
        }
        let mode = mode.unwrap_or(new.mode());
        if !limits.allow_mode(mode) {
            return Err(OpenError::ModeNotEnforced { mode });
        }
        let mut policy = self.policy.clone();
        policy.label = label.as_ref().map_or(0, NewDeadLetterLabel::number);
        let mut segment = segment::create(new.file(), layout, mode, &policy)?;
        if self.begins_sole(namespace, &limits, mode) {
            segment.fixed().header.presence.begin_sole();
        }
        segment.count_in(namespace.host());
        segment.set_file_mode(file_mode(mode));
        if self.policy.remove_on_last_close && self.counted {
            hold_unnamed(new.file()).map_err(|e| OpenError::from_errno("flock", e))?;
            segment.set_last_close(Box::new(LastClose::new(namespace, name)));
        }
        let stat = rustix::fs::fstat(new.file()).map_err(|e| OpenError::from_errno("fstat", e))?;
        crash_point!(CREATE_UNNAMED);
        let place = (Some(namespace), Some(name.with_slash()));
        let queue = Queue::new(segment, place, self.access, &stat);
        Ok(Unnamed {
            new,
            label,
            queue,
            mode,
        })
    }

    /// Creates the queue's file, which has no name yet. If there are too many queues, the function first removes vacant segments, and queues with
    /// `remove_on_last_close` that no process has open.
    fn stage(&self, namespace: &Namespace, max_queues: u32) -> Result<Unpublished, OpenError> {
        let make = || Unpublished::create_within(namespace, self.mode, max_queues);
        let mut new = make()?;
        if new.is_none() {
            let gone = last_close::remove_all_unused(namespace)?.len();
            if gone + namespace.remove_all_vacant()? != 0 {
                new = make()?;
            }
        }
        new.ok_or(OpenError::TooManyQueues(max_queues))
    }

    /// Gives a queue its name.
    pub(super) fn publish(&self, unnamed: Unnamed, name: &QueueName) -> Result<Opened, OpenError> {
        let Unnamed {
            new,
            label,
            queue,
            mode,
        } = unnamed;
        let goes = self.policy.remove_on_last_close;
        let descriptor = match self.file_access() {
            // If the queue is removed on the last close, the open file description that the creator maps counts as an open queue. It counts until its
            // last descriptor and mapping are gone. So the returned descriptor belongs to another open file description.
            FileAccess::ReadWrite if !goes => None,
            other => Some(new.reopen(other, false)?),
        };
        let file = match goes {
            true => new.publish_transient(name, file_mode(mode))?,
            false => new.publish(name, file_mode(mode))?,
        };
        crash_point!(CREATE_NAMED);
        if let Some(label) = label {
            label.keep();
        }
        let descriptor = match descriptor {
            Some(descriptor) => lower(file, descriptor)?,
            None => file,
        };
        Ok(Opened::Created(queue, descriptor))
    }

    pub(super) fn layout(&self, limits: &Limits) -> Result<Layout, OpenError> {
        // As in the kernel, a default is never more than the maximum.
        let default = limits.default_messages.min(limits.max_messages);
        let messages = self.max_messages.unwrap_or(default);
        let default = limits.default_message_size.min(limits.max_message_size);
        let size = self.message_size.unwrap_or(default);
        check(
            "max_messages",
            messages,
            limits.max_messages.min(segment::MOST_MESSAGES),
        )?;
        check(
            "message_size",
            size,
            limits.max_message_size.min(segment::LARGEST_MESSAGE),
        )?;
        Ok(Layout::new(messages as usize, size as usize))
    }

    pub(super) fn check_policy(&self, name: &QueueName) -> Result<(), OpenError> {
        let after = self.policy.fair_priorities;
        if after != 0 {
            check("fair_priorities", after, segment::MOST_PASSED)?;
        }
        match &self.policy.dead_letter {
            Some(dead) if QueueName::parse(OsStr::from_bytes(dead))? == *name => {
                return Err(OpenError::OwnDeadLetterQueue);
            }
            Some(_) => {}
            None if self.policy.max_deliveries != 0 => return Err(OpenError::NoDeadLetterQueue),
            None => {}
        }
        Ok(())
    }

    /// Creates the dead-letter queue if it does not exist. Checks that an existing dead-letter queue has the same owner, and accepts every message of
    /// the new queue. Labels the file of the new queue with the dead-letter queue's name.
    pub(super) fn provide_dead_letter_queue(
        &self,
        namespace: &Namespace,
        layout: &Layout,
        file: BorrowedFd<'_>,
    ) -> Result<Option<NewDeadLetterLabel>, OpenError> {
        let Some(name) = &self.policy.dead_letter else {
            return Ok(None);
        };
        let file = rustix::fs::fstat(file).map_err(|e| OpenError::from_errno("fstat", e))?;
        let opened = OpenOptions::new()
            .write(true)
            .create(true)
            .mode(self.mode)
            .max_messages(layout.max_messages as u32)
            .message_size(layout.message_size as u32)
            .counted(false)
            .namespace(namespace)
            .open(OsStr::from_bytes(name));
        match opened {
            Ok(queue) if queue.attributes().message_size < layout.message_size => {
                return Err(OpenError::DeadLetterQueueTooSmall);
            }
            // PermissionDenied is accepted: the mode may suit the processes that will send to the dead-letter queue.
            Ok(_) | Err(OpenError::PermissionDenied) => {}
            Err(error) => return Err(error),
        }
        let name = QueueName::parse(OsStr::from_bytes(name))?;
        if namespace.owner_of(&name)? != Some(file.st_uid) {
            return Err(OpenError::DeadLetterQueueOfAnother);
        }
        Ok(Some(NewDeadLetterLabel::make(namespace, &file, &name)?))
    }
}

/// A complete queue that no other process can see yet.
pub(super) struct Unnamed {
    new: Unpublished,
    label: Option<NewDeadLetterLabel>,
    queue: Queue,
    mode: u32,
}

impl Unnamed {
    /// Checks the namespace's limit of bytes. The namespace does not yet count the bytes of this queue, because the file has no name.
    fn check_quota(&self, namespace: &Namespace) -> Result<(), OpenError> {
        let stat =
            rustix::fs::fstat(self.new.file()).map_err(|e| OpenError::from_errno("fstat", e))?;
        match namespace.allows(stat.st_blocks as usize * 512) {
            true => Ok(()),
            false => Err(OpenError::Queue(QueueError::OverLimit)),
        }
    }
}

fn check(what: &'static str, value: u32, max: u32) -> Result<(), OpenError> {
    if (1..=max).contains(&value) {
        return Ok(());
    }
    Err(OpenError::InvalidAttributes {
        what,
        value: value.into(),
        max: max.into(),
    })
}

/// Returns whether a queue with this name exists.
pub(super) fn exists(namespace: &Namespace, name: &QueueName) -> bool {
    match namespace.open_queue(name, FileAccess::Read, false) {
        Err(FileError::NotFound) => false,
        Ok((_, true)) => last_close::remove_unused(namespace, name) != Ok(Removal::Gone),
        Ok((file, false)) => presence_of(file).is_queue(),
        _ => true,
    }
}

/// Closes `file`, and gives its descriptor number, which is the lower one, to `descriptor`.
fn lower(file: OwnedFd, descriptor: OwnedFd) -> Result<OwnedFd, OpenError> {
    let mut file = file;
    rustix::io::dup3(&descriptor, &mut file, rustix::io::DupFlags::CLOEXEC)
        .map_err(|e| OpenError::from_errno("dup3", e))?;
    Ok(file)
}
