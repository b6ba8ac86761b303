//! The plots of the page. Each plot finds its rows by their names.

use maud::{Markup, html};

use crate::document::Document;
use crate::found::{KillTrial, Latencies};
use crate::plot::{Axis, Bar, Bars, Plot, Scale, Series, Who};
use crate::row::Row;

const DEPTHS: [f64; 7] = [1.0, 10.0, 100.0, 1e3, 1e4, 1e5, 1e6];
const SIZES: [f64; 3] = [64.0, 1024.0, 8192.0];

/// Returns the plots that have data.
pub fn section(document: &Document) -> Markup {
    let mut plots = vec![depth(document), sizes(document), threads(document)];
    plots.extend([senders(document), counters(document)]);
    for place in ["threads", "processes"] {
        for end in ["sender", "receiver"] {
            plots.push(latencies(document, place, end));
        }
    }
    let figures: Vec<Markup> = plots
        .iter()
        .filter_map(Plot::figure)
        .chain(kills(document, "sender").figure())
        .chain(kills(document, "receiver").figure())
        .collect();
    if figures.is_empty() {
        return html! {};
    }
    html! {
        section #plots {
            h2 { "Plots" }
            p.about {
                "All axes are logarithmic. Blue with round marks is umsg, orange with square ones the kernel."
            }
            div.plots { @for figure in figures { (figure) } }
        }
    }
}

/// Pairs of a row's parameter, as a number, and the row's figure.
type Points = Vec<(f64, Option<f64>)>;

/// Returns one figure of each of the rows that differ only in one number.
fn figures(
    document: &Document,
    suite: &str,
    values: &[f64],
    name: impl Fn(f64) -> String,
    figure: impl Fn(&Row) -> Option<f64>,
) -> Points {
    let of = |&value: &f64| (value, document.row(suite, &name(value)).and_then(&figure));
    values.iter().map(of).collect()
}

/// Returns the points of umsg and of the kernel.
fn both(
    document: &Document,
    suite: &str,
    values: &[f64],
    name: impl Fn(f64) -> String,
) -> (Points, Points) {
    (
        figures(document, suite, values, &name, |row| row.umsg),
        figures(document, suite, values, &name, |row| row.kernel),
    )
}

fn axis(label: &str, scale: Scale) -> Axis {
    Axis {
        label: label.to_owned(),
        scale,
    }
}

fn depth(document: &Document) -> Plot {
    let mut series = Vec::new();
    for (style, order) in ["constant", "random"].into_iter().enumerate() {
        let name = |depth: f64| format!("{order}, {depth}");
        let (umsg, kernel) = both(document, "depth", &DEPTHS, name);
        series.push(Series::new(
            format!("umsg, {order}"),
            Who::Umsg,
            style,
            umsg,
        ));
        series.push(Series::new(
            format!("kernel, {order}"),
            Who::Kernel,
            style,
            kernel,
        ));
    }
    Plot {
        id: "plot-depth".to_owned(),
        title: "Cost against depth".to_owned(),
        about: "A send and a receive in one thread while so many messages are queued, of one priority or of random ones. The kernel's line \
                ends at the deepest queue that it allows the caller."
            .to_owned(),
        x: axis("messages in the queue", Scale::LogAt(DEPTHS.to_vec())),
        y: axis("send + receive, ns", Scale::Log),
        series,
    }
}

fn sizes(document: &Document) -> Plot {
    let mut series = Vec::new();
    for (style, mode) in ["adaptive", "blocking"].into_iter().enumerate() {
        let name = |size: f64| format!("{size} B, depth 1024, {mode}");
        let (umsg, kernel) = both(document, "stream", &SIZES, name);
        series.push(Series::new(format!("umsg, {mode}"), Who::Umsg, style, umsg));
        if mode == "blocking" {
            series.push(Series::new("kernel", Who::Kernel, style, kernel));
        }
    }
    Plot {
        id: "plot-sizes".to_owned(),
        title: "Throughput against message size".to_owned(),
        about: "One process sends, another receives, each on a core of its own, through a queue of 1,024 messages; the kernel's is as deep as it \
                allows."
            .to_owned(),
        x: axis("bytes a message", Scale::LogAt(SIZES.to_vec())),
        y: axis("million messages a second", Scale::Log),
        series,
    }
}

fn threads(document: &Document) -> Plot {
    const THREADS: [f64; 3] = [2.0, 4.0, 8.0];
    let mut series = Vec::new();
    for (style, (cores, name)) in [("split", "two cores"), ("same core", "one core")]
        .into_iter()
        .enumerate()
    {
        let row = |threads: f64| format!("{threads} threads on one queue, {cores}");
        let (umsg, kernel) = both(document, "msg", &THREADS, row);
        series.push(Series::new(format!("umsg, {name}"), Who::Umsg, style, umsg));
        series.push(Series::new(
            format!("kernel, {name}"),
            Who::Kernel,
            style,
            kernel,
        ));
    }
    Plot {
        id: "plot-threads".to_owned(),
        title: "System V: throughput against threads".to_owned(),
        about: "Pairs of threads bounce 8 bytes through one queue, each receiving by its own type. More threads than cores measure the scheduler as \
                well."
            .to_owned(),
        x: axis("threads on the queue", Scale::LogAt(THREADS.to_vec())),
        y: axis("thousand messages a second", Scale::Log),
        series,
    }
}

