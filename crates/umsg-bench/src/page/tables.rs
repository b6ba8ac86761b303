//! The published tables, and all rows.

use maud::{Markup, html};

use super::badge;
use crate::document::{Document, Measured};
use crate::published::{Line, Table};
use crate::row::{Goal, Row};
use crate::table::number;

pub fn published(tables: &[Table]) -> Markup {
    if tables.is_empty() {
        return html! {};
    }
    html! {
        section #published {
            h2 { "Published tables, measured again" }
            p.about {
                "What was published stands on grey: it was taken on other machines, so that only its proportions compare."
            }
            @for each in tables { (table(each)) }
        }
    }
}

fn table(table: &Table) -> Markup {
    let head = html! {
        (first_heads())
        @for name in &table.published { th { "published: " (name) } }
        @for name in &table.more { th { (name) } }
    };
    html! {
        div.published-table id=(table.id) {
            h3 { (table.title) }
            p.about { (table.origin) }
            p.about { b { "Goal." } " " (table.goal) }
            (scrolled(&head, table.lines.iter().map(line)))
            @if !table.notes.is_empty() { (notes_of(&table.notes)) }
        }
    }
}

fn line(line: &Line) -> Markup {
    let figures = [line.umsg, line.kernel, line.ratio];
    let cells = html! {
        (first_cells(&line.label, &line.unit, figures, line.resolved))
        (goal(line.goal.as_ref()))
        @for &value in &line.published { td.published { (shown(value)) } }
        @for &value in &line.more { td { (shown(value)) } }
    };
    row_of(&cells, line.resolved, &line.doubts)
}

/// Returns every row of every suite, in a section that is collapsed until the reader opens it.
pub fn all(document: &Document) -> Markup {
    html! {
        section #all {
            h2 { "All rows" }
            p.about {
                "Spread: how far apart the middle half of the rounds lies, in percent "
                "of the median. Columns of CPU time are in nanoseconds a message, of both sides' processes together, unless a note says otherwise."
            }
            @for measured in &document.suites { (suite(document, measured)) }
        }
    }
}

fn suite(
    document: &Document,
    Measured {
        suite: name, load, ..
    }: &Measured,
) -> Markup {
    let rows: Vec<&Row> = document
        .rows
        .iter()
        .filter(|row| row.suite == *name)
        .collect();
    if rows.is_empty() {
        return html! {};
    }
    let mut keys: Vec<&str> = Vec::new();
    let mut notes: Vec<&str> = Vec::new();
    for row in &rows {
        let new = row.columns.iter().map(|(key, _)| key);
        new.for_each(|key| {
            if !keys.contains(&key) {
                keys.push(key)
            }
        });
        let new = row.doubts.iter().chain(&row.notes);
        new.for_each(|note| {
            if !notes.contains(&note.as_str()) {
                notes.push(note)
            }
        });
    }
    let head = html! {
        (first_heads())
        @for key in &keys { th { (key.replace('_', " ")) } }
    };
    let others = load.others + load.stolen;
    html! {
        details id={ "suite-" (name) } {
            summary {
                (name) " "
                span { (rows.len()) " rows, " (format!("{:.0}", load.seconds)) " s, others took " (format!("{others:.2}")) " CPUs" }
            }
            (scrolled(&head, rows.iter().map(|row| full_row(row, &keys))))
            (notes_of(&notes))
        }
    }
}

fn notes_of(notes: &[impl AsRef<str>]) -> Markup {
    html! {
        ul.notes { @for note in notes { li { (note.as_ref()) } } }
    }
}

fn full_row(row: &Row, keys: &[&str]) -> Markup {
    let has = |key: &str| row.columns.iter().any(|(name, _)| name == key);
    let cells = html! {
        (first_cells(&row.row, &row.unit, [row.umsg, row.kernel, row.ratio], row.resolved))
        (goal(row.goal.as_ref()))
        @for key in keys { td { @if has(key) { (shown(row.columns.get(key))) } } }
    };
    row_of(&cells, row.resolved, &row.doubts)
}

fn first_heads() -> Markup {
    html! {
        th {}
        th.unit { "unit" }
        @for name in ["umsg", "kernel", "ratio"] { th { (name) } }
        th.goal { "goal" }
    }
}

fn first_cells(label: &str, unit: &str, figures: [Option<f64>; 3], resolved: bool) -> Markup {
    let [umsg, kernel, ratio] = figures;
    html! {
        th scope="row" { @if !resolved { "≈ " } (label) }
        td.unit { (unit) }
        td.umsg { (shown(umsg)) }
        td.kernel { (shown(kernel)) }
        td.ratio { (shown(ratio)) }
    }
}

fn goal(goal: Option<&Goal>) -> Markup {
    html! {
        td.goal {
            @if let Some(goal) = goal {
                (badge(goal.verdict))
                small { (goal.text.replace(">=", "≥").replace("<=", "≤")) }
            }
        }
    }
}

fn shown(value: Option<f64>) -> String {
    value.map_or_else(|| "–".to_owned(), |value| number(Some(value)))
}

fn row_of(cells: &Markup, resolved: bool, doubts: &[String]) -> Markup {
    let doubts = (!resolved).then(|| doubts.join("; "));
    html! {
        tr .doubtful[!resolved] title=[doubts] { (cells) }
    }
}

fn scrolled(head: &Markup, lines: impl Iterator<Item = Markup>) -> Markup {
    html! {
        div.scroll tabindex="0" {
            table {
                thead { tr { (head) } }
                tbody { @for line in lines { (line) } }
            }
        }
    }
}
