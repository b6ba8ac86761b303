//! umsg's System V queues as an existing program uses them: through the libc names of the drop-in library.

use super::identifier::{IdentifierQueue, Names, Source};
use super::register::Entry;
use crate::backends::dropin;
use crate::failure::Failure;

/// A umsg queue, used through the C functions of the drop-in.
pub type DropinQueue = IdentifierQueue<Dropin>;

pub struct Dropin;

impl Source for Dropin {
    const WHOSE: &'static str = "the drop-in's";

    fn names() -> Result<Names, Failure> {
        dropin::typed_names()
    }

    /// Records nothing: the supervisor removes the namespace directory of this run, which contains the queue's file.
    fn register() -> Result<Option<Entry>, Failure> {
        Ok(None)
    }
}