fn senders(document: &Document) -> Plot {
    const SENDERS: [f64; 3] = [1.0, 2.0, 4.0];
    let mut series = Vec::new();
    for (style, (each, name)) in [("one by one", ""), ("batches of 16", ", batches of 16")]
        .into_iter()
        .enumerate()
    {
        let row = |senders: f64| format!("processes, {senders} to 1, {each}");
        let (umsg, kernel) = both(document, "ring", &SENDERS, row);
        series.push(Series::new(format!("umsg{name}"), Who::Umsg, style, umsg));
        series.push(Series::new(
            format!("io_uring{name}"),
            Who::Kernel,
            style,
            kernel,
        ));
    }
    Plot {
        id: "plot-senders".to_owned(),
        title: "Ring: throughput against senders".to_owned(),
        about: "Processes post 64 bytes to one ring (io_uring's messages carry none). The receiver has a core, the senders share the other."
            .to_owned(),
        x: axis("senders", Scale::LogAt(SENDERS.to_vec())),
        y: axis("million messages a second", Scale::Log),
        series,
    }
}

fn counters(document: &Document) -> Plot {
    const THREADS: [f64; 8] = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 160.0];
    let row = |threads: f64| match threads {
        1.0 => "1 thread".to_owned(),
        many => format!("{many} threads"),
    };
    let points =
        |figure: fn(&Row) -> Option<f64>| figures(document, "counters", &THREADS, row, figure);
    Plot {
        id: "plot-counters".to_owned(),
        title: "System V: keeping the totals".to_owned(),
        about: "What a CPU spends on adding a message to the totals of all queues.".to_owned(),
        x: axis("threads", Scale::LogAt(THREADS.to_vec())),
        y: axis("ns an update", Scale::Log),
        series: vec![
            Series::new("by queue (umsg)", Who::Umsg, 0, points(|row| row.umsg)),
            Series::new(
                "by CPU (kernel since 2022)",
                Who::Kernel,
                0,
                points(|row| row.kernel),
            ),
            Series::new(
                "by CPU, atomic",
                Who::Fourth,
                1,
                points(|row| row.columns.get("percpu_atomic")),
            ),
            Series::new(
                "shared (kernel before)",
                Who::Third,
                2,
                points(|row| row.columns.get("shared")),
            ),
        ],
    }
}

/// The series of a plot of latencies: the variant, the side, and the shade of its colour.
const WAYS: [(&str, Who, usize); 6] = [
    ("umsg, adaptive", Who::Umsg, 0),
    ("umsg, polling", Who::Umsg, 1),
    ("umsg, blocking", Who::Umsg, 2),
    ("io_uring, blocked", Who::Kernel, 0),
    ("io_uring, polling", Who::Kernel, 1),
    ("crossbeam-channel", Who::Third, 0),
];

fn latencies(document: &Document, place: &str, end: &str) -> Plot {
    let of = |way: &str| {
        let fits = |found: &&Latencies| {
            found.place == place && found.end == end && found.way == way && found.cadence_us == 10
        };
        let found = document.latencies.iter().find(fits);
        let percentiles = found.map(|found| found.percentiles.clone());
        let points = percentiles.unwrap_or_default().into_iter();
        points.map(|(percentile, time)| (percentile, Some(time as f64)))
    };
    let series = WAYS.map(|(way, who, style)| Series::new(way, who, style, of(way)));
    let what = match end {
        "sender" => "What the sender's post takes",
        _ => "From before the post until the message is received",
    };
    Plot {
        id: format!("plot-{place}-{end}"),
        title: format!("Ring: latency of the {end}, {place}"),
        about: format!("{what}, a message every 10 µs."),
        x: axis("percentile of the messages", Scale::Tail),
        y: axis("ns", Scale::Log),
        series: series.into(),
    }
}

/// Returns the plot of the trials in which the process with this role was killed.
fn kills(document: &Document, victim: &str) -> Bars {
    let killed = format!(", {victim} killed");
    let bar = |trial: &KillTrial| {
        let name = trial.peer.strip_suffix(&killed)?;
        Some(Bar {
            name: name.to_owned(),
            who: match name {
                "umsg" => Who::Umsg,
                "kernel" => Who::Kernel,
                _ => Who::Third,
            },
            count: trial.stuck,
            of: trial.kills,
        })
    };
    Bars {
        id: format!("plot-kills-{victim}"),
        title: format!("Stuck after the {victim} was killed"),
        about: format!(
            "A busy {victim} is killed with SIGKILL, and another takes its place: how often somebody who lived on, or who came, could not go on."
        ),
        bars: document.kill_trials.iter().filter_map(bar).collect(),
    }
}
