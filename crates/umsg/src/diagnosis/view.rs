//! A copy of a segment, made at a moment at which no process changes the queue, if there is such a moment.

use super::subject::Subject;
use crate::error::OpenError;
use crate::namespace::Namespace;
use rustix::fd::BorrowedFd;
use std::thread::sleep;
use std::time::Duration;
use umsg_shm::fault::AttachError;

/// The number of attempts to copy a queue that is in use.
const LOOKS: u32 = 24;

/// The time after which a lock is reported as stuck, if the lock keeps its owner and nothing changes.
pub(super) const HOGGED: Duration = Duration::from_secs(1);
/// The pause between two readings of a lock that may be stuck.
const STEP: Duration = Duration::from_millis(20);

/// A copy of a queue's segment.
pub(super) struct View<S> {
    pub(super) segment: S,
    /// True if nothing changed while the copy was made, so that all its parts show the same moment.
    pub(super) is_still: bool,
    moment: Option<Vec<u8>>,
}

impl<S: Subject> View<S> {
    fn new(segment: S, is_still: bool, moment: Option<Vec<u8>>) -> View<S> {
        View {
            segment,
            is_still,
            moment,
        }
    }

    /// Returns whether nothing has changed in the file since the copy. If so, values that were read from the file since then belong to the instant of
    /// the copy.
    pub(super) fn is_of_now(&self, file: BorrowedFd<'_>) -> bool {
        self.is_still && pulse::<S>(file) == self.moment
    }
}

/// Makes a copy of a queue's segment. If the queue is in use, the function copies again, for a limited time, until the copy shows a moment of rest.
pub(super) fn take<S: Subject>(
    file: BorrowedFd<'_>,
    layout: S::Layout,
    namespace: &Namespace,
) -> Result<View<S>, OpenError> {
    // The words of the last copy with a held lock.
    let mut held: Option<Option<Vec<u8>>> = None;
    for look in 0..LOOKS {
        let before = pulse::<S>(file);
        let segment = copy::<S>(file, layout, namespace)?;
        // If the file ends before these words, both readings are None, and nothing can change them.
        let is_still = pulse::<S>(file) == before;
        match (is_still, segment.is_held()) {
            (true, false) => return Ok(View::new(segment, is_still, before)),
            // A lock is held all the time and nothing changes: its owner is stopped, dead or stuck.
            (true, true) if held.as_ref() == Some(&before) => {
                return Ok(View::new(segment, is_still, before));
            }
            (true, true) => held = Some(before),
            _ if look + 1 == LOOKS => return Ok(View::new(segment, is_still, before)),
            _ => {}
        }
        // The pauses grow: on a busy machine, the queue's users may run only now and then.
        sleep(Duration::from_millis(u64::from(look) + 1));
    }
    let segment = copy::<S>(file, layout, namespace)?;
    Ok(View::new(segment, false, None))
}

fn copy<S: Subject>(
    file: BorrowedFd<'_>,
    layout: S::Layout,
    namespace: &Namespace,
) -> Result<S, OpenError> {
    S::copy(file, layout, namespace).map_err(|errno| {
        let len = S::len(&layout);
        AttachError::Mapping { errno, len }.into()
    })
}

/// Reads the words that every operation changes. None if the file no longer contains them.
fn pulse<S: Subject>(file: BorrowedFd<'_>) -> Option<Vec<u8>> {
    let range = S::pulse();
    let mut bytes = vec![0; range.len()];
    let read = rustix::io::pread(file, &mut bytes, range.start as u64).ok()?;
    (read == bytes.len()).then_some(bytes)
}

/// Returns whether the words that every operation changes stay the same for a second.
pub(super) fn is_stuck<S: Subject>(file: BorrowedFd<'_>) -> bool {
    let before = pulse::<S>(file);
    let mut left = HOGGED;
    while !left.is_zero() {
        sleep(STEP);
        left = left.saturating_sub(STEP);
        if pulse::<S>(file) != before {
            return false;
        }
    }
    true
}
