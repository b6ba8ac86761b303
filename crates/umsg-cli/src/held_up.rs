//! Explains why a queue with messages delivers none, or a queue with room accepts none: a stopped process holds the queue's lock.
//! The library reports EAGAIN or ETIMEDOUT, as for an empty or full queue, because POSIX has no other error for this case.

use std::fmt::Display;

use umsg::diagnosis::{Diagnosis, ProblemKind};
use umsg::posix::OpenError;
use umsg::{Namespace, posix, sysv};

use crate::names::Name;

/// Names the process that blocks a POSIX queue, and says what to do. Returns None if the lock is free again. If the owner of the lock is neither
/// stopped nor running, the call takes up to a second.
pub fn named(namespace: &Namespace, name: &Name) -> Option<String> {
    match posix::diagnose(namespace, name) {
        Ok(diagnosis) => of(&diagnosis, name),
        Err(OpenError::PermissionDenied) => Some(format!(
            "a stopped process may hold the queue's lock; run `umsg doctor {name}` as the queue's owner to see the process"
        )),
        Err(_) => None,
    }
}

/// Names the process that holds the lock of a System V queue, and says what to do. `label` is the queue's name for the advice.
pub fn labelled(namespace: &Namespace, id: i32, label: impl Display) -> String {
    let diagnosis = sysv::diagnose_id(namespace, id).ok();
    diagnosis
        .and_then(|diagnosis| of(&diagnosis, &label))
        .unwrap_or_else(|| {
            format!("a process has held the queue's lock for a second; see `umsg doctor {label}`")
        })
}

fn of(diagnosis: &Diagnosis, subject: impl Display) -> Option<String> {
    let mut problems = diagnosis.problems.iter();
    let stuck = problems.find(|problem| problem.kind == ProblemKind::Stuck)?;
    let (what, advice) = (&stuck.what, &stuck.advice);
    Some(format!("{what}; {advice}; see `umsg doctor {subject}`"))
}
