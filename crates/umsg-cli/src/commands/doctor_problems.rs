//! Groups the problems for the text of `umsg doctor`: each kind of corruption appears once, with a count, and each piece of advice appears once.

use umsg::diagnosis::Problem;

/// A line's title and its text.
type Line = (&'static str, String);

/// Returns the lines of the problems. Advice that several problems share is printed once, below these problems.
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

/// Returns whether both problems are corrupted bytes that fail the same check.
fn is_like(one: &Problem, other: &Problem) -> bool {
    match (&one.finding, &other.finding) {
        (Some(one), Some(other)) => one.check == other.check,
        _ => false,
    }
}

/// Returns a line with the number of further places that have the same problem as `first`. Returns None if there is no further place.
fn others(first: &Problem, problems: &[Problem]) -> Option<Line> {
    let places = problems.iter().filter(|other| is_like(first, other));
    let offsets = places.filter_map(|other| other.finding.as_ref().map(|found| found.offset));
    let (more, last) = (offsets.clone().count().checked_sub(1)?, offsets.max()?);
    let text = match more {
        0 => return None,
        1 => format!("the same problem at another place, byte {last}"),
        _ => format!("the same problem at {more} more places, the last at byte {last}"),
    };
    Some(("", text))
}
