//! Snapshots: a queue's messages at one instant, in a file. docs/snapshot.md specifies the file byte by byte.

mod format;

use self::format::{MAJOR, MAJOR_WITH_STATES, RECORD_HEAD, Record, least_header, time};
use super::error::ReceiveError;
use super::queue::Queue;
use super::receive::Heeds;
use crate::posix::snapshot::read::Source;
use crate::posix::snapshot::write::Sink;
use crate::posix::{SnapshotError, SnapshotPart};
use std::io::{self, Read, Write};
use std::time::{Duration, SystemTime};
use umsg_shm::sys::clock::{self, Deadline};

/// A System V queue's attributes and messages at one instant, in memory of the process.
///
/// ```
/// # let dir = tempfile::tempdir_in("/dev/shm")?;
/// # let namespace = umsg::Namespace::at(dir.path())?;
/// # let queue = umsg::sysv::OpenOptions::new().create(true).namespace(&namespace).open(1)?;
/// use umsg::sysv::Snapshot;
///
/// queue.send(5, b"job")?;
/// let mut file = Vec::new();
/// Snapshot::of(&queue)?.write(&mut file)?;
///
/// let snapshot = Snapshot::read(&mut &file[..])?;
/// assert!(snapshot.messages().all(|message| message.mtype == 5));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Snapshot {
    info: SnapshotInfo,
    heads: Vec<Record>,
    bytes: Vec<u8>,
}

/// The queue's attributes at the time of the snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SnapshotInfo {
    /// The queue's key; 0 without a key.
    pub key: i32,
    /// The queue's permission bits.
    pub mode: u32,
    /// The longest possible message, in bytes.
    pub msgmax: u32,
    /// The bytes that may be queued.
    pub qbytes: u64,
    /// Number of queued messages. Leased and delayed messages are not in a snapshot.
    pub messages: u64,
    /// Number of queued bytes.
    pub bytes: u64,
    /// Time of the snapshot.
    pub taken: SystemTime,
    /// True if the queue was closed for sending.
    pub send_closed: bool,
    /// True if the end of the last producer closes the queue for sending.
    pub close_with_last_producer: bool,
    /// The delays before a returned message is delivered again: the delay after the first return, and the longest delay. `None` for no delay.
    pub retry_delay: Option<(Duration, Duration)>,
}

/// A message in a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SavedMessage<'a> {
    /// The bytes of the message.
    pub data: &'a [u8],
    /// The type of the message, 1 or more.
    pub mtype: i64,
    /// Process id of the sender.
    pub pid: u32,
    /// Time of the send, accurate to a few milliseconds.
    pub sent: SystemTime,
    /// Number of leases that ended with the return of the message to the queue.
    pub returns: u32,
}

impl Snapshot {
    /// Takes a snapshot into memory. The call does not change the queue.
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// # let queue = umsg::sysv::OpenOptions::new().create(true).namespace(&namespace).open(1)?;
    /// queue.send(5, b"job")?;
    /// assert_eq!(umsg::sysv::Snapshot::of(&queue)?.info().messages, 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Blocking
    /// Other senders and receivers wait while the messages are copied.
    ///
    /// # Errors
    /// The errors of [`Queue::peek`].
    pub fn of(queue: &Queue) -> Result<Snapshot, ReceiveError> {
        // The state is read first: a queue that is closed gets no message between this reading and the copy of its messages.
        let send_closed = queue.is_send_closed();
        let (seen, bytes) = queue.judged_receive((Deadline::Passed, Heeds::Nothing), |call| {
            queue.engine.all_messages(call)
        })?;
        let status = queue.status().map_err(|error| match error {
            super::ControlError::Removed => ReceiveError::Removed,
            _ => ReceiveError::PermissionDenied,
        })?;
        let delivery = queue.delivery();
        Ok(Snapshot {
            info: SnapshotInfo {
                key: queue.key(),
                mode: status.entry.mode,
                msgmax: status.msgmax as u32,
                qbytes: status.entry.qbytes,
                messages: seen.len() as u64,
                bytes: bytes.len() as u64,
                taken: time(clock::realtime()),
                send_closed,
                close_with_last_producer: delivery.close_with_last_producer,
                retry_delay: delivery.retry_delay,
            },
            heads: seen.iter().map(Record::of).collect(),
            bytes,
        })
    }

