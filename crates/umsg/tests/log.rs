//! The events that a program gets for its log, from a listener and from `tracing`.
//!
//! The file has only one test, because the listener and the subscriber belong to the process.

mod support;

use std::sync::{Mutex, OnceLock};
use std::time::Duration;
use support::child::{Child, Exit};
use support::place::Place;
use umsg::log::{self, Event, Level, What};
use umsg::posix::{Queue, SendError};
use umsg::sysv::Want;
use umsg_shm::crash;

const MOMENT: Duration = Duration::from_millis(20);

/// An event that the listener got: its kind, its level, the process that died, and the text.
type Told = (What, Level, Option<u32>, String);

/// The events that the listener got.
static TOLD: Mutex<Vec<Told>> = Mutex::new(Vec::new());
/// A queue that the listener uses.
static QUEUE: OnceLock<Queue> = OnceLock::new();

fn listen(event: &Event<'_>) {
    // The queue's locks are free now: this reservation takes both locks.
    let queue = QUEUE.get().unwrap();
    queue.peek(0).unwrap();
    if let Err(error) = queue.try_reserve(1) {
        assert!(matches!(error, SendError::Full), "{error}");
    }
    let told = (event.what, event.level(), event.pid, event.to_string());
    TOLD.lock().unwrap().push(told);
}

/// Waits until the listener gets an event of this kind, while `work` runs again and again. Returns the event's process and text.
fn told(what: What, work: impl Fn()) -> (Option<u32>, String) {
    for _ in 0..1000 {
        work();
        let mut told = TOLD.lock().unwrap();
        if let Some(at) = told.iter().position(|event| event.0 == what) {
            let (_, _, pid, text) = told.remove(at);
            return (pid, text);
        }
        drop(told);
        std::thread::sleep(Duration::from_millis(5));
    }
    panic!("no event: {what:?}");
}

#[test]
fn deaths_expired_messages_and_long_waits_are_told_when_the_queue_is_free_again() {
    #[cfg(feature = "tracing")]
    traced::begin();
    let place = Place::new();
    log::listen(listen);
    let queue = place.options(4, 8).open("/log").unwrap();
    let for_listener = place.open("/log");
    let _ = QUEUE.set(for_listener);

    // A sender dies during a send.
    let mut victim = Child::run(|| {
        crash::arm("SEND_PUBLISHED", 1);
        let _ = queue.send(b"job", 0);
        0
    });
    victim.expect(Exit::Signal(libc::SIGKILL), "SEND_PUBLISHED");
    let (pid, text) = told(What::Repaired, || {
        queue.try_send(b"next", 0).unwrap();
        while queue.try_receive_vec().is_ok() {}
        let _ = queue.receive_timeout(&mut [0; 8], Duration::from_millis(1));
    });
    assert_eq!(pid, Some(victim.pid().cast_unsigned()));
    let wanted = format!(
        "/log: process {} died during a call on the queue, and the queue was repaired",
        victim.pid()
    );
    assert_eq!(text, wanted);

    // The holder of a lease dies.
    queue.send(b"job", 0).unwrap();
    let mut victim = Child::run(|| {
        std::mem::forget(queue.receive_lease().unwrap());
        // SAFETY: the call sends a signal to this process.
        unsafe { libc::raise(libc::SIGKILL) };
        0
    });
    victim.expect(Exit::Signal(libc::SIGKILL), "a holder");
    let (pid, _) = told(What::HolderDied, || {
        let _ = queue.receive_timeout(&mut [0; 8], Duration::from_millis(1));
    });
    assert_eq!(pid, Some(victim.pid().cast_unsigned()));

    // A message is too old.
    let mut options = place.options(4, 8);
    let short = options.time_to_live(Duration::from_millis(1));
    let short = short.open("/short").unwrap();
    let (pid, text) = told(What::Expired, || {
        short.send(b"old", 0).unwrap();
        std::thread::sleep(MOMENT);
        let _ = short.try_receive_vec();
    });
    assert_eq!((pid, text.as_str()), (None, "/short: a message expired"));

    // A receiver and a sender wait for longer than the set time. The time is set only now, because earlier short waits would be reported, too, on a
    // busy machine.
    log::set_slow_wait(MOMENT);
    let (_, text) = told(What::WaitedForMessage, || {
        let _ = short.receive_timeout(&mut [0; 8], MOMENT * 2);
    });
    assert!(text.starts_with("/short: a receiver waited "), "{text}");
    while short.try_send(b"", 0).is_ok() {}
    let (_, text) = told(What::WaitedForRoom, || {
        let full = place.options(1, 8).open("/full").unwrap();
        let _ = full.try_send(b"", 0);
        let _ = full.send_timeout(b"", 0, MOMENT * 2);
    });
    assert!(text.starts_with("/full: a sender waited "), "{text}");

    // A System V queue is named by its identifier.
    let typed = place.create_sysv(7);
    let (_, text) = told(What::WaitedForMessage, || {
        let _ = typed.receive_vec_timeout(Want::Any, MOMENT * 2);
    });
    let wanted = format!("id:{}: a receiver waited ", typed.id());
    assert!(text.starts_with(&wanted), "{text}");
    typed.send(1, b"job").unwrap();
    let mut victim = Child::run(|| {
        std::mem::forget(typed.receive_lease(Want::Any).unwrap());
        // SAFETY: the call sends a signal to this process.
        unsafe { libc::raise(libc::SIGKILL) };
        0
    });
    victim.expect(Exit::Signal(libc::SIGKILL), "a holder");
    let (pid, text) = told(What::HolderDied, || {
        let _ = typed
            .try_receive_lease(Want::Any)
            .map(|lease| lease.give_back());
        let _ = queue.receive_timeout(&mut [0; 8], Duration::from_millis(1));
    });
    assert_eq!(pid, Some(victim.pid().cast_unsigned()));
    assert!(
        text.starts_with(&format!("id:{}: process ", typed.id())),
        "{text}"
    );

    #[cfg(feature = "tracing")]
    traced::check();
    log::stop_listening();
}

