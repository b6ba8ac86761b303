//! One page with all results of a run. The page has no script, and a browser has to fetch nothing else.

mod headline;
pub mod machine;
mod plots;
mod tables;

use maud::{DOCTYPE, Markup, PreEscaped, html};

use crate::document::{Document, Tally};
use crate::published;
use crate::row::Verdict;

pub use self::headline::HEADLINES;

const CSS: &str = include_str!("style.css");

/// Returns the page.
pub fn html(document: &Document) -> String {
    let day = document.date.get(..10).unwrap_or(&document.date);
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { "umsg beside the kernel, " (day) }
                style { (PreEscaped(CSS)) }
            }
            body {
                header { (head(document, day)) }
                main {
                    (headline::section(document))
                    (plots::section(document))
                    (tables::published(&published::tables(document)))
                    (tables::all(document))
                    (machine::section(document))
                }
            }
        }
    };
    page.into_string()
}

/// Returns the page up to its first section: the subject, time and machine of the measurement, and the number of goals that are met.
fn head(document: &Document, day: &str) -> Markup {
    let Tally { met, missed, open } = document.tally();
    html! {
        p.kicker { "Benchmarks · " (day) }
        h1 { "umsg beside the kernel" }
        p.lead {
            "Message queues in shared memory and the kernel's own, measured in one run on one machine: the rounds of both "
            "sides alternate, and each figure is a median of " (document.rounds) "."
        }
        ul.tally {
            li.met { b { (met) } " goals met" }
            li.missed { b { (missed) } " missed" }
            li.open { b { (open) } " not resolved" }
        }
        p.where {
            (document.machine.summary()) " · " (document.program())
            @if document.quick { " · quick run" }
        }
        @if let Some(warning) = warning(document) { p.warning { (warning) } }
        nav {
            a href="#headline" { "Ratios" }
            a href="#plots" { "Plots" }
            a href="#published" { "Published tables" }
            a href="#all" { "All rows" }
            a href="#machine" { "Machine" }
        }
    }
}

/// Returns the warning that a reader needs before the figures.
fn warning(document: &Document) -> Option<String> {
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
    (!sentences.is_empty()).then(|| sentences.join(" "))
}

/// Returns the CSS class for the colour of a verdict.
fn class(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Met => "met",
        Verdict::Missed => "missed",
        Verdict::Open => "open",
    }
}

/// Returns a verdict as a mark with a word.
fn badge(verdict: Verdict) -> Markup {
    let mark = match verdict {
        Verdict::Met => "✓",
        Verdict::Missed => "✗",
        Verdict::Open => "≈",
    };
    html! {
        span class={ "badge " (class(verdict)) } { (mark) " " (verdict.name()) }
    }
}
