//! Arrays of messages that a program passes to one call, of either kind of queue.

use std::ffi::c_void;

use libc::size_t;

use crate::batch::umsg_mq_message;
use crate::error::Failure;
use crate::msg::umsg_msg_message;
use crate::pointer;

/// A C structure that describes one message of an array.
pub(crate) trait Message {
    fn data(&self) -> *mut c_void;

    /// Returns the room at `data`, in bytes, for receiving.
    fn size(&self) -> usize;

    /// Returns the length of the message, in bytes, for sending.
    fn len(&self) -> usize;
}

/// Implements [`Message`] for a structure with the members `data`, `size` and `len`.
macro_rules! message {
    ($message:ty) => {
        impl Message for $message {
            #[inline(always)]
            fn data(&self) -> *mut c_void {
                self.data
            }

            #[inline(always)]
            fn size(&self) -> usize {
                self.size
            }

            #[inline(always)]
            fn len(&self) -> usize {
                self.len
            }
        }
    };
}

message!(umsg_mq_message);
message!(umsg_msg_message);

const DATA: &str = "the data of a message";

/// Messages that a program sends.
pub(crate) struct Messages<'a, M>(&'a [M]);

impl<M: Message> Messages<'_, M> {
    /// # Safety
    /// `messages` has `n` members, each with `len` bytes at `data`. The members and the bytes stay readable and unchanged as long as the
    /// result is used. Otherwise, the pointers are addresses that a pointer check refuses.
    pub(crate) unsafe fn new(messages: *const M, n: size_t) -> Result<Self, Failure> {
        if n == 0 {
            return Ok(Messages(&[]));
        }
        pointer::check_array(messages, n, "messages")?;
        // SAFETY: by this function's contract; `check_array` has checked the address, the alignment and the length.
        Ok(Messages(unsafe { std::slice::from_raw_parts(messages, n) }))
    }

    /// Checks all lengths and addresses.
    pub(crate) fn check(
        &self,
        max: usize,
        too_long: impl FnOnce(usize) -> Failure,
    ) -> Result<(), Failure> {
        for message in self.0 {
            if message.len() > max {
                return Err(too_long(message.len()));
            }
            if message.len() != 0 {
                pointer::check(message.data(), DATA)?;
            }
        }
        Ok(())
    }

    #[inline(always)]
    pub(crate) fn count(&self) -> usize {
        self.0.len()
    }

    /// Returns a message and its bytes. The caller has called [`Self::check`].
    #[inline(always)]
    pub(crate) fn at(&self, index: usize) -> (&M, &[u8]) {
        let message = &self.0[index];
        if message.len() == 0 {
            return (message, &[]);
        }
        // SAFETY: the program promises `len` bytes, which don't change; `check` has refused bad addresses, and lengths above the queue's message
        // size.
        let bytes = unsafe { std::slice::from_raw_parts(message.data().cast(), message.len()) };
        (message, bytes)
    }
}

/// The array of a program for the messages that it receives.
pub(crate) struct Places<'a, M> {
    messages: &'a mut [M],
    /// The number of elements that are filled.
    filled: usize,
    /// The queue's longest message, in bytes.
    longest: usize,
}

impl<M: Message> Places<'_, M> {
    /// # Safety
    /// `messages` has `n` readable and writable members, each with `size` writable bytes at `data`. No other code uses them as long as the
    /// result is used. Otherwise, the pointers are addresses that a pointer check refuses.
    pub(crate) unsafe fn new(messages: *mut M, n: size_t, longest: usize) -> Result<Self, Failure> {
        let mut places = Places {
            messages: &mut [],
            filled: 0,
            longest,
        };
        if n != 0 {
            pointer::check_array(messages, n, "messages")?;
            // SAFETY: by this function's contract; `check_array` has checked the address, the alignment and the length.
            places.messages = unsafe { std::slice::from_raw_parts_mut(messages, n) };
        }
        Ok(places)
    }

    /// Checks all addresses.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        let mut with_room = self.messages.iter().filter(|message| message.size() != 0);
        with_room.try_for_each(|message| pointer::check(message.data(), DATA))
    }

    /// Returns the first element, if there is one.
    pub(crate) fn first(&self) -> Option<&M> {
        self.messages.first()
    }

    /// Returns the buffer of the next element, for a message of this length. The caller has called [`Self::check`].
    #[inline(always)]
    pub(crate) fn room(&mut self, len: usize) -> Option<&mut [u8]> {
        let message = self.messages.get(self.filled)?;
        if message.size() < len {
            return None;
        }
        if message.size() == 0 {
            return Some(&mut []);
        }
        let room = message.size().min(self.longest);
        // SAFETY: the program guarantees `size` bytes that no other code uses; `check` refused bad addresses, and `longest` limits the
        // room to a message's length.
        Some(unsafe { std::slice::from_raw_parts_mut(message.data().cast(), room) })
    }

    /// Marks the next element as filled, and returns the element.
    #[inline(always)]
    pub(crate) fn fill(&mut self) -> Option<&mut M> {
        let message = self.messages.get_mut(self.filled)?;
        self.filled += 1;
        Some(message)
    }
}
