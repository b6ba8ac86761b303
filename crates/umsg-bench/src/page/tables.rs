//! The published tables, and all rows.

use super::badge;
use crate::document::{Document, Measured};
use crate::plot::escape;
use crate::published::{Line, Table};
use crate::row::{Goal, Row};
use crate::table::number;

pub fn published(tables: &[Table]) -> String {
    if tables.is_empty() {
        return String::new();
    }
    let tables: Vec<String> = tables.iter().map(table).collect();
    format!(
        "<section id=\"published\">\n<h2>Published tables, measured again</h2>\n\
         <p class=\"about\">What was published stands on grey: it was taken on other machines, so that only its proportions compare.</p>\n\
         {}</section>\n",
        tables.concat()
    )
}

fn table(table: &Table) -> String {
    let mut head = first_heads();
    let published = table.published.iter();
    head.extend(published.map(|name| cell("th", "", &format!("published: {name}"))));
    head.extend(table.more.iter().map(|name| cell("th", "", name)));
    let lines: Vec<String> = table.lines.iter().map(line).collect();
    let notes = match table.notes.is_empty() {
        true => String::new(),
        false => notes_of(&table.notes),
    };
    format!(
        "<div class=\"published-table\" id=\"{}\">\n<h3>{}</h3>\n<p class=\"about\">{}</p>\n<p class=\"about\"><b>Goal.</b> {}</p>\n\
         {}{notes}</div>\n",
        table.id,
        escape(table.title),
        escape(table.origin),
        escape(table.goal),
        scrolled(&head, &lines)
    )
}

fn line(line: &Line) -> String {
    let mut cells = first_cells(
        &line.label,
        &line.unit,
        [line.umsg, line.kernel, line.ratio],
        line.resolved,
    );
    cells.push(goal(line.goal.as_ref()));
    cells.extend(
        line.published
            .iter()
            .map(|&value| figure("published", value)),
    );
    cells.extend(line.more.iter().map(|&value| figure("", value)));
    row_of(&cells, line.resolved, &line.doubts)
}

/// Every row of every suite, folded away.
pub fn all(document: &Document) -> String {
    let suites: Vec<String> = document
        .suites
        .iter()
        .map(|measured| suite(document, measured))
        .collect();
    format!(
        "<section id=\"all\">\n<h2>All rows</h2>\n<p class=\"about\">Spread: how far apart the middle half of the rounds lies, in percent \
         of the median. Columns of CPU time are in nanoseconds a message, of both sides' processes together, unless a note says otherwise.</p>\n\
         {}</section>\n",
        suites.concat()
    )
}

fn suite(
    document: &Document,
    Measured {
        suite: name, load, ..
    }: &Measured,
) -> String {
    let rows: Vec<&Row> = document
        .rows
        .iter()
        .filter(|row| row.suite == *name)
        .collect();
    if rows.is_empty() {
        return String::new();
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
    let mut head = first_heads();
    head.extend(
        keys.iter()
            .map(|key| cell("th", "", &key.replace('_', " "))),
    );
    let lines: Vec<String> = rows.iter().map(|row| full_row(row, &keys)).collect();
    format!(
        "<details id=\"suite-{name}\"><summary>{name} <span>{} rows, {:.0} s, others took {:.2} CPUs</span></summary>\n{}{}</details>\n",
        rows.len(),
        load.seconds,
        load.others + load.stolen,
        scrolled(&head, &lines),
        notes_of(&notes)
    )
}

fn notes_of(notes: &[impl AsRef<str>]) -> String {
    let notes: Vec<String> = notes
        .iter()
        .map(|note| format!("<li>{}</li>", escape(note.as_ref())))
        .collect();
    format!("<ul class=\"notes\">{}</ul>\n", notes.concat())
}

fn full_row(row: &Row, keys: &[&str]) -> String {
    let mut cells = first_cells(
        &row.row,
        &row.unit,
        [row.umsg, row.kernel, row.ratio],
        row.resolved,
    );
    cells.push(goal(row.goal.as_ref()));
    cells.extend(keys.iter().map(|key| {
        let has = row.columns.iter().any(|(name, _)| name == *key);
        match has {
            true => figure("", row.columns.get(key)),
            false => cell("td", "", ""),
        }
    }));
    row_of(&cells, row.resolved, &row.doubts)
}

fn first_heads() -> Vec<String> {
    let mut heads = vec![cell("th", "", ""), cell("th", "unit", "unit")];
    heads.extend(["umsg", "kernel", "ratio"].map(|name| cell("th", "", name)));
    heads.push(cell("th", "goal", "goal"));
    heads
}

fn first_cells(label: &str, unit: &str, figures: [Option<f64>; 3], resolved: bool) -> Vec<String> {
    let [umsg, kernel, ratio] = figures;
    let label = match resolved {
        true => label.to_owned(),
        false => format!("≈ {label}"),
    };
    vec![
        format!("<th scope=\"row\">{}</th>", escape(&label)),
        cell("td", "unit", unit),
        figure("umsg", umsg),
        figure("kernel", kernel),
        figure("ratio", ratio),
    ]
}

fn goal(goal: Option<&Goal>) -> String {
    let content = goal.map_or_else(String::new, |goal| {
        format!(
            "{}<small>{}</small>",
            badge(goal.verdict),
            escape(&goal.text.replace(">=", "≥").replace("<=", "≤"))
        )
    });
    format!("<td class=\"goal\">{content}</td>")
}

fn figure(class: &str, value: Option<f64>) -> String {
    match value {
        None => cell("td", class, "–"),
        value => cell("td", class, &number(value)),
    }
}

fn cell(tag: &str, class: &str, text: &str) -> String {
    match class {
        "" => format!("<{tag}>{}</{tag}>", escape(text)),
        class => format!("<{tag} class=\"{class}\">{}</{tag}>", escape(text)),
    }
}

fn row_of(cells: &[String], resolved: bool, doubts: &[String]) -> String {
    match resolved {
        true => format!("<tr>{}</tr>\n", cells.concat()),
        false => format!(
            "<tr class=\"doubtful\" title=\"{}\">{}</tr>\n",
            escape(&doubts.join("; ")),
            cells.concat()
        ),
    }
}

fn scrolled(head: &[String], lines: &[String]) -> String {
    format!(
        "<div class=\"scroll\" tabindex=\"0\"><table>\n<thead><tr>{}</tr></thead>\n<tbody>\n{}</tbody>\n</table></div>\n",
        head.concat(),
        lines.concat()
    )
}
