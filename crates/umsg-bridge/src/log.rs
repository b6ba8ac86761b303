//! Structured logs on standard error: one line for each event, `key=value` or JSON.

use serde_json::{Map, Value};
use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::SystemTime;

static JSON: AtomicBool = AtomicBool::new(false);

/// The level of an event. Each level has the number by which systemd's journal recognises it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// The bridge cannot do its work.
    Error,
    /// The bridge continues, and an operator should know of the event.
    Warning,
    /// A change of state.
    Info,
}

impl Level {
    fn name(self) -> &'static str {
        match self {
            Level::Error => "error",
            Level::Warning => "warning",
            Level::Info => "info",
        }
    }
}

/// Switches to JSON: each later line is a JSON object.
pub fn use_json() {
    // Relaxed: the flag publishes no other data.
    JSON.store(true, Ordering::Relaxed);
}

/// Reports a panic as an event of the thread's bridge, and ends the process: a failed bridge must not look like an idle bridge. The leased messages
/// return to their queues, and the service manager restarts the bridges.
pub fn report_panics() {
    std::panic::set_hook(Box::new(|panic| {
        let thread = std::thread::current();
        let bridge = thread.name().filter(|name| *name != "main").unwrap_or("-");
        let at = panic
            .location()
            .map(ToString::to_string)
            .unwrap_or_default();
        let payload = panic.payload();
        let text = payload
            .downcast_ref::<&str>()
            .map(|text| (*text).to_owned());
        let text = text.or_else(|| payload.downcast_ref::<String>().cloned());
        let text = text.unwrap_or_default();
        event(
            Level::Error,
            bridge,
            "panic: the process ends",
            &[("at", &at), ("error", &text)],
        );
        std::process::abort();
    }));
}

/// Writes an event. A line that can't be written is lost: a failure of the log must not end the bridge.
pub fn event(level: Level, bridge: &str, event: &str, fields: &[(&str, &dyn std::fmt::Display)]) {
    let line = match JSON.load(Ordering::Relaxed) {
        true => json(level, bridge, event, fields),
        false => plain(level, bridge, event, fields),
    };
    let _ = std::io::stderr().lock().write_all(line.as_bytes());
}

/// Writes that an action failed, and the reason.
pub fn failure(bridge: &str, what: &str, why: &dyn std::fmt::Display) {
    event(Level::Error, bridge, what, &[("error", why)]);
}

fn plain(
    level: Level,
    bridge: &str,
    event: &str,
    fields: &[(&str, &dyn std::fmt::Display)],
) -> String {
    let mut line = format!(
        "level={} bridge={} event={event:?}",
        level.name(),
        quoted(bridge)
    );
    for (key, value) in fields {
        line.push_str(&format!(" {key}={}", quoted(&value.to_string())));
    }
    line.push('\n');
    line
}

/// Quotes a value unless all its characters can be part of a plain word.
fn quoted(value: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./:,@".contains(&byte);
    match !value.is_empty() && value.bytes().all(is_plain) {
        true => value.to_owned(),
        false => format!("{value:?}"),
    }
}

fn json(
    level: Level,
    bridge: &str,
    event: &str,
    fields: &[(&str, &dyn std::fmt::Display)],
) -> String {
    let now = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
    let mut object = Map::new();
    object.insert("time".to_owned(), now.as_secs_f64().into());
    object.insert("level".to_owned(), level.name().into());
    object.insert("bridge".to_owned(), bridge.into());
    object.insert("event".to_owned(), event.into());
    for (key, value) in fields {
        object.insert((*key).to_owned(), value.to_string().into());
    }
    format!("{}\n", Value::Object(object))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_one_line_and_quotes_what_is_no_word() {
        let line = plain(
            Level::Info,
            "a b",
            "connected",
            &[("url", &"x\ny"), ("n", &3)],
        );
        assert_eq!(
            line,
            "level=info bridge=\"a b\" event=\"connected\" url=\"x\\ny\" n=3\n"
        );
        let line = json(Level::Error, "b", "e", &[("k", &"v\n")]);
        let read: Value = serde_json::from_str(&line).unwrap();
        assert_eq!(read["k"], "v\n");
        assert_eq!(line.matches('\n').count(), 1);
    }
}
