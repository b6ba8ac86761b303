//! The reasons of failed connections. The client's events give only the kind of an error (`IO error`); its diagnostics have the whole text.

use std::cell::RefCell;
use std::fmt::{self, Write as _};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::Interest;
use tracing::{Event, Metadata, Subscriber};

/// The module of the client that connects, as named in the client's diagnostics.
const CONNECTOR: &str = "async_nats::connector";

thread_local! {
    /// The reason of the last failed connection of this thread. Each bridge connects in its own thread.
    static LAST: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Subscribes to the client's diagnostics, for the whole process.
pub fn listen() {
    // A second call changes nothing.
    let _ = tracing::subscriber::set_global_default(Reasons);
}

/// Returns the reason of the last failed connection of this thread, and clears it.
#[must_use]
pub fn take() -> Option<String> {
    LAST.with_borrow_mut(Option::take)
}

struct Reasons;

impl Subscriber for Reasons {
    fn register_callsite(&self, metadata: &'static Metadata<'static>) -> Interest {
        // All other diagnostics are disabled, so they cost nothing.
        match metadata.is_event() && metadata.target() == CONNECTOR {
            true => Interest::always(),
            false => Interest::never(),
        }
    }

    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_event() && metadata.target() == CONNECTOR
    }

    fn event(&self, event: &Event<'_>) {
        let mut reason = Reason(None);
        event.record(&mut reason);
        if let Some(reason) = reason.0 {
            LAST.set(Some(reason));
        }
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// The field `error` of a diagnostic event.
struct Reason(Option<String>);

impl Visit for Reason {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if field.name() == "error" {
            let mut text = String::new();
            let _ = write!(text, "{value:?}");
            self.0 = Some(text);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_connection_has_a_reason() {
        listen();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        // No program listens at this port, which is below those that the system gives to programs.
        let refused = runtime.block_on(async_nats::connect("nats://127.0.0.1:1"));
        assert!(refused.is_err());
        let reason = take().unwrap();
        assert!(reason.contains("Connection refused"), "{reason}");
        assert_eq!(take(), None);
    }
}
