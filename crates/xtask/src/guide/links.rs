//! Checks that each link of a document leads to a file of the checkout, and to a heading of that file.
//!
//! Links to other machines are not followed: a check must not depend on them.

use std::collections::HashMap;
use std::path::{Component, Path, PathBuf};

use super::page::{Link, Page};
use crate::workspace::Workspace;

/// Describes the links that lead nowhere.
pub fn broken(workspace: &Workspace, pages: &[Page]) -> Vec<String> {
    let anchors: HashMap<&Path, &[String]> = pages
        .iter()
        .map(|page| (&*page.path, &*page.anchors))
        .collect();
    let exists = |path: &Path| workspace.root.join(path).exists();
    let wrong = |page: &Page, link: &Link| {
        let why = fault(page, &link.to, &anchors, exists)?;
        let path = page.path.display();
        Some(format!("{path}:{}: {}: {why}", link.line, link.to))
    };
    pages
        .iter()
        .flat_map(|page| page.links.iter().filter_map(move |link| wrong(page, link)))
        .collect()
}

fn fault(
    page: &Page,
    link: &str,
    anchors: &HashMap<&Path, &[String]>,
    exists: impl Fn(&Path) -> bool,
) -> Option<&'static str> {
    if link.contains("://") || link.starts_with("mailto:") {
        return None;
    }
    let (file, anchor) = link
        .split_once('#')
        .map_or((link, None), |(file, anchor)| (file, Some(anchor)));
    let path = match file {
        "" => page.path.clone(),
        file => match plain(&page.path.with_file_name(file)) {
            Some(path) => path,
            None => return Some("leads out of the checkout"),
        },
    };
    if !exists(&path) {
        return Some("no such file");
    }
    let anchor = anchor?;
    let known = anchors.get(&*path)?;
    match known.iter().any(|known| known == anchor) {
        true => None,
        false => Some("no such heading"),
    }
}

/// Returns the path without `..`, if it stays in the checkout.
pub fn plain(path: &Path) -> Option<PathBuf> {
    let mut plain = PathBuf::new();
    for component in path.components() {
        match component {
            Component::ParentDir if plain.pop() => {}
            Component::Normal(name) => plain.push(name),
            Component::CurDir => {}
            _ => return None,
        }
    }
    Some(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_to_missing_files_and_headings_are_found() {
        let page = Page::of("docs/a.md".into(), "# One\n");
        let anchors = HashMap::from([(&*page.path, &*page.anchors)]);
        let exists = |path: &Path| path == Path::new("docs/a.md") || path == Path::new("src/x.rs");
        let fault = |link| fault(&page, link, &anchors, exists);
        for right in [
            "https://x.y/z",
            "#one",
            "a.md",
            "a.md#one",
            "../src/x.rs",
            "../src/x.rs#L3",
        ] {
            assert_eq!(fault(right), None, "{right}");
        }
        assert_eq!(fault("b.md"), Some("no such file"));
        assert_eq!(fault("a.md#two"), Some("no such heading"));
        assert_eq!(fault("../../x"), Some("leads out of the checkout"));
    }
}
