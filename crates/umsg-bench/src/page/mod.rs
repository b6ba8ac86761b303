//! One page with everything that a run found: no script, and nothing that has to be fetched.

mod headline;
pub mod machine;
mod plots;
mod style;
mod tables;

use crate::document::{Document, Tally};
use crate::plot::escape;
use crate::published;
use crate::row::Verdict;

pub use self::headline::HEADLINES;

/// The page.
pub fn html(document: &Document) -> String {
    let published = published::tables(document);
    let mut page = head(document);
    page += &headline::section(document);
    page += &plots::section(document);
    page += &tables::published(&published);
    page += &tables::all(document);
    page += &machine::section(document);
    page + "</main>\n</body>\n</html>\n"
}

/// All up to the first section: what was measured, when, where, and what came of it.
fn head(document: &Document) -> String {
    let Tally { met, missed, open } = document.tally();
    let day = document.date.get(..10).unwrap_or(&document.date);
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n\
         <title>umsg beside the kernel, {day}</title>\n<style>\n{}</style>\n</head>\n<body>\n\
         <header>\n<p class=\"kicker\">Benchmarks · {day}</p>\n<h1>umsg beside the kernel</h1>\n\
         <p class=\"lead\">Message queues in shared memory and the kernel's own, measured in one run on one machine: the rounds of both \
         sides alternate, and each figure is a median of {}.</p>\n\
         <ul class=\"tally\"><li class=\"met\"><b>{met}</b> goals met</li><li class=\"missed\"><b>{missed}</b> missed</li>\
         <li class=\"open\"><b>{open}</b> not resolved</li></ul>\n\
         <p class=\"where\">{} · {}{}</p>\n{}\
         <nav><a href=\"#headline\">Ratios</a><a href=\"#plots\">Plots</a><a href=\"#published\">Published tables</a>\
         <a href=\"#all\">All rows</a><a href=\"#machine\">Machine</a></nav>\n</header>\n<main>\n",
        style::CSS,
        document.rounds,
        escape(&document.machine.summary()),
        escape(&document.program()),
        if document.quick { " · quick run" } else { "" },
        warning(document),
    )
}

/// What a reader has to know before a figure.
fn warning(document: &Document) -> String {
    let all = document.rows.len();
    let doubtful = document.rows.iter().filter(|row| !row.resolved).count();
    let failed = document
        .suites
        .iter()
        .filter(|suite| suite.failure.is_some());
    let failed: Vec<&str> = failed.map(|suite| suite.suite.as_str()).collect();
    let mut sentences = Vec::new();
    if doubtful > 0 {
        sentences.push(format!(
            "{doubtful} of {all} rows are not resolved: the machine's noise is larger than what they would show. They are marked with ≈ \
             and say why."
        ));
    }
    if !failed.is_empty() {
        sentences.push(format!(
            "Not measured, because they failed: {}.",
            failed.join(", ")
        ));
    }
    match sentences.is_empty() {
        true => String::new(),
        false => format!(
            "<p class=\"warning\">{}</p>\n",
            escape(&sentences.join(" "))
        ),
    }
}

/// A class for the colour of a verdict.
fn class(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Met => "met",
        Verdict::Missed => "missed",
        Verdict::Open => "open",
    }
}

/// Met, missed or not, as a mark with a word.
fn badge(verdict: Verdict) -> String {
    let mark = match verdict {
        Verdict::Met => "✓",
        Verdict::Missed => "✗",
        Verdict::Open => "≈",
    };
    format!(
        "<span class=\"badge {}\">{mark} {}</span>",
        class(verdict),
        verdict.name()
    )
}
