//! The section of the page about the machine on which the figures were measured, and about the method.

use maud::{Markup, html};

use crate::document::Document;

pub fn section(document: &Document) -> Markup {
    html! {
        section #machine {
            h2 { "Machine and method" }
            p.about {
                "Rounds of umsg and of the kernel alternate, so that whatever else the machine does meets both; a figure is the "
                "median of its rounds. A row is not resolved if the middle half of a side's rounds lies more than 25 % apart, if the rounds do "
                "not agree whether its goal is met, or if others took more than a quarter of a CPU meanwhile."
            }
            dl {
                @for (name, value) in facts(document) { dt { (name) } dd { (value) } }
            }
        }
    }
}

/// Returns facts about the run and its machine, as pairs of a name and a value. The page and the document in Markdown show the same facts.
pub fn facts(document: &Document) -> Vec<(String, String)> {
    let machine = &document.machine;
    let kind = if machine.virtual_machine {
        "a virtual machine"
    } else {
        "no hypervisor"
    };
    let cpus: Vec<String> = machine.cpus_used.iter().map(usize::to_string).collect();
    let mut facts = vec![
        (
            "Date".to_owned(),
            document.date.replace('T', " ").replace('Z', " UTC"),
        ),
        ("Program".to_owned(), document.program()),
        ("Run".to_owned(), run(document)),
        (
            "Processor".to_owned(),
            format!("{}, {}, {kind}", machine.cpu, machine.architecture),
        ),
        (
            "CPUs".to_owned(),
            format!("{}, measured on {}", machine.cpus, cpus.join(" and ")),
        ),
        ("Memory".to_owned(), format!("{} MiB", machine.memory_mib)),
        ("Kernel".to_owned(), format!("Linux {}", machine.kernel)),
        (
            "Clock".to_owned(),
            format!(
                "{}, {:.0} ns a reading",
                machine.clock_source, machine.clock_ns
            ),
        ),
        (
            "Priority".to_owned(),
            if machine.hurried {
                "nice -20"
            } else {
                "nice 0"
            }
            .to_owned(),
        ),
        ("Load by others".to_owned(), loads(document)),
    ];
    let joined = |map: &std::collections::BTreeMap<String, String>| {
        let each: Vec<String> = map
            .iter()
            .map(|(name, value)| format!("{name} {value}"))
            .collect();
        each.join(", ")
    };
    facts.push((
        "Limits of the kernel's queues".to_owned(),
        joined(&machine.limits),
    ));
    facts.push(("Mitigations".to_owned(), mitigations(document)));
    if !document.left_out.is_empty() {
        facts.push(("Left out".to_owned(), document.left_out.join("; ")));
    }
    let failed = document.suites.iter().filter_map(|suite| {
        let failure = suite.failure.as_ref()?;
        Some((format!("Failed: {}", suite.suite), failure.clone()))
    });
    facts.extend(failed);
    facts
}

fn run(document: &Document) -> String {
    let Document {
        rounds,
        seconds,
        quick,
        ..
    } = document;
    let minutes = seconds / 60.0;
    let kind = if *quick { "quick, " } else { "" };
    format!("{kind}{rounds} rounds, {minutes:.1} minutes")
}

/// Returns the smallest and the largest share of the processors that other processes took during a suite.
fn loads(document: &Document) -> String {
    let range = |share: fn(&crate::company::Load) -> f64| {
        let shares = document.suites.iter().map(|suite| share(&suite.load));
        let (low, high) = shares.fold((f64::INFINITY, 0.0_f64), |(low, high), share| {
            (low.min(share), high.max(share))
        });
        format!("{low:.2} to {high:.2}")
    };
    format!(
        "{} CPUs by other processes, {} by other machines",
        range(|load| load.others),
        range(|load| load.stolen)
    )
}

/// Returns the vulnerabilities with a mitigation. The vulnerabilities that are "Not affected" are only named.
fn mitigations(document: &Document) -> String {
    let affects = |state: &str| state != "Not affected";
    let all = || document.machine.mitigations.iter();
    let mut texts: Vec<String> = all()
        .filter(|(_, state)| affects(state))
        .map(|(name, state)| format!("{name}: {state}"))
        .collect();
    let others = all().filter(|(_, state)| !affects(state)).count();
    if others > 0 {
        texts.push(format!("{others} others: not affected"));
    }
    texts.join("; ")
}
