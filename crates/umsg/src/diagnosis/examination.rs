//! The steps of a diagnosis, the same for both kinds of queue. The parts that the steps examine are in [`posix`](super::posix) and
//! [`sysv`](super::sysv).

use super::findings::Findings;
use super::locks::{self, Lock};
use super::subject::Subject;
use super::users::Users;
use super::view::{self, View};
use super::{Diagnosis, arena};
use crate::error::OpenError;
use crate::namespace::Namespace;
use rustix::fd::BorrowedFd;
use std::cell::OnceCell;
use std::thread::sleep;
use std::time::Duration;

/// The time after which a suspicious value is checked again.
const AGAIN: Duration = Duration::from_millis(5);

/// Examines the queue in a file that is open for reading.
///
/// # Errors
/// `NotAQueue`, `OtherVersion`: there is nothing to diagnose; `NoMemory` if there is not enough memory for a copy.
pub(super) fn examine<S: Subject>(
    file: BorrowedFd<'_>,
    namespace: &Namespace,
    id: S::Id,
) -> Result<Diagnosis, OpenError> {
    let mut findings = Findings::default();
    let Some(layout) = S::header(file, id, &mut findings)? else {
        return Ok(Diagnosis::of_header(findings));
    };
    let (mut view, locks) = look::<S>(file, layout, namespace)?;
    let mut inside = check(file, layout, namespace, &mut view, &locks)?;
    if !inside.is_empty() {
        // A second examination confirms only lasting defects. A value that a process was changing is right by then.
        sleep(AGAIN);
        let (mut again, locks) = look::<S>(file, layout, namespace)?;
        inside.keep_common(&check(file, layout, namespace, &mut again, &locks)?);
    }
    findings.append(inside);
    let mut diagnosis = view.segment.describe(namespace);
    diagnosis.locks = locks;
    diagnosis.busy = !view.is_still;
    // `is_stuck` takes a second, so it runs once, for all locks.
    let is_stuck = OnceCell::new();
    diagnosis.conclude(findings, |lock| {
        *is_stuck.get_or_init(|| view::is_stuck::<S>(file)) && lock.is_named_in(file)
    });
    Ok(diagnosis)
}

/// Returns a copy of the queue's segment, and the states of its locks. In the copy, a lock with an impossible word is replaced by a free lock, so
/// that the data of that lock are checked, too.
fn look<S: Subject>(
    file: BorrowedFd<'_>,
    layout: S::Layout,
    namespace: &Namespace,
) -> Result<(View<S>, Vec<Lock>), OpenError> {
    let view: View<S> = view::take(file, layout, namespace)?;
    let mut locks = view.segment.locks();
    let users = || Users::of(file, &view.segment);
    locks::judge(&mut locks, file, &view.segment, users, view.is_still);
    free_wrong(&view.segment, &locks);
    Ok((view, locks))
}

fn free_wrong(copy: &impl Subject, locks: &[Lock]) {
    let words = copy.lock_words().into_iter().zip(locks);
    words
        .filter(|(_, lock)| lock.is_wrong())
        .for_each(|((_, word), _)| word.forge(0));
}

/// Returns the findings in a copy.
fn check<S: Subject>(
    file: BorrowedFd<'_>,
    layout: S::Layout,
    namespace: &Namespace,
    view: &mut View<S>,
    locks: &[Lock],
) -> Result<Findings, OpenError> {
    let segment = &view.segment;
    let mut findings = Findings::at(segment.address());
    segment.check_words(&mut findings)?;
    if !view.is_still {
        return Ok(findings);
    }
    let survey = segment.check_slots(&mut findings);
    if let Some(survey) = survey
        && !segment.is_held()
    {
        // The checks of the arena and the rehearsal read the file once more. Their findings count only if the file has not changed since the copy.
        let mut further = Findings::at(segment.address());
        arena::check(file, segment, &survey, &mut further);
        if findings.is_empty()
            && further.is_empty()
            && let Ok(copy) = S::copy(file, layout, namespace)
        {
            free_wrong(&copy, locks);
            copy.rehearse(&mut further);
        }
        view.is_still = view.is_of_now(file);
        if view.is_still {
            findings.append(further);
        }
    }
    Ok(findings)
}
