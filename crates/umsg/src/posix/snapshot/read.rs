//! Reading of snapshots: every byte is checked, and the allocated memory is in proportion to the bytes that were read.

use super::Snapshot;
use super::error::{SnapshotError, SnapshotPart};
use super::format::{
    CHECKSUM, END, Header, LONGEST_HEADER, MAGIC, MAJOR, MAJOR_WITH_STATES, Record, START,
    decode_history, part,
};
use crc32fast::Hasher;
use std::io::{self, BufReader, Read};
use umsg_shm::posix_engine::segment::PRIORITIES;
use umsg_shm::posix_engine::{PeekedMessages, Seen, SeenHistory};

/// The maximum number of bytes for which memory is allocated before the bytes are read.
const STEP: usize = 1 << 16;

impl Snapshot {
    /// Reads a snapshot, to the end of the input.
    ///
    /// Memory is allocated in proportion to the bytes read, not to the length that the input claims.
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// # let queue = umsg::posix::OpenOptions::new().read(true).write(true).create(true).namespace(&namespace).open("/q")?;
    /// let mut file = Vec::new();
    /// queue.snapshot(&mut file)?;
    /// let snapshot = umsg::posix::Snapshot::read(&mut &file[..])?;
    /// assert_eq!(snapshot.info().messages, 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`SnapshotError::NotASnapshot`], `OtherVersion`, `Truncated`, `Damaged`, `NoMemory`, `Read`. A file that was truncated,
    /// or with an altered byte, is refused.
    pub fn read(from: impl Read) -> Result<Snapshot, SnapshotError> {
        let mut source = Source::new(from);
        let header = source.header()?;
        let mut look = PeekedMessages::default();
        for position in 0..header.messages {
            source.enter(SnapshotPart::Message(position));
            source.message(&header, &mut look)?;
        }
        source.enter(SnapshotPart::Trailer);
        if look.bytes.len() as u64 != header.bytes {
            return Err(source.damaged("the total length of the messages differs from the header"));
        }
        source.trailer()?;
        Ok(Snapshot {
            max_messages: header.max_messages,
            message_size: header.message_size,
            mode: header.mode,
            taken: header.taken,
            policy: header.policy,
            send_closed: header.send_closed,
            name: header.name,
            look,
        })
    }
}

/// A reader that counts the bytes it reads, and computes their checksum.
pub(crate) struct Source<R> {
    from: BufReader<R>,
    checksum: Hasher,
    at: u64,
    /// The part that is being read, and its offset.
    part: SnapshotPart,
    began: u64,
}

impl<R: Read> Source<R> {
    pub(crate) fn new(from: R) -> Source<R> {
        Source {
            from: BufReader::new(from),
            checksum: Hasher::new(),
            at: 0,
            part: SnapshotPart::Header,
            began: 0,
        }
    }

    fn header(&mut self) -> Result<Header, SnapshotError> {
        let (major, rest) = self.fields(&[MAJOR_WITH_STATES, MAJOR], Header::least)?;
        Header::decode(major, &rest).map_err(|what| self.damaged(what))
    }

    /// Reads a header of one of these major versions, the highest first. The header must have at least the length that `least` gives for its version.
    /// Returns the version and the bytes of the fields.
    pub(crate) fn fields(
        &mut self,
        versions: &[u16],
        least: impl FnOnce(u16) -> usize,
    ) -> Result<(u16, Vec<u8>), SnapshotError> {
        self.magic()?;
        let start: [u8; START - MAGIC.len()] = self.take()?;
        let found = u16::from_le_bytes(part(&start, 0));
        let len = u32::from_le_bytes(part(&start, 4)) as usize;
        if !versions.contains(&found) {
            let expected = versions[0];
            return Err(SnapshotError::OtherVersion { found, expected });
        }
        if !(least(found)..=LONGEST_HEADER).contains(&len) {
            return Err(self.damaged("the header's length is out of range"));
        }
        let mut rest = Vec::new();
        self.append(len - START - CHECKSUM, &mut rest)?;
        self.check_sum()?;
        Ok((found, rest))
    }

    /// Reads the magic number. An input that is too short and has wrong bytes is reported as no snapshot, not as a truncated snapshot.
    fn magic(&mut self) -> Result<(), SnapshotError> {
        let mut magic = [0; MAGIC.len()];
        let came = self.read(&mut magic)?;
        if magic[..came] != MAGIC[..came] {
            return Err(SnapshotError::NotASnapshot);
        }
        if came < magic.len() {
            return Err(self.truncated());
        }
        self.checksum.update(&magic);
        Ok(())
    }