/// `tracing` gets the same events, with their fields.
#[cfg(feature = "tracing")]
mod traced {
    use std::fmt::{Debug, Write};
    use std::sync::Mutex;
    use tracing::field::{Field, Visit};
    use tracing::span;

    /// The events that the subscriber got, as text.
    static TRACED: Mutex<Vec<String>> = Mutex::new(Vec::new());

    /// Keeps each event as a line of its level and fields.
    struct Subscriber;

    struct Fields(String);

    impl Visit for Fields {
        fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
            write!(self.0, " {}={value:?}", field.name()).unwrap();
        }
    }

    impl tracing::Subscriber for Subscriber {
        fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
            metadata.target() == "umsg"
        }

        fn event(&self, event: &tracing::Event<'_>) {
            let mut fields = Fields(event.metadata().level().to_string());
            event.record(&mut fields);
            TRACED.lock().unwrap().push(fields.0);
        }

        fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
            span::Id::from_u64(1)
        }

        fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

        fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

        fn enter(&self, _: &span::Id) {}

        fn exit(&self, _: &span::Id) {}
    }

    pub fn begin() {
        tracing::subscriber::set_global_default(Subscriber).unwrap();
    }

    pub fn check() {
        let traced = TRACED.lock().unwrap();
        let find = |text: &str| {
            let found = traced.iter().find(|line| line.contains(text));
            found.unwrap_or_else(|| panic!("no {text} in {traced:#?}"))
        };
        let expired = find("a message expired");
        assert!(
            expired.starts_with("INFO ") && expired.contains(" queue=\"/short\""),
            "{expired}"
        );
        let died = find("died with a lease");
        assert!(
            died.starts_with("WARN ") && died.contains(" pid="),
            "{died}"
        );
        let waited = find("a receiver waited");
        // On a busy machine, the wait takes longer than it should.
        let seconds = waited.split_once(" seconds=").map(|(_, rest)| rest);
        let seconds = seconds.and_then(|rest| rest.split(' ').next()?.parse::<f64>().ok());
        assert!(
            waited.starts_with("DEBUG ")
                && seconds.is_some_and(|time| time >= super::MOMENT.as_secs_f64()),
            "{waited}"
        );
    }
}
