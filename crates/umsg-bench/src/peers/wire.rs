//! A connection to a server that speaks in lines, with texts between them whose length a line has said.

use std::io::{self, BufRead as _, BufReader, Read, Write};

use crate::backends::Errno;

/// Bytes that are read at once.
const READ: usize = 1 << 16;

/// A connection, buffered both ways.
pub struct Wire<S> {
    stream: BufReader<S>,
    /// What has not been written yet.
    pub out: Vec<u8>,
    line: Vec<u8>,
}

impl<S: Read + Write> Wire<S> {
    pub fn new(stream: S) -> Self {
        Self {
            stream: BufReader::with_capacity(READ, stream),
            out: Vec::with_capacity(READ),
            line: Vec::new(),
        }
    }

    /// Writes what has not been written yet.
    pub fn write(&mut self) -> Result<(), Errno> {
        let written = self.stream.get_mut().write_all(&self.out);
        self.out.clear();
        written.map_err(|error| errno(&error))
    }

    /// The next line, without its end. Where the server complains, with a minus in front, it is an error.
    pub fn read_line(&mut self) -> Result<&[u8], Errno> {
        self.line.clear();
        match self.stream.read_until(b'\n', &mut self.line) {
            Ok(0) => Err(Errno(libc::EPIPE)),
            Ok(_) if self.line[0] == b'-' => Err(Errno(libc::EPROTO)),
            Ok(_) => Ok(self.line.trim_ascii_end()),
            Err(error) => Err(errno(&error)),
        }
    }

    /// The line that was read last: what a server complains of.
    pub fn last_line(&self) -> String {
        String::from_utf8_lossy(&self.line).trim_end().to_owned()
    }

    /// The text that follows, of this length, and the end of its line.
    pub fn read_text(&mut self, text: &mut [u8]) -> Result<(), Errno> {
        let mut end = [0; 2];
        let read = self.stream.read_exact(text);
        read.and_then(|()| self.stream.read_exact(&mut end))
            .map_err(|error| errno(&error))
    }
}

/// What decimal digits mean.
pub fn number(digits: &[u8]) -> Option<usize> {
    std::str::from_utf8(digits).ok()?.parse().ok()
}

fn errno(error: &io::Error) -> Errno {
    Errno(error.raw_os_error().unwrap_or(libc::EPROTO))
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn lines_and_texts_are_read_as_they_come_and_complaints_are_errors() {
        let (near, mut far) = UnixStream::pair().unwrap();
        let mut wire = Wire::new(near);
        far.write_all(b"$3\r\na\nb\r\n-ERR\r\n").unwrap();
        assert_eq!(wire.read_line().unwrap(), b"$3");
        let mut text = [0; 3];
        wire.read_text(&mut text).unwrap();
        assert_eq!(&text, b"a\nb");
        assert_eq!(wire.read_line(), Err(Errno(libc::EPROTO)));
        assert_eq!(wire.last_line(), "-ERR");
        wire.out.extend_from_slice(b"PING");
        wire.write().unwrap();
        let mut heard = [0; 4];
        far.read_exact(&mut heard).unwrap();
        assert_eq!(&heard, b"PING");
        drop(far);
        assert_eq!(wire.read_line(), Err(Errno(libc::EPIPE)));
    }
}
