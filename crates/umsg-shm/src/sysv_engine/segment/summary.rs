//! Reads the header of a System V queue's segment, from its file or from a mapping. Checks every word before it is used.

use super::attach::removed_len;
use super::{ControlBlock, Fixed, Header, LAYOUT_HASH, LONGEST, Layout, MAGIC, MOST_BYTES};
use super::{Generation, Permissions, Rights, State, Tenure, VERSION};
use crate::fault::AttachError;
use crate::lock::Lock;
use crate::memory::{OUT_OF_RANGE, View};
use crate::sync::{Ordering, fence};
use crate::sys::home::here;
use crate::sys::liveness::{Liveness, UNREGISTERED};
use crate::sys::map::PAGE;
use crate::sys::thread::Thread;
use crate::sysv_engine::read_counts;
use rustix::fd::BorrowedFd;
use rustix::fs::FileType;
use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};
use std::mem::offset_of;

/// The text of the error for a file without the magic number.
const NO_MAGIC: &str = "the file does not begin with the magic number";

/// The header, rights and counts of a queue, read from its file with one system call. The counts may be of different instants.
#[derive(Clone, Copy, Debug)]
pub struct Summary {
    pub(crate) layout: Layout,
    pub id: i32,
    pub key: i32,
    pub is_removed: bool,
    /// True if the process that removed the queue keeps the segment for another queue.
    pub is_vacant: bool,
    generation: Generation,
    /// The process id of the creator.
    pub creator: u32,
    /// The namespaces of the creator: see [`crate::sys::home`].
    pub home: u64,
    pub permissions: Permissions,
    /// The time of the last change, in seconds since 1970; 0 for never.
    pub changed_at: u64,
    /// The time of the last send, in seconds since 1970; 0 for never.
    pub sent_at: u64,
    /// The time of the last receive, in seconds since 1970; 0 for never.
    pub received_at: u64,
    pub messages: u64,
    pub bytes: u64,
    pub qbytes: u64,
    /// The process id of the last sender.
    pub sender: u32,
    /// The process id of the last receiver.
    pub receiver: u32,
}

impl Summary {
    /// Returns the tenure with which a handle belongs to the queue that the summary describes.
    pub(crate) fn tenure(&self) -> Tenure {
        Tenure {
            generation: self.generation,
            id: self.id,
        }
    }

    /// Returns whether the creator was in the PID namespace of this process, and has ended.
    #[must_use]
    pub fn is_creator_dead(&self) -> bool {
        let pid = i32::try_from(self.creator).ok().and_then(Pid::from_raw);
        let is_dead = |pid| test_kill_process(pid) == Err(Errno::SRCH);
        self.home != 0 && self.home == here() && pid.is_none_or(is_dead)
    }
}

/// Checks that a file is a System V queue's segment, and reads its summary. The file must be open for reading.
pub fn summary(file: BorrowedFd<'_>) -> Result<Summary, AttachError> {
    let stat = rustix::fs::fstat(file).map_err(|e| AttachError::from_errno("fstat", e))?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Err(AttachError::NotAQueue("not a regular file"));
    }
    let bytes = Bytes::read(file)?;
    let mut summary = bytes.summary()?;
    if bytes.may_be_mixed() {
        summary.is_removed |= !bytes.is_of_queue_in(&Bytes::read(file)?);
    }
    let (len, size) = (summary.layout.len, stat.st_size as u64);
    let is_marked = size == removed_len(len) as u64;
    if !is_marked && size != len as u64 {
        return Err(AttachError::Damaged(
            "the file's length differs from the length in its header",
        ));
    }
    summary.is_removed |= is_marked;
    summary.is_vacant &= !is_marked;
    Ok(summary)
}

/// The header of a queue, mapped so that a process can read it repeatedly without a system call. While this value exists, the queue's file stays in
/// memory.
#[derive(Debug)]
pub struct HeaderView {
    view: View,
    /// True if the creator had the PID and time namespaces of this process.
    is_home: bool,
}

/// The numbers of messages and of their bytes in a queue, as [`HeaderView`] reads them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueCounts {
    pub messages: u64,
    pub bytes: u64,
}

/// The [`Liveness`] for a queue whose creator had the namespaces of this process. The type is used only for locks in plain form, which ask no other
/// question about processes.
struct Home;

impl Liveness for Home {
    fn own(&self) -> u32 {
        UNREGISTERED
    }

    fn is_over(&self, _: u32) -> bool {
        false
    }

    fn is_elsewhere(&self) -> bool {
        false
    }

