//! The rows of the list: sorted, filtered, and as a tree.

use std::collections::HashSet;

use super::columns::{Column, Shown};
use super::rates::{Row, View};
use crate::commands::sample::figures::Kind;
use crate::output::owner::Owners;

/// A line of the list.
#[derive(Clone, Debug)]
pub struct Line {
    pub key: Key,
    pub shown: Shown,
    /// The number of nested groups that contain the line.
    pub depth: u16,
    /// Whether the members of a group are hidden; None for a queue.
    pub folded: Option<bool>,
}

/// Identifies the queue or group of a line, from one refresh to the next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Key {
    Queue(Kind, String),
    /// A queue without figures.
    Refused(Kind, String),
    Group(String),
}

/// The settings that decide the order and the choice of the lines.
#[derive(Clone, Debug)]
pub struct Order {
    pub sort: Column,
    pub reverse: bool,
    pub tree: bool,
    /// The text that a shown name must contain, without regard to case.
    pub filter: String,
    /// The groups whose members are hidden.
    pub folded: HashSet<String>,
}

/// Sorts the rows of a report.
pub fn sort(view: &mut View, (by, reverse): (Column, bool), owners: &Owners) {
    let now = view.at;
    let mut keyed: Vec<(Shown, Row)> = view
        .rows
        .drain(..)
        .map(|row| (Shown::of(&row, now, owners), row))
        .collect();
    keyed.sort_by(|(one, _), (other, _)| directed(by, reverse, one, other));
    view.rows.extend(keyed.into_iter().map(|(_, row)| row));
}

fn directed(by: Column, reverse: bool, one: &Shown, other: &Shown) -> std::cmp::Ordering {
    let order = by.compare(one, other);
    if reverse { order.reverse() } else { order }
}

impl Order {
    /// Returns the lines of the list.
    pub fn lines(&self, view: &View, owners: &Owners) -> Vec<Line> {
        let queues = view.rows.iter().map(|row| {
            let of = &row.figures;
            let key = Key::Queue(of.kind, of.queue.to_string());
            (key, Shown::of(row, view.at, owners))
        });
        let refused = view.refused.iter().map(|refused| {
            let key = Key::Refused(refused.kind, refused.queue.clone());
            (key, Shown::refused(refused))
        });
        let filter = self.filter.to_lowercase();
        let meant = queues
            .chain(refused)
            .filter(|(_, shown)| shown.name.to_lowercase().contains(&filter));
        let lines = meant.map(|(key, shown)| Line {
            key,
            shown,
            depth: 0,
            folded: None,
        });
        let mut lines: Vec<Line> = lines.collect();
        match self.tree {
            true => {
                lines.sort_by(|one, other| one.shown.name.cmp(&other.shown.name));
                self.grouped(lines, 0, 0)
            }
            false => {
                lines.sort_by(|one, other| self.compare(one, other));
                lines
            }
        }
    }

    fn compare(&self, one: &Line, other: &Line) -> std::cmp::Ordering {
        directed(self.sort, self.reverse, &one.shown, &other.shown)
    }

    /// Returns the lines of a group, with further groups among them. The names of its members have the first `common` bytes in common.
    fn grouped(&self, lines: Vec<Line>, common: usize, depth: u16) -> Vec<Line> {
        let mut parts: Vec<Vec<Line>> = Vec::new();
        for line in lines {
            let prefix = prefix(&line.shown.name, common);
            let joins = parts.last().is_some_and(|part| {
                part.first().is_some_and(|first| {
                    prefix.is_some() && self::prefix(&first.shown.name, common) == prefix
                })
            });
            match parts.last_mut().filter(|_| joins) {
                Some(part) => part.push(line),
                None => parts.push(vec![line]),
            }
        }
        // A group is sorted by its first line, which is the line of the group and has the sums of the members.
        let mut groups: Vec<Vec<Line>> = parts
            .into_iter()
            .map(|part| self.group(part, common, depth))
            .collect();
        groups.sort_by(|one, other| match (one.first(), other.first()) {
            (Some(one), Some(other)) => self.compare(one, other),
            _ => std::cmp::Ordering::Equal,
        });
        groups.into_iter().flatten().collect()
    }

