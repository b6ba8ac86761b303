//! A record of one call. It consists of [`Numbers`], the name of the queue, and the first bytes of the message.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// The longest name in a record, in bytes: the longest name of a POSIX queue, with its slash.
pub const NAME: usize = 256;
/// The maximum number of bytes of a message in a record.
pub const DATA: usize = 32;
/// The longest record, in bytes.
pub const LONGEST: usize = size_of::<Numbers>() + NAME + DATA;

/// The value of [`Numbers::depth`] if the queue's number of messages is unknown.
pub const UNKNOWN: u32 = u32::MAX;

/// The fixed part of a record, in the byte order of the machine.
///
/// | function | arguments |
/// |---|---|
/// | mq_open | flags, mode, 1 if there are attributes, mq_maxmsg, mq_msgsize |
/// | mq_close | descriptor |
/// | mq_unlink | |
/// | mq_send, mq_timedsend | descriptor, length, priority, seconds and nanoseconds of the time-out |
/// | mq_receive, mq_timedreceive | descriptor, length of the buffer, priority of the message or -1, seconds and nanoseconds of the time-out |
/// | mq_notify | descriptor, sigev_notify or -1 for NULL, sigev_signo |
/// | mq_getattr | descriptor, mq_flags, mq_maxmsg, mq_msgsize, mq_curmsgs |
/// | mq_setattr | descriptor, mq_flags |
/// | msgget | key, flags |
/// | msgsnd | identifier, type, length, flags |
/// | msgrcv | identifier, length of the buffer, wanted type, flags, type of the message |
/// | msgctl | identifier, command |
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Numbers {
    /// The time of the call: nanoseconds since 1970.
    pub began: u64,
    /// The time that the call took, in nanoseconds.
    pub took: u64,
    /// The return value of the function.
    pub result: i64,
    /// The arguments of the call as numbers, and values that the call returned through pointers. The table above gives their meaning for each
    /// function.
    pub arguments: [i64; 5],
    /// The process id, in the PID namespace of the process.
    pub pid: u32,
    /// The thread id, in the PID namespace of the thread.
    pub tid: u32,
    /// The errno of a call that failed, otherwise 0.
    pub errno: i32,
    /// The number of messages in the queue after the call, or [`UNKNOWN`].
    pub depth: u32,
    /// The number of times that the thread slept in the call: it gave up its processor to wait.
    pub slept: u32,
    /// The number of the [`Function`](crate::Function).
    pub function: u8,
    /// Always 0.
    pub reserved: u8,
    /// The length of the name in bytes.
    pub name: u16,
}

/// A record as it was received.
#[derive(Clone, Copy, Debug)]
pub struct Record<'a> {
    /// The fixed part of the record.
    pub numbers: Numbers,
    /// The name of the queue, with its slash; empty if the name is unknown.
    pub name: &'a [u8],
    /// The first bytes of the message; empty if the call has not sent or received a message.
    pub data: &'a [u8],
}

impl<'a> Record<'a> {
    /// Parses a record. Returns None if there are fewer bytes than the lengths in the record say.
    pub fn read(bytes: &'a [u8]) -> Option<Record<'a>> {
        let (numbers, rest) = Numbers::read_from_prefix(bytes).ok()?;
        let (name, data) = rest.split_at_checked(usize::from(numbers.name))?;
        Some(Record {
            numbers,
            name,
            data,
        })
    }

    /// Writes the record into a buffer, and returns the written bytes. A name or message that is too long is cut.
    pub fn write<'b>(&self, buffer: &'b mut [u8; LONGEST]) -> &'b [u8] {
        let name = &self.name[..self.name.len().min(NAME)];
        let data = &self.data[..self.data.len().min(DATA)];
        let numbers = Numbers {
            name: name.len() as u16,
            ..self.numbers
        };
        let mut end = 0;
        for part in [numbers.as_bytes(), name, data] {
            buffer[end..end + part.len()].copy_from_slice(part);
            end += part.len();
        }
        &buffer[..end]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_read_as_it_was_written_and_long_parts_are_cut() {
        let numbers = Numbers {
            began: 7,
            result: -1,
            depth: UNKNOWN,
            ..Numbers::default()
        };
        let long = [b'x'; NAME + 1];
        for (name, data) in [(&b"/q"[..], &b"job"[..]), (b"", b""), (&long, &long)] {
            let mut buffer = [0; LONGEST];
            let record = Record {
                numbers,
                name,
                data,
            };
            let bytes = record.write(&mut buffer);
            let read = Record::read(bytes).unwrap();
            assert_eq!(read.name, &name[..name.len().min(NAME)]);
            assert_eq!(read.data, &data[..data.len().min(DATA)]);
            assert_eq!((read.numbers.began, read.numbers.result), (7, -1));
        }
    }

    #[test]
    fn a_record_that_is_cut_short_is_none() {
        let mut buffer = [0; LONGEST];
        let record = Record {
            numbers: Numbers::default(),
            name: b"/queue",
            data: b"",
        };
        let bytes = record.write(&mut buffer);
        assert!(Record::read(bytes).is_some());
        for length in 0..bytes.len() {
            assert!(Record::read(&bytes[..length]).is_none(), "{length}");
        }
    }
}