    fn is_home(&self) -> bool {
        true
    }

    fn is_private(&self) -> bool {
        false
    }

    fn is_plain(&self) -> bool {
        false
    }
}

impl HeaderView {
    /// Maps the header of a file that [`summary`] has checked.
    ///
    /// # Errors
    /// `System` if the page can't be mapped.
    pub fn map(file: BorrowedFd<'_>) -> Result<HeaderView, AttachError> {
        const { assert!(BEGINNING < PAGE) };
        let view = View::map(file)?;
        let at = offset_of!(Header, home);
        let home = wide(view.u32_at(at), view.u32_at(at + 4));
        let is_home = home != 0 && home == here();
        Ok(HeaderView { view, is_home })
    }

    /// Returns the counts of the queue. The inner value is None if the segment is vacant: its queue was removed, and the next queue may follow. The
    /// result is None if the queue was removed for good, or the file was truncated.
    pub fn counts(&self) -> Option<Option<QueueCounts>> {
        let messages = self
            .view
            .u32_at(CONTROL + offset_of!(ControlBlock, messages));
        let at = CONTROL + offset_of!(ControlBlock, bytes);
        let bytes = wide(self.view.u32_at(at), self.view.u32_at(at + 4));
        let state = self.state();
        let counts = QueueCounts {
            messages: messages.into(),
            bytes,
        };
        let counts = match state.vacant() {
            Some(_) => None,
            None if state.is_removed() => return None,
            None => Some(counts),
        };
        (!self.view.is_cut()).then_some(counts)
    }

    /// Returns the counts as [`counts`](Self::counts) does, and marks the queue's lock as counted. The second value is false if the lock can't be
    /// marked: see [`read_counts`]. A segment without a queue needs no mark: the namespace counts its next queue as a change of names.
    pub fn marked_counts(&self, me: &Thread) -> Option<(Option<QueueCounts>, bool)> {
        if self.state().vacant().is_some() {
            return (!self.view.is_cut()).then_some((None, true));
        }
        if !self.is_home {
            return self.counts().map(|counts| (counts, false));
        }
        let is_live = || self.state().live().is_some() && !self.view.is_cut();
        let (counts, is_marked) = read_counts(self.lock(), me, &Home, is_live, || self.counts())?;
        Some((counts?, is_marked))
    }

    fn state(&self) -> State {
        State::of_word(self.view.u32_at(RIGHTS + offset_of!(Rights, state)))
    }

    #[allow(unsafe_code, reason = "a reference into the mapping")]
    fn lock(&self) -> &Lock {
        const AT: usize = CONTROL + offset_of!(ControlBlock, lock);
        const { assert!(AT + size_of::<Lock>() <= PAGE && AT.is_multiple_of(align_of::<Lock>())) };
        // SAFETY: by the assertion, the lock lies inside the page and is aligned. A lock consists of atomics.
        unsafe { self.view.item_at(AT) }
    }

    /// Returns the values that [`summary`] would read from the file, except the file's length.
    ///
    /// # Errors
    /// `Damaged`, `NotAQueue`, `OtherVersion`, if a process has overwritten the header or truncated the file meanwhile.
    pub fn summary(&self) -> Result<Summary, AttachError> {
        let bytes = self.bytes();
        let mut summary = bytes.summary()?;
        if bytes.may_be_mixed() {
            // Acquire: GENERATION. The bytes that are read again are not older than those of the summary.
            fence(Ordering::Acquire);
            summary.is_removed |= !bytes.is_of_queue_in(&self.bytes());
        }
        Ok(summary)
    }

    fn bytes(&self) -> Bytes {
        let mut bytes = [0; BEGINNING];
        for (index, word) in bytes.chunks_exact_mut(4).enumerate() {
            word.copy_from_slice(&self.view.u32_at(4 * index).to_ne_bytes());
        }
        Bytes(bytes)
    }
}

/// The beginning of the file: header, rights and the first cache lines of the control block.
struct Bytes([u8; BEGINNING]);

const RIGHTS: usize = offset_of!(Fixed, rights);
const CONTROL: usize = offset_of!(Fixed, control);
const BEGINNING: usize = CONTROL + offset_of!(ControlBlock, used);

/// Joins the halves of a word. The machines that umsg runs on are little-endian.
fn wide(low: u32, high: u32) -> u64 {
    u64::from(low) | u64::from(high) << 32
}