    /// Returns one line, or a group with its members.
    fn group(&self, mut members: Vec<Line>, common: usize, depth: u16) -> Vec<Line> {
        let prefix = members
            .first()
            .filter(|_| members.len() > 1)
            .and_then(|first| prefix(&first.shown.name, common))
            .map(str::to_owned);
        let Some(mut name) = prefix else {
            members.iter_mut().for_each(|line| line.depth = depth);
            return members;
        };
        // If all members share a longer prefix, that prefix becomes the name of this group. Otherwise the group would contain only one other group.
        while let Some(longer) = self::prefix(&members[0].shown.name, name.len()) {
            if !members
                .iter()
                .all(|line| line.shown.name.starts_with(longer))
            {
                break;
            }
            name = longer.to_owned();
        }
        let mut shown = Shown {
            name: format!("{name}*"),
            ..Shown::default()
        };
        members.iter().for_each(|line| shown.add(&line.shown));
        let folded = self.folded.contains(&name);
        let common = name.len();
        let mut lines = vec![Line {
            key: Key::Group(name),
            shown,
            depth,
            folded: Some(folded),
        }];
        if !folded {
            lines.extend(self.grouped(members, common, depth + 1));
        }
        lines
    }
}

/// Returns the beginning of a name up to the first separator behind the first `common` bytes, with at least one character before the separator.
/// Returns None if the rest of the name has no separator, or only as its last character.
fn prefix(name: &str, common: usize) -> Option<&str> {
    let rest = name.get(common..)?;
    let is_separator = |c: char| matches!(c, '.' | '-' | '_' | ':' | '/');
    let first = rest.char_indices().skip(1).find(|(_, c)| is_separator(*c));
    let end = common + first?.0 + 1;
    (end < name.len()).then(|| &name[..end])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::sample::figures::Figures;
    use std::sync::Arc;
    use std::time::SystemTime;

    fn view(names: &[(&str, u64)]) -> View {
        let rows = names.iter().map(|&(name, messages)| Row {
            figures: Figures {
                queue: Arc::from(name),
                messages,
                ..Figures::nothing(Kind::Posix)
            },
            rates: None,
            past: Arc::default(),
        });
        View {
            at: SystemTime::now(),
            seconds: None,
            rows: rows.collect(),
            refused: Vec::new(),
        }
    }

    fn order(tree: bool, sort: Column) -> Order {
        Order {
            sort,
            reverse: false,
            tree,
            filter: String::new(),
            folded: HashSet::new(),
        }
    }

    fn names(order: &Order, view: &View) -> Vec<String> {
        let lines = order.lines(view, &Owners::new()).into_iter();
        lines
            .map(|line| format!("{}{}", " ".repeat(line.depth.into()), line.shown.name))
            .collect()
    }

    #[test]
    fn names_with_a_beginning_in_common_are_a_group_with_its_sum() {
        let view = view(&[
            ("/jobs.mail.in", 1),
            ("/jobs.mail.out", 2),
            ("/jobs.print", 30),
            ("/log", 5),
            ("/shop-eu.orders", 6),
            ("/shop-eu.bills", 7),
        ]);
        let mut order = order(true, Column::Name);
        let wanted = [
            "/jobs.*",
            " /jobs.mail.*",
            "  /jobs.mail.in",
            "  /jobs.mail.out",
            " /jobs.print",
            "/log",
            "/shop-eu.*",
            " /shop-eu.bills",
            " /shop-eu.orders",
        ];
        assert_eq!(names(&order, &view), wanted);
        let lines = order.lines(&view, &Owners::new());
        assert_eq!(lines[0].shown.messages, Some(33.0));
        assert_eq!(lines[1].shown.messages, Some(3.0));
        order.folded.insert("/jobs.".to_owned());
        assert_eq!(names(&order, &view)[..2], ["/jobs.*", "/log"]);
        order.sort = Column::Messages;
        assert_eq!(names(&order, &view)[..2], ["/jobs.*", "/shop-eu.*"]);
    }

    #[test]
    fn the_list_is_sorted_and_filtered() {
        let view = view(&[("/b", 1), ("/A", 3), ("/ab", 2)]);
        let mut order = order(false, Column::Messages);
        assert_eq!(names(&order, &view), ["/A", "/ab", "/b"]);
        order.reverse = true;
        assert_eq!(names(&order, &view), ["/b", "/ab", "/A"]);
        order.filter = "a".to_owned();
        assert_eq!(names(&order, &view), ["/ab", "/A"]);
    }

    #[test]
    fn any_name_has_a_prefix_or_none() {
        for name in ["", "/", "//", "/.", "/ä.ö", "..", "key:0x12", "/a.", "/a.b"] {
            for common in 0..=name.len() {
                if let Some(prefix) = prefix(name, common) {
                    assert!(prefix.len() > common && prefix.len() < name.len());
                }
            }
        }
        assert_eq!(prefix("/ä.ö", 0), Some("/ä."));
    }
}
