//! `umsg bridge check`: a description of the bridges in words.

use crate::config::{Bridge, Config, Delivery, Direction, End, OnReject, SubjectBy};
use crate::local::Exporter;
use crate::{connect, stream};
use std::fmt::Write as _;
use std::time::Duration;
use umsg::Namespace;

/// Describes the bridges of a configuration.
#[must_use]
pub fn describe(config: &Config) -> String {
    let mut text = format!("Servers: {}.\n", config.server.url.join(", "));
    for bridge in config.one_way() {
        // Writing to a string can't fail.
        let _ = writeln!(text, "\n{}: {}", bridge.name, words(&bridge));
    }
    text
}

fn words(bridge: &Bridge) -> String {
    let mut text = match bridge.direction {
        Direction::Export => export(bridge),
        _ => import(bridge),
    };
    let waits = match bridge.direction {
        Direction::Export => "stays in the queue and is tried again every 30 s",
        _ => "stays in the stream and is delivered again after 30 s",
    };
    text += &match (bridge.on_reject, &bridge.dead_letter) {
        (OnReject::DeadLetter, Some(name)) => {
            format!(" A message that can't be placed goes to {name}.")
        }
        _ => format!(" A message that can't be placed {waits}."),
    };
    text
}

fn export(bridge: &Bridge) -> String {
    let subject = bridge.subject.as_deref().unwrap_or_default();
    let subject = match bridge.subject_by {
        SubjectBy::Nothing => subject.to_owned(),
        SubjectBy::Priority => format!("{subject}.p.PRIORITY"),
        SubjectBy::Type => format!("{subject}.t.TYPE"),
    };
    let take = match bridge.queue {
        End::Ring(_) | End::Kernel(_) => format!(
            "takes messages from {} into the queue /bridge.{}.spool, and leases them there",
            bridge.queue, bridge.name
        ),
        _ => format!("leases messages of {}", bridge.queue),
    };
    let mut text = format!(
        "{take}, publishes them to the subject {subject} of the stream {}, up to {} at once, and acknowledges each when JetStream has acknowledged it.",
        bridge.stream, bridge.window
    );
    if let End::Kernel(_) = bridge.queue {
        text += " If the bridge is killed between the two queues, one message is lost.";
    }
    text
}

fn import(bridge: &Bridge) -> String {
    let filter = bridge.subject.as_deref().unwrap_or("all subjects");
    let gets = match bridge.delivery {
        Delivery::Share => "one machine gets each message",
        Delivery::Mirror => "every machine gets each message",
    };
    let acknowledges = match bridge.is_durable() {
        true => "when a local receiver has acknowledged it",
        false => "when it is in the queue",
    };
    let once = match bridge.queue {
        End::Posix(_) => format!(
            "Redeliveries are recognised within {} sequences of the stream, also if the bridge is killed.",
            bridge.dedupe
        ),
        _ => format!(
            "Redeliveries are recognised within {} sequences of the stream; a kill of the bridge may repeat one message.",
            bridge.dedupe
        ),
    };
    format!(
        "pulls messages of the stream {} ({filter}) with the consumer {}, so that {gets}; places them in {} and acknowledges each {acknowledges}. {once}",
        bridge.stream,
        bridge.consumer_name("HOST"),
        bridge.queue
    )
}

/// Checks that the bridges find their secrets, server, streams and queues. Returns a sentence for each missing thing.
///
/// # Errors
/// The error is a sentence: the settings of the server can't be used.
pub async fn try_out(config: &Config, namespace: &Namespace) -> Result<Vec<String>, String> {
    let mut faults = Vec::new();
    let mut link = connect::connect(&config.server, "umsg-bridge check").await?;
    let wait = tokio::time::timeout(Duration::from_secs(5), link.wait());
    if !matches!(wait.await, Ok(Ok(()))) {
        let why = link.take_refusal().unwrap_or_else(|| {
            let urls = config.server.url.join(", ");
            format!("server: `url` {urls}: no server answered within 5 s")
        });
        let advice = match why.starts_with("server: `url`") {
            true => ". Check the address, and that the server runs",
            false => "",
        };
        faults.push(why + advice);
    }
    let is_connected = faults.is_empty();
    for bridge in config.one_way() {
        let fault = |why: String| format!("bridge {:?}: {why}", bridge.name);
        let makes_queue = bridge.create_queue.is_some();
        // A check creates no queue.
        let bridge = Bridge {
            create_queue: None,
            ..bridge.clone()
        };
        if !makes_queue && !matches!(bridge.queue, End::Ring(_) | End::Kernel(_)) {
            faults.extend(Exporter::open(namespace, &bridge).err().map(fault));
        }
        let timeout = config.server.timeout.0;
        let context = stream::context(&link, config.server.domain.as_deref(), timeout);
        if is_connected {
            let checked = stream::check(&context, &bridge, &link).await;
            faults.extend(checked.err().map(fault));
        }
    }
    Ok(faults)
}
