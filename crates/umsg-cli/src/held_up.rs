//! Why a queue that has messages gives none, or one that has room takes none: a process is stopped in the middle of a call, with
//! the queue's lock. The library says EAGAIN and ETIMEDOUT of that as of an empty or a full queue, for POSIX has no other numbers; whoever
//! types a command wants to hear which it is.

use std::fmt::Display;

use umsg::diagnosis::{Diagnosis, ProblemKind};
use umsg::posix::OpenError;
use umsg::{Namespace, posix, sysv};

use crate::names::Name;

/// Who holds up a POSIX queue that has what was asked of it, and what to do about that. None if no process does by now. Takes a moment, and a
/// second where the lock's owner is not stopped and does not go on.
pub fn named(namespace: &Namespace, name: &Name) -> Option<String> {
    match posix::diagnose(namespace, name) {
        Ok(diagnosis) => of(&diagnosis, name),
        Err(OpenError::PermissionDenied) => Some(format!(
            "a process may be stopped with the queue's lock; `umsg doctor {name}`, run by the queue's owner, says which"
        )),
        Err(_) => None,
    }
}

/// Who holds up a System V queue whose lock was not to be had, which its owner calls `label`; and what to do about that.
pub fn labelled(namespace: &Namespace, id: i32, label: impl Display) -> String {
    let diagnosis = sysv::diagnose_id(namespace, id).ok();
    diagnosis
        .and_then(|diagnosis| of(&diagnosis, &label))
        .unwrap_or_else(|| {
            format!("the queue's lock was not let go for a second; see `umsg doctor {label}`")
        })
}

fn of(diagnosis: &Diagnosis, subject: impl Display) -> Option<String> {
    let mut problems = diagnosis.problems.iter();
    let stuck = problems.find(|problem| problem.kind == ProblemKind::Stuck)?;
    let (what, advice) = (&stuck.what, &stuck.advice);
    Some(format!("{what}; {advice}; see `umsg doctor {subject}`"))
}
