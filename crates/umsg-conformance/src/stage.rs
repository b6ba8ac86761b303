//! The parts of a case's environment that POSIX and System V queues share.

use crate::backend::{Answer, Basics, Failure};
use crate::children::{self, Carried, Child};
use crate::errno::Errno;
use crate::runner;
use crate::sys;

/// A backend, and the children and users that make the calls of a case.
pub struct Stage<B: Basics + ?Sized> {
    pub(crate) backend: Box<B>,
}

impl<B: Basics + ?Sized> Stage<B> {
    /// Returns the backend, for calls that only one file of cases makes.
    pub fn backend(&self) -> &B {
        &self.backend
    }

    /// Returns the answer of a call. Ends the case if the backend can't express the call.
    pub fn ask<T>(&self, answer: Answer<T>) -> Result<T, Errno> {
        match answer {
            Ok(value) => Ok(value),
            Err(Failure::Errno(errno)) => Err(errno),
            Err(Failure::Unsupported(reason)) => self.skip(reason),
        }
    }

    /// Ends the case, because it can't run in this environment.
    pub fn skip(&self, reason: &str) -> ! {
        runner::skip(reason)
    }

    /// Skips the case unless it runs as root.
    pub fn need_root(&self) {
        if !sys::is_root() {
            self.skip("only root can become another user");
        }
    }

    /// Forks a child that calls `work` and returns the result.
    pub fn child<'a, T: Carried>(&'a self, work: impl FnOnce() -> T) -> Child<'a, T> {
        children::start(&*self.backend, work)
    }

    /// Calls `work` in a child that runs as another user, and returns the result. Needs root.
    pub fn as_user<T: Carried>(&self, user: sys::User, work: impl FnOnce() -> T) -> T {
        self.need_root();
        children::start_as(&*self.backend, user, work).result()
    }
}
