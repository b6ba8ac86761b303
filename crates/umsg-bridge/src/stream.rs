//! Finds streams and consumers, and makes missing ones if the configuration says so.

use crate::config::{Bridge, Delivery, Direction, NewStream, Retention, Storage, SubjectBy};
use crate::connect::Link;
use async_nats::jetstream::consumer::{AckPolicy, Consumer, pull};
use async_nats::jetstream::stream::{Config, Info, RetentionPolicy, StorageType, Stream};
use async_nats::jetstream::{Context, ContextBuilder};
use std::time::Duration;

/// Makes the context of a bridge.
#[must_use]
pub fn context(link: &Link, domain: Option<&str>, timeout: Duration) -> Context {
    let builder = ContextBuilder::new().timeout(timeout).ack_timeout(timeout);
    match domain {
        Some(domain) => builder.domain(domain).build(link.client.clone()),
        None => builder.build(link.client.clone()),
    }
}

/// Checks that the stream of a bridge, or the stream that the bridge would make, can serve the bridge. Makes nothing.
///
/// # Errors
/// The error is a sentence that names the setting.
pub async fn check(context: &Context, bridge: &Bridge, link: &Link) -> Result<(), String> {
    let name = &bridge.stream;
    let subjects = match (context.get_stream(name).await, &bridge.create_stream) {
        (Ok(stream), _) => {
            usable(bridge, stream.cached_info())?;
            stream.cached_info().config.subjects.clone()
        }
        (Err(error), Some(new)) if is_missing(&error.to_string()) => {
            config(name, bridge, new).subjects
        }
        (Err(error), _) => return Err(with_refusal(unfound(name, &error), link)),
    };
    covers(bridge, &subjects)
}

/// Checks that a stream with these subjects stores the messages of an export.
fn covers(bridge: &Bridge, subjects: &[String]) -> Result<(), String> {
    let (Direction::Export, Some(subject)) = (bridge.direction, &bridge.subject) else {
        return Ok(());
    };
    // The subjects that the export may publish to.
    let mut published = vec![match bridge.subject_by {
        SubjectBy::Nothing => subject.clone(),
        SubjectBy::Priority => format!("{subject}.p.*"),
        SubjectBy::Type => format!("{subject}.t.*"),
    }];
    if bridge.envelope {
        published.extend([subject.clone(), format!("{subject}.>")]);
    }
    let is_stored =
        |published: &String| subjects.iter().any(|subject| overlaps(subject, published));
    if published.iter().any(is_stored) {
        return Ok(());
    }
    Err(format!(
        "`subject`: the stream {} has no subject that covers {:?}. Add the subject to the stream, or correct `subject`",
        bridge.stream, published[0]
    ))
}

/// Returns whether a subject exists that both patterns match.
fn overlaps(one: &str, other: &str) -> bool {
    let (mut words, mut others) = (one.split('.'), other.split('.'));
    loop {
        match (words.next(), others.next()) {
            (Some(">"), Some(_)) | (Some(_), Some(">")) | (None, None) => return true,
            (Some(word), Some(other)) if word == "*" || other == "*" || word == other => {}
            _ => return false,
        }
    }
}

/// Finds the stream of a bridge, or makes the stream.
///
/// # Errors
/// The error is a sentence that names the setting.
pub async fn find(context: &Context, bridge: &Bridge, link: &Link) -> Result<Stream<Info>, String> {
    let found = found(context, bridge, link).await?;
    usable(bridge, found.cached_info())?;
    Ok(found)
}

/// Refuses a stream that can't serve a bridge.
fn usable(bridge: &Bridge, stream: &Info) -> Result<(), String> {
    // A stream with `no_ack` acknowledges no publish, so the bridge would repeat each publish for ever.
    if bridge.direction == Direction::Export && stream.config.no_ack {
        return Err(format!(
            "`stream` {}: the stream acknowledges no message, because no_ack is set. Set no_ack to false, or name another stream",
            bridge.stream
        ));
    }
    Ok(())
}

async fn found(context: &Context, bridge: &Bridge, link: &Link) -> Result<Stream<Info>, String> {
    let name = &bridge.stream;
    let why = match (context.get_stream(name).await, &bridge.create_stream) {
        (Ok(stream), _) => return Ok(stream),
        (Err(error), Some(new)) if is_missing(&error.to_string()) => {
            match context.create_stream(config(name, bridge, new)).await {
                Ok(_) => return again(context, name).await,
                Err(error) => format!("`create_stream` {name}: {}", in_full(&error)),
            }
        }
        (Err(error), _) => unfound(name, &error),
    };
    Err(with_refusal(why, link))
}

/// Returns the reason why a stream was not found, as a sentence.
fn unfound(name: &str, error: &dyn std::error::Error) -> String {
    match is_missing(&error.to_string()) {
        true => format!(
            "`stream`: the server has no stream {name}: create the stream, or set `create_stream`"
        ),
        false => format!("`stream` {name}: {}", in_full(error)),
    }
}

async fn again(context: &Context, name: &str) -> Result<Stream<Info>, String> {
    let found = context.get_stream(name).await;
    found.map_err(|error| format!("`stream` {name}: {}", in_full(&error)))
}

/// Returns whether the error says that the stream is missing. The function compares the text, because the client does not export this error kind.
fn is_missing(error: &str) -> bool {
    error.contains("10059") || error.contains("stream not found")
}

/// Describes an error and its causes.
#[must_use]
pub fn in_full(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(deeper) = cause {
        let more = deeper.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        cause = deeper.source();
    }
    text
}

/// Adds the server's last refusal to an error: the server does not report a missing permission in its answer to the call.
#[must_use]
pub fn with_refusal(why: String, link: &Link) -> String {
    match link.take_refusal() {
        Some(refusal) => format!("{why}; {refusal}"),
        None => why,
    }
}

