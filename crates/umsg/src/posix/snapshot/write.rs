//! Writing of snapshots.

use super::Snapshot;
use super::error::SnapshotError;
use super::format::{END, Header, MAJOR, MAJOR_WITH_STATES, Record, encode_history};
use crc32fast::Hasher;
use std::io::{self, BufWriter, Write};
use umsg_shm::posix_engine::Seen;

impl Snapshot {
    /// Writes the snapshot. Returns its length in bytes.
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// # let queue = umsg::posix::OpenOptions::new().read(true).write(true).create(true).namespace(&namespace).open("/q")?;
    /// let mut file = Vec::new();
    /// let bytes = umsg::posix::Snapshot::of(&queue)?.write(&mut file)?;
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
        let header = self.header();
        sink.put(&header.encode())?;
        sink.put_checksum()?;
        for (at, (seen, bytes)) in self.look.iter().enumerate() {
            let record = Record {
                len: seen.len as u32,
                priority: seen.key as u32,
                pid: seen.pid,
                sent: seen.sent_at,
                returns: seen.returns,
                delay: seen.delay,
            };
            sink.put(&record.encode())?;
            if header.major == MAJOR_WITH_STATES {
                sink.put(&record.delay.to_le_bytes())?;
            }
            if header.has_histories() {
                let history = self.look.history(at).map(|seen| &seen.history);
                sink.put(&encode_history(history))?;
            }
            sink.put(bytes)?;
            sink.put_checksum()?;
        }
        sink.finish()
    }

    fn header(&self) -> Header {
        let is_delayed = |seen: &Seen| seen.delay != 0;
        let has_states = Header::has_states(&self.policy, self.send_closed)
            || self.look.messages.iter().any(is_delayed);
        let major = if has_states { MAJOR_WITH_STATES } else { MAJOR };
        let has_histories = !self.look.histories.is_empty();
        Header {
            major,
            max_messages: self.max_messages,
            message_size: self.message_size,
            mode: self.mode,
            record_head: Header::known_record_head(major, has_histories) as u32,
            messages: self.look.messages.len() as u64,
            bytes: self.look.bytes.len() as u64,
            taken: self.taken,
            policy: self.policy.clone(),
            send_closed: self.send_closed,
            name: self.name.clone(),
        }
    }
}

/// A writer that counts the bytes it writes, and computes their checksum.
pub(crate) struct Sink<W: Write> {
    to: BufWriter<W>,
    checksum: Hasher,
    at: u64,
}

impl<W: Write> Sink<W> {
    pub(crate) fn new(to: W) -> Sink<W> {
        Sink {
            to: BufWriter::new(to),
            checksum: Hasher::new(),
            at: 0,
        }
    }

    /// Returns the number of bytes that were written.
    pub(crate) fn at(&self) -> u64 {
        self.at
    }

    /// Writes the trailer.
    pub(crate) fn finish(&mut self) -> io::Result<()> {
        self.put(&END)?;
        let whole = self.at + 12;
        self.put(&whole.to_le_bytes())?;
        self.put_checksum()?;
        self.to.flush()
    }

    pub(crate) fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.checksum.update(bytes);
        self.put_unsummed(bytes)
    }

    /// Writes the checksum. Later sums do not include the checksum itself, because the CRC of bytes followed by their own CRC is a constant.
    pub(crate) fn put_checksum(&mut self) -> io::Result<()> {
        let sum = self.checksum.clone().finalize();
        self.put_unsummed(&sum.to_le_bytes())
    }

    fn put_unsummed(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.to.write_all(bytes)?;
        self.at += bytes.len() as u64;
        Ok(())
    }
}
