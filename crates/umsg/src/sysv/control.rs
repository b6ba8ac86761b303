//! Looking at a queue as a whole, changing and removing it (msgctl).

use super::error::{ControlError, OpenError};
use super::permission::Rights;
use super::queue::Queue;
use super::{registry, sweep};
use crate::namespace::Namespace;
use crate::sys::thread;
use crate::typed::{Engine, Refused};

impl Queue {
    /// Removes the queue with all its messages, for everybody. Whoever waits in it is told so (EIDRM). Its key is free for
    /// another queue. Source: msgctl(2), IPC_RMID.
    ///
    /// # Errors
    /// `NotOwner` (EPERM) unless the caller is its owner, its creator, or has CAP_SYS_ADMIN; `Removed` (EIDRM) if it was removed
    /// before.
    ///
    /// # If the process dies
    /// The queue is there, or is removed; the names of a removed one are taken away by who needs them next.
    pub fn remove(self) -> Result<(), ControlError> {
        remove(&self.engine, self.namespace.as_ref(), self.id())
    }
}

/// Removes the queue with an identifier.
///
/// # Errors
/// See [`Queue::remove`]; `Open` (EINVAL, EACCES) if it can't be opened.
pub fn remove_id(namespace: &Namespace, id: i32) -> Result<(), ControlError> {
    match registry::attach_id(namespace, id) {
        Ok(segment) => remove(&Engine::new(segment), Some(namespace), id),
        // Who may not open it is not its owner.
        Err(OpenError::PermissionDenied) => Err(ControlError::NotOwner),
        Err(error) => Err(error.into()),
    }
}

fn remove(engine: &Engine, namespace: Option<&Namespace>, id: i32) -> Result<(), ControlError> {
    let may = |fixed: &_| match Rights::of(fixed).are_the_callers() {
        true => Ok(()),
        false => Err(ControlError::NotOwner),
    };
    done(engine, engine.remove(thread::current(), may))?;
    if let Some(namespace) = namespace {
        sweep::removed(namespace, id);
    }
    Ok(())
}

/// What a change under the queue's lock came to.
fn done<T>(
    engine: &Engine,
    outcome: Result<Result<T, ControlError>, Refused>,
) -> Result<T, ControlError> {
    match outcome {
        Ok(result) => result,
        Err(Refused::Removed) => Err(ControlError::Removed),
        Err(Refused::Trouble(trouble)) => {
            if trouble == crate::error::Trouble::Damaged {
                engine.note_damage();
            }
            Err(trouble.into())
        }
        // Others are for those who wait, or want a message.
        Err(_) => Err(ControlError::Busy),
    }
}
