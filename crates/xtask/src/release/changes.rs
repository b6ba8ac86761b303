//! Checks that CHANGELOG.md and README.md describe the release.

use std::fs;

use super::{Seen, VERSION};
use crate::failure::{Context as _, Result};
use crate::workspace::Workspace;

/// Checks that CHANGELOG.md has a section of the version, with a date.
pub fn section_is_dated(workspace: &Workspace) -> Result<Seen> {
    let path = workspace.root.join("CHANGELOG.md");
    let text = fs::read_to_string(&path).context(path.display())?;
    Ok(match date(&text, VERSION) {
        Some(date) => Seen::Fine(format!("has the section [{VERSION}] - {date}")),
        None => Seen::Missing(format!(
            "has no section \"## [{VERSION}] - YYYY-MM-DD\"; rename the section [Unreleased]"
        )),
    })
}

/// Returns the date in the heading of a version.
fn date<'a>(text: &'a str, version: &str) -> Option<&'a str> {
    let heading = format!("## [{version}] - ");
    let mut lines = text.lines();
    let date = lines.find_map(|line| line.strip_prefix(&heading))?.trim();
    let parts: Vec<&str> = date.split('-').collect();
    let [year, month, day] = parts[..] else {
        return None;
    };
    let is_number = |text: &str, length: usize, most: u32| {
        text.len() == length && text.parse::<u32>().is_ok_and(|n| (1..=most).contains(&n))
    };
    let is_date = is_number(year, 4, 9999) && is_number(month, 2, 12) && is_number(day, 2, 31);
    is_date.then_some(date)
}

/// Checks that README.md does not say that the version is still to come.
pub fn readme_names_a_release(workspace: &Workspace) -> Result<Seen> {
    let path = workspace.root.join("README.md");
    let text = fs::read_to_string(&path).context(path.display())?;
    // A line may end between the words.
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    Ok(match text.contains("is not released") {
        true => Seen::Missing(format!(
            "says that a version is not released; describe the state of {VERSION}"
        )),
        false => Seen::Fine("announces no later release".to_owned()),
    })
}

#[cfg(test)]
mod tests {
    use super::date;

    #[test]
    fn a_section_needs_its_version_and_a_real_date() {
        let text = "# Changelog\n\n## [0.2.0] - 2027-01-31\n\n## [0.1.0] - soon\n";
        assert_eq!(date(text, "0.2.0"), Some("2027-01-31"));
        assert_eq!(date(text, "0.1.0"), None);
        assert_eq!(date(text, "0.3.0"), None);
        for wrong in [
            "2027-13-01",
            "2027-01-00",
            "27-01-01",
            "2027-1-1",
            "2027-01-01x",
        ] {
            let text = format!("## [0.2.0] - {wrong}\n");
            assert_eq!(date(&text, "0.2.0"), None, "{wrong}");
        }
        assert_eq!(date("## [Unreleased] - 0.2.0\n", "0.2.0"), None);
    }
}