fn config(name: &str, bridge: &Bridge, new: &NewStream) -> Config {
    let subject = bridge.subject.clone().unwrap_or_else(|| name.to_owned());
    let subjects = match (new.subjects.is_empty(), subject.ends_with('>')) {
        (false, _) => new.subjects.clone(),
        (true, true) => vec![subject],
        (true, false) => vec![format!("{subject}.>"), subject],
    };
    Config {
        name: name.to_owned(),
        subjects,
        retention: match new.retention {
            Retention::WorkQueue => RetentionPolicy::WorkQueue,
            Retention::Limits => RetentionPolicy::Limits,
            Retention::Interest => RetentionPolicy::Interest,
        },
        storage: match new.storage {
            Storage::File => StorageType::File,
            Storage::Memory => StorageType::Memory,
        },
        num_replicas: new.replicas,
        max_messages: new.max_messages.unwrap_or(-1),
        max_bytes: new.max_bytes.map_or(-1, |size| size.0 as i64),
        max_age: new.max_age.map_or(Duration::ZERO, |age| age.0),
        duplicate_window: new
            .duplicate_window
            .map_or(Duration::ZERO, |window| window.0),
        // A full stream refuses new messages, which then stay in the local queue.
        discard: async_nats::jetstream::stream::DiscardPolicy::New,
        ..Config::default()
    }
}

/// Finds the durable consumer of an import, or makes the consumer.
///
/// # Errors
/// The error is a sentence that names the setting.
pub async fn consumer(
    stream: &Stream<Info>,
    bridge: &Bridge,
    (host, pending): (&str, usize),
    link: &Link,
) -> Result<Consumer<pull::Config>, String> {
    let name = bridge.consumer_name(host);
    let config = pull::Config {
        durable_name: Some(name.clone()),
        ack_policy: AckPolicy::Explicit,
        ack_wait: bridge.ack_wait.0,
        filter_subject: bridge.subject.clone().unwrap_or_default(),
        // Several machines share this consumer, and so share its limit.
        max_ack_pending: match bridge.delivery {
            Delivery::Share => (pending * 16).min(1 << 20) as i64,
            Delivery::Mirror => pending as i64,
        },
        ..pull::Config::default()
    };
    let fault = |error: &dyn std::error::Error| {
        with_refusal(format!("`consumer` {name}: {}", in_full(error)), link)
    };
    match stream.get_consumer(&name).await {
        Ok(consumer) => return fitting(consumer, bridge),
        Err(error) if error.to_string().contains(MISSING_CONSUMER) => {}
        // Any other error, for example an answer that came too late. After such an error, the bridge must not create the consumer: that would change
        // the settings of an existing consumer.
        Err(error) => return Err(fault(&*error)),
    }
    let made = stream.create_consumer(config).await;
    made.map_err(|error| fault(&error))
}

/// The client's error text for a missing consumer. The client does not export this error kind.
const MISSING_CONSUMER: &str = "consumer not found";

/// Refuses a consumer with another filter or without acknowledgements, made by other means or for an earlier configuration.
fn fitting(
    consumer: Consumer<pull::Config>,
    bridge: &Bridge,
) -> Result<Consumer<pull::Config>, String> {
    let info = consumer.cached_info();
    if info.config.ack_policy != AckPolicy::Explicit {
        return Err(format!(
            "`consumer` {}: the consumer's ack policy must be explicit. Create the consumer again, or name another consumer",
            info.name
        ));
    }
    match &bridge.subject {
        Some(subject) if *subject != info.config.filter_subject => Err(format!(
            "`subject` {subject}: the consumer {} has the filter {:?}. Remove the consumer, or name another one in `consumer`",
            info.name, info.config.filter_subject
        )),
        _ => Ok(consumer),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::End;

    #[test]
    fn a_subject_is_covered_by_itself_and_by_wildcards() {
        for (one, other) in [
            ("s", "s"),
            (">", "s.t"),
            ("s.>", "s.t.u"),
            ("s.*", "s.t"),
            ("*.t", "s.*"),
            ("s.p.7", "s.p.*"),
        ] {
            assert!(
                overlaps(one, other) && overlaps(other, one),
                "{one} {other}"
            );
        }
        for (one, other) in [
            ("s", "t"),
            ("s", "s.t"),
            ("s.>", "s"),
            ("s.*", "s.t.u"),
            ("*.t", "s.u"),
        ] {
            assert!(
                !overlaps(one, other) && !overlaps(other, one),
                "{one} {other}"
            );
        }
    }

    #[test]
    fn an_export_needs_a_stream_with_a_subject_that_it_publishes_to() {
        let mut bridge = Bridge::new("a", Direction::Export, (End::Posix("/q".to_owned()), "S"));
        bridge.subject = Some("s".to_owned());
        let refused = |bridge: &Bridge, subject: &str| covers(bridge, &[subject.to_owned()]).err();
        assert_eq!(refused(&bridge, "s"), None);
        assert!(
            refused(&bridge, "s.>")
                .unwrap()
                .contains("no subject that covers \"s\"")
        );
        assert!(covers(&bridge, &[]).is_err(), "a mirror has no subjects");
        bridge.subject_by = SubjectBy::Priority;
        assert_eq!(refused(&bridge, "s.>"), None);
        assert!(refused(&bridge, "s").unwrap().contains("\"s.p.*\""));
        bridge.subject_by = SubjectBy::Nothing;
        bridge.envelope = true;
        assert_eq!(refused(&bridge, "s.>"), None);
        bridge.direction = Direction::Import;
        assert_eq!(refused(&bridge, "t"), None);
    }
}