impl Bytes {
    /// Reads the beginning of a file with a system call. So a file that is too short is an error, and not a SIGBUS.
    fn read(file: BorrowedFd<'_>) -> Result<Bytes, AttachError> {
        let mut bytes = [0; BEGINNING];
        let len = rustix::io::pread(file, &mut bytes, 0)
            .map_err(|e| AttachError::from_errno("pread", e))?;
        if len < BEGINNING {
            return Err(AttachError::NotAQueue("the file is shorter than a header"));
        }
        Ok(Bytes(bytes))
    }

    /// Returns whether the words may come from two queues that the segment held one after the other.
    fn may_be_mixed(&self) -> bool {
        self.state()
            .live()
            .is_some_and(|generation| generation != Generation::default())
    }

    /// Returns whether bytes that were read later belong to the same queue as these bytes. If not, there was no queue for a moment between the two
    /// reads.
    fn is_of_queue_in(&self, later: &Bytes) -> bool {
        let id = |bytes: &Bytes| bytes.u32_at(offset_of!(Header, id));
        self.state() == later.state() && id(self) == id(later)
    }

    fn state(&self) -> State {
        State::of_word(self.u32_at(RIGHTS + offset_of!(Rights, state)))
    }

    /// Returns the summary, without the fields that follow from the length of the file.
    fn summary(&self) -> Result<Summary, AttachError> {
        let rights = |at| self.u32_at(RIGHTS + at);
        let control = |at| self.u64_at(CONTROL + at);
        Ok(Summary {
            layout: self.layout()?,
            id: self.u32_at(offset_of!(Header, id)) as i32,
            key: self.u32_at(offset_of!(Header, key)) as i32,
            is_removed: self.state().is_removed(),
            is_vacant: self.state().vacant().is_some(),
            generation: self.state().live().unwrap_or_default(),
            creator: self.u32_at(offset_of!(Header, creator)),
            home: self.u64_at(offset_of!(Header, home)),
            permissions: Permissions {
                uid: rights(offset_of!(Rights, uid)),
                gid: rights(offset_of!(Rights, gid)),
                cuid: rights(offset_of!(Rights, cuid)),
                cgid: rights(offset_of!(Rights, cgid)),
                mode: rights(offset_of!(Rights, mode)) & 0o777,
            },
            changed_at: self.u64_at(RIGHTS + offset_of!(Rights, changed_at)),
            sent_at: control(offset_of!(ControlBlock, sent_at)),
            received_at: control(offset_of!(ControlBlock, received_at)),
            messages: u64::from(self.u32_at(CONTROL + offset_of!(ControlBlock, messages))),
            bytes: control(offset_of!(ControlBlock, bytes)),
            qbytes: control(offset_of!(ControlBlock, capacity)),
            sender: self.u32_at(offset_of!(Fixed, control) + offset_of!(ControlBlock, sender)),
            receiver: self.u32_at(offset_of!(Fixed, control) + offset_of!(ControlBlock, receiver)),
        })
    }

    fn u32_at(&self, at: usize) -> u32 {
        let bytes = &self.0[at..at + 4];
        u32::from_ne_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
    }

    fn u64_at(&self, at: usize) -> u64 {
        wide(self.u32_at(at), self.u32_at(at + 4))
    }

    fn layout(&self) -> Result<Layout, AttachError> {
        let version = self.u32_at(offset_of!(Header, version));
        let layout_hash = self.u32_at(offset_of!(Header, layout_hash));
        let is_ours = (version, layout_hash) == (VERSION, LAYOUT_HASH);
        match (self.u64_at(offset_of!(Header, magic)) == MAGIC, is_ours) {
            (true, true) => {}
            (true, false) => {
                return Err(AttachError::OtherVersion {
                    found: version,
                    expected: VERSION,
                });
            }
            // Version and layout hash are right, so the file is a damaged queue: a salvage can write the magic number.
            (false, true) => return Err(AttachError::Damaged(NO_MAGIC)),
            (false, false) => return Err(AttachError::NotAQueue(NO_MAGIC)),
        }
        let capacity = self.u64_at(offset_of!(Header, capacity));
        let msgmax = self.u32_at(offset_of!(Header, msgmax));
        if capacity > MOST_BYTES || msgmax > LONGEST {
            return Err(AttachError::Damaged(OUT_OF_RANGE));
        }
        let layout = Layout::new(capacity, msgmax as usize);
        if self.u64_at(offset_of!(Header, len)) != layout.len as u64 {
            return Err(AttachError::Damaged(
                "the header's length does not fit its limits",
            ));
        }
        Ok(layout)
    }
}