    fn message(&mut self, header: &Header, look: &mut PeekedMessages) -> Result<(), SnapshotError> {
        let mut record = Record::decode(&self.take()?);
        if header.major == MAJOR_WITH_STATES {
            record.delay = u64::from_le_bytes(self.take()?);
        }
        let has_histories = header.has_histories();
        let history = match has_histories {
            true => decode_history(&self.take()?).ok_or_else(|| {
                self.damaged("the name of the message's original queue is too long")
            })?,
            false => None,
        };
        let known = Header::known_record_head(header.major, has_histories);
        self.skip(header.record_head as usize - known)?;
        if record.len > header.message_size {
            return Err(
                self.damaged("the message's length is greater than the queue's message size")
            );
        }
        self.append(record.len as usize, &mut look.bytes)?;
        self.check_sum()?;
        if record.priority as usize >= PRIORITIES {
            return Err(self.damaged("the message's priority is out of range"));
        }
        look.messages
            .try_reserve(1)
            .map_err(|_| SnapshotError::NoMemory)?;
        if let Some(history) = history {
            look.histories
                .try_reserve(1)
                .map_err(|_| SnapshotError::NoMemory)?;
            look.histories.push(SeenHistory {
                position: look.messages.len(),
                id: 0,
                history,
            });
        }
        look.messages.push(Seen {
            id: None,
            len: record.len as usize,
            key: record.priority as usize,
            pid: record.pid,
            sent_at: record.sent,
            lives_since: record.sent,
            returns: record.returns,
            due: 0,
            delay: record.delay,
        });
        Ok(())
    }

    pub(crate) fn trailer(&mut self) -> Result<(), SnapshotError> {
        if self.take()? != END {
            return Err(self.damaged("the mark of the trailer is missing"));
        }
        let whole = u64::from_le_bytes(self.take()?);
        self.check_sum()?;
        if whole != self.at {
            return Err(self.damaged("the file's length differs from the length in the trailer"));
        }
        if self.read(&mut [0])? != 0 {
            return Err(self.damaged("bytes follow the trailer"));
        }
        Ok(())
    }

    pub(crate) fn enter(&mut self, part: SnapshotPart) {
        self.part = part;
        self.began = self.at;
    }

    pub(crate) fn take<const N: usize>(&mut self) -> Result<[u8; N], SnapshotError> {
        let mut bytes = [0; N];
        self.fill(&mut bytes)?;
        Ok(bytes)
    }

    /// Appends the next `len` bytes of the input to `to`.
    pub(crate) fn append(&mut self, len: usize, to: &mut Vec<u8>) -> Result<(), SnapshotError> {
        let mut left = len;
        while left != 0 {
            let (start, step) = (to.len(), left.min(STEP));
            to.try_reserve(step).map_err(|_| SnapshotError::NoMemory)?;
            to.resize(start + step, 0);
            self.fill(&mut to[start..])?;
            left -= step;
        }
        Ok(())
    }

    /// Skips bytes that a later version added.
    pub(crate) fn skip(&mut self, len: usize) -> Result<(), SnapshotError> {
        self.append(len, &mut Vec::new())
    }

    pub(crate) fn check_sum(&mut self) -> Result<(), SnapshotError> {
        let expected = self.checksum.clone().finalize();
        let mut found = [0; CHECKSUM];
        self.fill_unsummed(&mut found)?;
        if u32::from_le_bytes(found) != expected {
            return Err(self.damaged("the checksum does not match"));
        }
        Ok(())
    }

    fn fill(&mut self, buffer: &mut [u8]) -> Result<(), SnapshotError> {
        self.fill_unsummed(buffer)?;
        self.checksum.update(buffer);
        Ok(())
    }

    fn fill_unsummed(&mut self, buffer: &mut [u8]) -> Result<(), SnapshotError> {
        if self.read(buffer)? < buffer.len() {
            return Err(self.truncated());
        }
        Ok(())
    }

    /// Reads available bytes, up to the buffer's length.
    fn read(&mut self, buffer: &mut [u8]) -> Result<usize, SnapshotError> {
        let mut came = 0;
        while came < buffer.len() {
            match self.from.read(&mut buffer[came..]) {
                Ok(0) => break,
                Ok(more) => came += more,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(SnapshotError::Read(error)),
            }
        }
        self.at += came as u64;
        Ok(came)
    }

    fn truncated(&self) -> SnapshotError {
        SnapshotError::Truncated {
            part: self.part,
            at: self.at,
        }
    }

    pub(crate) fn damaged(&self, what: &'static str) -> SnapshotError {
        SnapshotError::Damaged {
            part: self.part,
            at: self.began,
            what,
        }
    }
}
