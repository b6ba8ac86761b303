//! The request for records, in the memory of the traced process. `umsg trace --pid` writes the request into that memory, as a debugger would.

use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};

/// The symbol of the drop-in at the address of its [`Request`]. If the layout of the request changes, the symbol gets another name.
pub const SYMBOL: &str = "umsg_trace_request_1";

/// The environment variable that requests records from the start of a program. Its value is the path of a ring, as in [`Request::place`].
pub const VARIABLE: &str = "UMSG_TRACE";

/// The longest path, with its final zero byte.
pub const PLACE: usize = 512;

/// The words in the memory of a process that `umsg trace` writes.
#[derive(Debug)]
#[repr(C, align(8))]
pub struct Request {
    /// The drop-in's count of cancelled threads. `umsg trace` does not use this count. It is in the same 8 bytes as [`turn`](Self::turn), so that
    /// each call reads both words at once.
    pub cancellations: AtomicU32,
    /// 0 means no records. Any other value requests records, and each new value is a new request. The process stores 0 if it can't send records.
    pub turn: AtomicU32,
    /// The errno with which the process has refused the request.
    pub refused: AtomicU32,
    /// The path of the ring, up to a zero byte: the directory of a namespace, a slash, and the ring's name.
    pub place: [AtomicU8; PLACE],
}

/// The offsets of the words that `umsg trace` reads and writes.
impl Request {
    /// The offset of [`turn`](Self::turn).
    pub const TURN: usize = std::mem::offset_of!(Request, turn);
    /// The offset of [`refused`](Self::refused).
    pub const REFUSED: usize = std::mem::offset_of!(Request, refused);
    /// The offset of [`place`](Self::place).
    pub const PLACE: usize = std::mem::offset_of!(Request, place);
}

impl Request {
    /// Returns a request that asks for no records.
    pub const fn new() -> Request {
        Request {
            cancellations: AtomicU32::new(0),
            turn: AtomicU32::new(0),
            refused: AtomicU32::new(0),
            place: [const { AtomicU8::new(0) }; PLACE],
        }
    }

    /// Requests records in this process itself. A path that is too long is ignored.
    pub fn ask(&self, place: &[u8]) {
        if place.len() >= PLACE {
            return;
        }
        for (to, &byte) in self.place.iter().zip(place) {
            // Relaxed: the Release store of the turn publishes the path.
            to.store(byte, Ordering::Relaxed);
        }
        // Release: a thread that sees the turn sees the path.
        self.turn.store(1, Ordering::Release);
    }

    /// Returns the turn if records are requested.
    pub fn turn(&self) -> Option<u32> {
        // Acquire: pairs with the Release store of the turn, which makes the path visible.
        match self.turn.load(Ordering::Acquire) {
            0 => None,
            turn => Some(turn),
        }
    }

    /// Refuses a request, unless a newer request has replaced it.
    pub fn refuse(&self, turn: u32, errno: i32) {
        self.refused.store(errno.cast_unsigned(), Ordering::Relaxed);
        // Release: the command sees the errno once it sees that the turn is over. A failed exchange needs no ordering, because a newer request has
        // replaced this one.
        let _ = self
            .turn
            .compare_exchange(turn, 0, Ordering::Release, Ordering::Relaxed);
    }

    /// Returns the path of the ring.
    pub fn place(&self) -> Vec<u8> {
        // Relaxed: the Acquire load of the turn has made the path visible.
        let bytes = self.place.iter().map(|byte| byte.load(Ordering::Relaxed));
        bytes.take_while(|&byte| byte != 0).collect()
    }
}

impl Default for Request {
    fn default() -> Request {
        Request::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_has_its_path_until_the_process_gives_it_up() {
        let request = Request::new();
        assert_eq!(request.turn(), None);
        request.ask(b"/dev/shm/umsg-0/trace-1");
        assert_eq!(request.place(), b"/dev/shm/umsg-0/trace-1");
        let turn = request.turn().unwrap();
        request.turn.store(turn + 1, Ordering::Relaxed);
        request.refuse(turn, 13);
        assert_eq!(request.turn(), Some(turn + 1));
        request.refuse(turn + 1, 13);
        assert_eq!(request.turn(), None);
    }

    #[test]
    fn a_path_without_room_asks_for_nothing() {
        let request = Request::new();
        request.ask(&[b'x'; PLACE]);
        assert_eq!(request.turn(), None);
    }
}
