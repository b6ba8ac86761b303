//! How `umsg doctor` tells people of many problems: one kind of damage once, with a count, and one advice once.

use umsg::diagnosis::Problem;

/// A line's title and text.
type Line = (&'static str, String);

/// The problems, and below each, or below those of one advice, what to do.
pub fn told(problems: &[Problem]) -> Vec<Line> {
    let mut lines = Vec::new();
    let firsts: Vec<&Problem> = problems
        .iter()
        .enumerate()
        .filter(|(n, problem)| !problems[..*n].iter().any(|other| is_like(other, problem)))
        .map(|(_, problem)| problem)
        .collect();
    for (n, problem) in firsts.iter().enumerate() {
        lines.push(("wrong", problem.what.clone()));
        lines.extend(others(problem, problems));
        let next = firsts.get(n + 1).map(|next| &next.advice);
        if next != Some(&problem.advice) {
            lines.push(("  to do", problem.advice.clone()));
        }
    }
    lines
}

/// Whether both are about bytes that fail the same check.
fn is_like(one: &Problem, other: &Problem) -> bool {
    match (&one.finding, &other.finding) {
        (Some(one), Some(other)) => one.check == other.check,
        _ => false,
    }
}

/// In how many other places the same is wrong.
fn others(first: &Problem, problems: &[Problem]) -> Option<Line> {
    let places = problems.iter().filter(|other| is_like(first, other));
    let offsets = places.filter_map(|other| other.finding.as_ref().map(|found| found.offset));
    let (more, last) = (offsets.clone().count().checked_sub(1)?, offsets.max()?);
    let text = match more {
        0 => return None,
        1 => format!("the same at another place, byte {last}"),
        _ => format!("the same at {more} more places, the last at byte {last}"),
    };
    Some(("", text))
}
