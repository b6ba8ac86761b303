//! The figures as a document in Markdown.

use crate::document::{Document, Tally};
use crate::page::HEADLINES;
use crate::page::machine::facts;
use crate::published::{self, Line, Table};
use crate::row::{Goal, Row, Verdict};
use crate::table::number;

/// Returns the document, with `attempts` at its end.
pub fn text(document: &Document, attempts: &str) -> String {
    let mut text = beginning(document);
    text += &headlines(document);
    text += "## Published tables, measured again\n\nWhat was published was taken on other machines, so that only its proportions compare.\n\n";
    let tables = published::tables(document);
    tables.iter().for_each(|each| text += &table(each));
    text += &missed(document);
    text += &machine(document);
    let attempts = attempts.trim();
    match attempts.is_empty() {
        true => text.trim_end().to_owned() + "\n",
        false => text + attempts + "\n",
    }
}

fn beginning(document: &Document) -> String {
    let Tally { met, missed, open } = document.tally();
    let doubtful = document.rows.iter().filter(|row| !row.resolved).count();
    format!(
        "<!-- Made by `umsg-bench report`; changes here are lost. -->\n# Benchmarks\n\n\
         {}: {}, {}. {} rows, medians of {} rounds that alternate between umsg and the kernel. Of the goals {met} are met, {missed} missed, \
         and {open} not resolved. {doubtful} rows are marked ≈: the machine's noise is larger than what they would show.\n\n\
         `benchmarks.html` beside this file shows the same with plots and all rows, `benchmarks.json` has the figures of each round. \
         `cargo xtask bench-publish` makes all three.\n\n",
        document.date.get(..10).unwrap_or(&document.date),
        document.machine.summary(),
        document.program(),
        document.rows.len(),
        document.rounds,
    )
}

fn headlines(document: &Document) -> String {
    let mut lines = vec!["| | umsg | kernel | speed-up |\n|---|--:|--:|--:|\n".to_owned()];
    for headline in &HEADLINES {
        if let Some(row) = document.row(headline.suite, headline.row) {
            lines.push(format!(
                "| {}{} | {} {unit} | {} {unit} | {} |\n",
                mark(row.resolved),
                headline.label,
                number(row.umsg),
                number(row.kernel),
                number(row.ratio),
                unit = row.unit
            ));
        }
    }
    lines.concat() + "\n"
}

fn mark(resolved: bool) -> &'static str {
    if resolved { "" } else { "≈ " }
}

fn table(table: &Table) -> String {
    let mut head = ["", "unit", "umsg", "kernel", "ratio", "goal"]
        .map(str::to_owned)
        .to_vec();
    let further = table.more.len() + table.published.len();
    let rule = format!("|---|---|--:|--:|--:|---|{}", "--:|".repeat(further));
    let published = table.published.iter();
    head.extend(published.map(|name| format!("published: {name}")));
    head.extend(table.more.iter().cloned());
    let lines: Vec<String> = table.lines.iter().map(line).collect();
    let mut notes: String = table
        .notes
        .iter()
        .map(|note| format!("- {note}\n"))
        .collect();
    if !notes.is_empty() {
        notes.push('\n');
    }
    format!(
        "### {}\n\n{}\n\nGoal: {}\n\n| {} |\n{rule}\n{}\n{notes}",
        table.title,
        table.origin,
        table.goal,
        head.join(" | "),
        lines.concat()
    )
}

fn line(line: &Line) -> String {
    let mut cells = vec![
        format!("{}{}", mark(line.resolved), line.label),
        line.unit.clone(),
    ];
    let figure =
        |&value: &Option<f64>| value.map_or_else(|| "–".to_owned(), |value| number(Some(value)));
    cells.extend([line.umsg, line.kernel, line.ratio].iter().map(figure));
    cells.push(goal(line.goal.as_ref()));
    cells.extend(line.published.iter().chain(&line.more).map(figure));
    format!("| {} |\n", cells.join(" | "))
}

fn goal(goal: Option<&Goal>) -> String {
    goal.map_or_else(String::new, |Goal { text, verdict }| match verdict {
        Verdict::Missed => format!("**missed**: {text}"),
        verdict => format!("{}: {text}", verdict.name()),
    })
}

/// Lists the missed goals, each with the lowest and the highest ratio of the rounds.
fn missed(document: &Document) -> String {
    let is_missed = |row: &&Row| {
        row.goal
            .as_ref()
            .is_some_and(|goal| goal.verdict == Verdict::Missed)
    };
    let lines: Vec<String> = document
        .rows
        .iter()
        .filter(is_missed)
        .map(|row| {
            let range = row.ratio_range().map_or_else(
                || "–".to_owned(),
                |(low, high)| format!("{} to {}", number(Some(low)), number(Some(high))),
            );
            format!(
                "| {} | {} | {} {unit} | {} {unit} | {} | {range} | {} |\n",
                row.suite,
                row.row,
                number(row.umsg),
                number(row.kernel),
                number(row.ratio),
                row.goal.as_ref().map_or("", |goal| &goal.text),
                unit = row.unit
            )
        })
        .collect();
    if lines.is_empty() {
        return String::new();
    }
    format!(
        "## Goals missed\n\n| suite | row | umsg | kernel | ratio | middle half of the rounds | goal |\n|---|---|--:|--:|--:|--:|---|\n{}\n",
        lines.concat()
    )
}

fn machine(document: &Document) -> String {
    let facts: Vec<String> = facts(document)
        .into_iter()
        .map(|(name, value)| format!("| {name} | {} |\n", value.replace('|', "\\|")))
        .collect();
    format!(
        "## Machine and method\n\n| | |\n|---|---|\n{}\n",
        facts.concat()
    )
}