    /// Returns the queue's attributes at the time of the snapshot.
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// # let queue = umsg::sysv::OpenOptions::new().create(true).namespace(&namespace).open(7)?;
    /// assert_eq!(umsg::sysv::Snapshot::of(&queue)?.info().key, 7);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn info(&self) -> SnapshotInfo {
        self.info
    }

    /// Returns the messages in order of arrival.
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// # let queue = umsg::sysv::OpenOptions::new().create(true).namespace(&namespace).open(1)?;
    /// queue.send(5, b"job")?;
    /// let snapshot = umsg::sysv::Snapshot::of(&queue)?;
    /// assert_eq!(snapshot.messages().next().unwrap().data, b"job");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn messages(&self) -> impl Iterator<Item = SavedMessage<'_>> {
        let mut rest = &self.bytes[..];
        self.heads.iter().map(move |head| {
            let (data, others) = rest.split_at(head.len as usize);
            rest = others;
            SavedMessage {
                data,
                mtype: head.mtype,
                pid: head.pid,
                sent: time(head.sent),
                returns: head.returns,
            }
        })
    }

    /// Writes the snapshot. Returns its length in bytes.
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// # let queue = umsg::sysv::OpenOptions::new().create(true).namespace(&namespace).open(1)?;
    /// let mut file = Vec::new();
    /// let bytes = umsg::sysv::Snapshot::of(&queue)?.write(&mut file)?;
    /// assert_eq!(bytes, file.len() as u64);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`SnapshotError::Write`]. A later read refuses the incomplete file.
    pub fn write(&self, to: impl Write) -> Result<u64, SnapshotError> {
        let mut sink = Sink::new(to);
        self.write_to(&mut sink).map_err(SnapshotError::Write)?;
        Ok(sink.at())
    }

    fn write_to(&self, sink: &mut Sink<impl Write>) -> io::Result<()> {
        sink.put(&format::encode(&self.info))?;
        sink.put_checksum()?;
        let mut rest = &self.bytes[..];
        for head in &self.heads {
            let (data, others) = rest.split_at(head.len as usize);
            rest = others;
            sink.put(&head.encode())?;
            sink.put(data)?;
            sink.put_checksum()?;
        }
        sink.finish()
    }

    /// Reads a snapshot of a System V queue, to the end of the input. Memory is allocated in proportion to the bytes read.
    ///
    /// ```
    /// let error = umsg::sysv::Snapshot::read(&mut &b"no snapshot"[..]).unwrap_err();
    /// assert_eq!(error.errno(), libc::EINVAL);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`SnapshotError::NotASnapshot`], `OtherVersion` (1 or 3 for a snapshot of a POSIX queue), `Truncated`, `Damaged`, `NoMemory`, `Read`. A
    /// file that was truncated, or with an altered byte, is refused.
    pub fn read(from: impl Read) -> Result<Snapshot, SnapshotError> {
        let mut source = Source::new(from);
        let (major, fields) = source.fields(&[MAJOR_WITH_STATES, MAJOR], least_header)?;
        let (info, record_head) =
            format::decode(major, &fields).map_err(|what| source.damaged(what))?;
        let mut snapshot = Snapshot {
            info,
            heads: Vec::new(),
            bytes: Vec::new(),
        };
        for position in 0..info.messages {
            source.enter(SnapshotPart::Message(position));
            snapshot.read_message(&mut source, record_head)?;
        }
        source.enter(SnapshotPart::Trailer);
        if snapshot.bytes.len() as u64 != info.bytes {
            return Err(source.damaged("the total length of the messages differs from the header"));
        }
        source.trailer()?;
        Ok(snapshot)
    }

    fn read_message(
        &mut self,
        source: &mut Source<impl Read>,
        record_head: usize,
    ) -> Result<(), SnapshotError> {
        let head = Record::decode(&source.take()?);
        source.skip(record_head - RECORD_HEAD)?;
        if head.len > self.info.msgmax {
            return Err(source.damaged("the message's length is greater than the queue's msgmax"));
        }
        source.append(head.len as usize, &mut self.bytes)?;
        source.check_sum()?;
        if head.mtype < 1 {
            return Err(source.damaged("the message's type is below 1"));
        }
        self.heads
            .try_reserve(1)
            .map_err(|_| SnapshotError::NoMemory)?;
        self.heads.push(head);
        Ok(())
    }

    /// Sends all messages to a queue, after the messages that it holds. The sent messages have the caller as their sender, and the current time as
    /// their time of sending. The queue keeps its own attributes; [`info`](Self::info) has the saved attributes.
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// # let queue = umsg::sysv::OpenOptions::new().create(true).namespace(&namespace).open(1)?;
    /// queue.send(5, b"job")?;
    /// umsg::sysv::Snapshot::of(&queue)?.send_all(&queue)?;
    /// assert_eq!(queue.status()?.entry.messages, 2);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Blocking
    /// Never blocks for room, like [`Queue::try_send_batch`].
    ///
    /// # Errors
    /// The errors of [`Queue::try_send_batch`]. After an error nothing was sent.
    ///
    /// # If the process dies
    /// If the process dies during the call, all messages were sent, or none.
    pub fn send_all(&self, queue: &Queue) -> Result<(), super::SendError> {
        let batch: Vec<(i64, &[u8])> = self
            .messages()
            .map(|saved| (saved.mtype, saved.data))
            .collect();
        match batch.is_empty() {
            true => Ok(()),
            false => queue.try_send_batch(&batch),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sysv::{OpenOptions, Peeked};
    use tempfile::TempDir;

    fn queue(dir: &TempDir) -> Queue {
        let namespace = crate::Namespace::at(dir.path()).unwrap();
        OpenOptions::new()
            .create(true)
            .mode(0o640)
            .namespace(&namespace)
            .open(0x77)
            .unwrap()
    }

    fn written(snapshot: &Snapshot) -> Vec<u8> {
        let mut file = Vec::new();
        snapshot.write(&mut file).unwrap();
        file
    }

    #[test]
    fn a_snapshot_that_is_read_is_what_was_written() {
        let dir = tempfile::tempdir_in("/dev/shm").unwrap();
        let queue = queue(&dir);
        for (mtype, message) in [(5, &b"five"[..]), (i64::MAX, b""), (1, &[0xff; 3000])] {
            queue.send(mtype, message).unwrap();
        }
        drop(queue.receive_lease(super::super::Want::Exactly(5)).unwrap());
        let snapshot = Snapshot::of(&queue).unwrap();
        let read = Snapshot::read(&written(&snapshot)[..]).unwrap();
        assert_eq!(
            (read.info(), &read.heads, &read.bytes),
            (snapshot.info(), &snapshot.heads, &snapshot.bytes)
        );
        let peeked = queue.messages(9).unwrap();
        let saved: Vec<SavedMessage<'_>> = read.messages().collect();
        assert_eq!(saved.len(), 3);
        for (saved, peeked) in saved.iter().zip(&peeked) {
            let Peeked {
                data,
                mtype,
                pid,
                sent,
                returns,
                ..
            } = peeked;
            let expected = SavedMessage {
                data,
                mtype: *mtype,
                pid: *pid,
                sent: *sent,
                returns: *returns,
            };
            assert_eq!(*saved, expected);
        }
        assert_eq!(saved[0].returns, 1);
    }

    #[test]
    fn a_file_that_was_altered_or_cut_short_is_refused() {
        let dir = tempfile::tempdir_in("/dev/shm").unwrap();
        let queue = queue(&dir);
        queue.send(3, b"message").unwrap();
        let whole = written(&Snapshot::of(&queue).unwrap());
        for at in 0..whole.len() {
            let mut altered = whole.clone();
            altered[at] ^= 1;
            // A reader accepts any minor version, but the checksum covers that version.
            assert!(Snapshot::read(&altered[..]).is_err(), "byte {at}");
            assert!(Snapshot::read(&whole[..at]).is_err(), "{at} bytes");
        }
        assert!(Snapshot::read(&[&whole[..], b"x"].concat()[..]).is_err());
    }

    /// Returns a snapshot of a queue with one message, a retry delay and the close by the last producer. The queue is closed for sending.
    fn with_states() -> Snapshot {
        let dir = tempfile::tempdir_in("/dev/shm").unwrap();
        let namespace = crate::Namespace::at(dir.path()).unwrap();
        let mut options = OpenOptions::new();
        let [first, most] = [1, 60].map(Duration::from_secs);
        options
            .create(true)
            .namespace(&namespace)
            .retry_delay(first, most);
        let queue = options.close_with_last_producer(true).open(0x77).unwrap();
        queue.send(3, b"message").unwrap();
        queue.close_send().unwrap();
        Snapshot::of(&queue).unwrap()
    }

    #[test]
    fn a_queue_with_states_is_saved_in_version_4_and_others_in_version_2() {
        let snapshot = with_states();
        let [first, most] = [1, 60].map(Duration::from_secs);
        let file = written(&snapshot);
        assert_eq!((file[8], file[10], file[12]), (4, 0, 88));
        // docs/snapshot.md: the flags, then the delays.
        let mut states = 6_u32.to_le_bytes().to_vec();
        for delay in [1_000_000_000, 60_000_000_000_u64] {
            states.extend(delay.to_le_bytes());
        }
        assert_eq!(file[64..84], states);
        let read = Snapshot::read(&file[..]).unwrap();
        assert_eq!(read.info(), snapshot.info());
        assert!(read.info().send_closed && read.info().close_with_last_producer);
        assert_eq!(read.info().retry_delay, Some((first, most)));
        assert_eq!(written(&read), file);
        let dir = tempfile::tempdir_in("/dev/shm").unwrap();
        assert_eq!(written(&Snapshot::of(&queue(&dir)).unwrap())[8], 2);
    }

    #[test]
    fn a_file_of_version_4_that_was_altered_or_cut_short_is_refused() {
        let whole = written(&with_states());
        for at in 0..whole.len() {
            let mut altered = whole.clone();
            altered[at] ^= 0x81;
            assert!(Snapshot::read(&altered[..]).is_err(), "byte {at}");
            assert!(Snapshot::read(&whole[..at]).is_err(), "{at} bytes");
        }
        // A header of version 4 with the length of version 2.
        let mut short = whole;
        short[12] = 68;
        let error = Snapshot::read(&short[..]).unwrap_err();
        assert!(
            error
                .to_string()
                .contains("the header's length is out of range"),
            "{error}"
        );
    }

    #[test]
    fn the_snapshots_of_the_two_kinds_are_told_apart() {
        let dir = tempfile::tempdir_in("/dev/shm").unwrap();
        let file = written(&Snapshot::of(&queue(&dir)).unwrap());
        let error = crate::posix::Snapshot::read(&file[..]).unwrap_err();
        assert!(
            matches!(error, SnapshotError::OtherVersion { found: 2, .. }),
            "{error}"
        );
    }
}
