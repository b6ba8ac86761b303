//! The steps of a diagnosis, the same for both kinds of queue. What they look at is in [`posix`](super::posix) and [`sysv`](super::sysv).

use super::findings::Findings;
use super::subject::Subject;
use super::view::{self, View};
use super::{Diagnosis, arena};
use crate::error::OpenError;
use crate::namespace::Namespace;
use rustix::fd::BorrowedFd;
use std::thread::sleep;
use std::time::Duration;

/// After so long, what seemed to be wrong is looked at again.
const AGAIN: Duration = Duration::from_millis(5);

/// Looks at the queue in a file that is open for reading.
///
/// # Errors
/// `NotAQueue`, `OtherVersion`: there is nothing to diagnose; `NoMemory` if there is none for a copy.
pub(super) fn examine<S: Subject>(
    file: BorrowedFd<'_>,
    namespace: &Namespace,
    id: S::Id,
) -> Result<Diagnosis, OpenError> {
    let mut findings = Findings::default();
    let Some(layout) = S::header(file, id, &mut findings)? else {
        // All that can be said if nothing is known but that the header is wrong.
        let mut diagnosis = Diagnosis::default();
        diagnosis.conclude(findings, || false);
        return Ok(diagnosis);
    };
    let view: View<S> = view::take(file, layout)?;
    let mut inside = check(file, layout, &view)?;
    if !inside.is_empty() {
        // What is wrong for good is found again.
        sleep(AGAIN);
        let again: View<S> = view::take(file, layout)?;
        inside.keep_common(&check(file, layout, &again)?);
    }
    findings.append(inside);
    let mut diagnosis = view.segment.describe(namespace);
    diagnosis.busy = !view.is_still;
    diagnosis.conclude(findings, || view::is_stuck::<S>(file));
    Ok(diagnosis)
}

/// What is wrong with the bytes of a copy.
fn check<S: Subject>(
    file: BorrowedFd<'_>,
    layout: S::Layout,
    view: &View<S>,
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
        arena::check(file, segment, &survey, &mut findings);
        if findings.is_empty()
            && let Ok(copy) = S::copy(file, layout)
        {
            copy.rehearse(&mut findings);
        }
    }
    Ok(findings)
}
