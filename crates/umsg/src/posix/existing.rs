//! Opening an existing queue whose attributes or policy may differ from the options.

use super::options::OpenOptions;
use super::queue::Queue;
use crate::error::OpenError;
use std::fmt::Debug;
use std::time::Duration;
use umsg_shm::posix_engine::segment::Policy;

/// The queues that [`OpenOptions::open`] accepts under an existing name. Only options that were set are compared.
///
/// The permission bits are not compared, because the umask changes them at creation and fchmod(2) later.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Existing {
    /// Every queue, with its own attributes and its own policy.
    Any,
    /// A queue with the policy that the options set. Capacity and message size may differ, as in mq_open(3).
    #[default]
    MatchPolicy,
    /// A queue whose capacity, message size and policy are those that the options set.
    Match,
}

/// The options of the policy that were set. Only set options are compared.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Asked {
    pub(super) on_full: bool,
    pub(super) time_to_live: bool,
    pub(super) max_deliveries: bool,
    pub(super) dead_letter: bool,
    pub(super) remove_on_last_close: bool,
    pub(super) close_with_producers: bool,
    pub(super) retry_delay: bool,
    pub(super) fair_priorities: bool,
    pub(super) trace_messages: bool,
}

type IsAsked = fn(&Asked) -> bool;
type Show = fn(&Policy) -> String;

/// The options of the policy. Each entry has a function that tells whether the option was set, the name of the option, and a function that returns
/// the option's value as text. Different values have different texts.
const OPTIONS: [(IsAsked, &str, Show); 9] = [
    (
        |asked| asked.on_full,
        "on_full",
        |policy| format!("{:?}", policy.on_full),
    ),
    (
        |asked| asked.time_to_live,
        "time_to_live",
        |policy| {
            let age = Duration::from_nanos(policy.time_to_live);
            or_none(age, !age.is_zero())
        },
    ),
    (
        |asked| asked.max_deliveries,
        "max_deliveries",
        |policy| or_none(policy.max_deliveries, policy.max_deliveries != 0),
    ),
    (
        |asked| asked.dead_letter,
        "dead_letter",
        |policy| match &policy.dead_letter {
            Some(name) => {
                str::from_utf8(name).map_or_else(|_| name.escape_ascii().to_string(), str::to_owned)
            }
            None if policy.sets_aside() => "a queue that its owner has not named".to_owned(),
            None => "none".to_owned(),
        },
    ),
    (
        |asked| asked.remove_on_last_close,
        "remove_on_last_close",
        |policy| policy.remove_on_last_close.to_string(),
    ),
    (
        |asked| asked.close_with_producers,
        "close_with_last_producer",
        |policy| policy.close_with_producers.to_string(),
    ),
    (
        |asked| asked.retry_delay,
        "retry_delay",
        |policy| format!("{:?}", policy.retry_delay.map(Duration::from_nanos)),
    ),
    (
        |asked| asked.fair_priorities,
        "fair_priorities",
        |policy| or_none(policy.fair_priorities, policy.fair_priorities != 0),
    ),
    (
        |asked| asked.trace_messages,
        "trace_messages",
        |policy| policy.trace_messages.to_string(),
    ),
];

fn or_none(value: impl Debug, is_some: bool) -> String {
    match is_some {
        true => format!("{value:?}"),
        false => "none".to_owned(),
    }
}

impl OpenOptions {
    /// Checks that an existing queue has the properties that these options request.
    pub(super) fn check_existing(&self, queue: &Queue) -> Result<(), OpenError> {
        if self.existing == Existing::Any {
            return Ok(());
        }
        if self.existing == Existing::Match {
            let layout = queue.engine.segment().layout();
            same("max_messages", self.max_messages, layout.max_messages)?;
            same("message_size", self.message_size, layout.message_size)?;
        }
        for (is_asked, what, show) in OPTIONS {
            if is_asked(&self.asked) {
                compare(what, show(&self.policy), show(queue.engine.policy()))?;
            }
        }
        Ok(())
    }
}

fn same(what: &'static str, wanted: Option<u32>, found: usize) -> Result<(), OpenError> {
    match wanted {
        Some(wanted) => compare(what, wanted.to_string(), found.to_string()),
        None => Ok(()),
    }
}

fn compare(what: &'static str, wanted: String, found: String) -> Result<(), OpenError> {
    match wanted == found {
        true => Ok(()),
        false => Err(OpenError::Differs {
            what,
            wanted,
            found,
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Namespace;
    use crate::posix::OnFull;

    fn refusal(options: &OpenOptions) -> Option<String> {
        options.open("/q").err().map(|error| error.to_string())
    }

    #[test]
    fn an_existing_queue_is_refused_by_what_was_asked_for_and_differs() {
        let home = tempfile::tempdir_in("/dev/shm").unwrap();
        let namespace = Namespace::at(home.path()).unwrap();
        let mut plain = OpenOptions::new();
        plain
            .read(true)
            .write(true)
            .create(true)
            .namespace(&namespace);
        let mut created = plain.clone();
        created.max_messages(7).message_size(64);
        created
            .on_full(OnFull::Fail)
            .time_to_live(Duration::from_secs(5));
        created.max_deliveries(3).dead_letter("/dead");
        created.fair_priorities(4);
        drop(created.open("/q").unwrap());
        type Change = fn(&mut OpenOptions) -> &mut OpenOptions;
        let policies: [(Change, &str); 9] = [
            (|o| o.on_full(OnFull::Block), "on_full is Fail, not Block"),
            (
                |o| o.time_to_live(Duration::ZERO),
                "time_to_live is 5s, not none",
            ),
            (
                |o| o.time_to_live(Duration::from_millis(5)),
                "time_to_live is 5s, not 5ms",
            ),
            (|o| o.max_deliveries(4), "max_deliveries is 3, not 4"),
            (|o| o.dead_letter("/d"), "dead_letter is /dead, not /d"),
            (|o| o.fair_priorities(5), "fair_priorities is 4, not 5"),
            (|o| o.fair_priorities(0), "fair_priorities is 4, not none"),
            (
                |o| o.trace_messages(true),
                "trace_messages is false, not true",
            ),
            (
                |o| o.remove_on_last_close(true),
                "remove_on_last_close is false, not true",
            ),
        ];
        for (change, text) in policies {
            for existing in [Existing::MatchPolicy, Existing::Match, Existing::Any] {
                let mut options = plain.clone();
                change(&mut options).existing(existing);
                let refused = refusal(&options);
                let expected = existing != Existing::Any;
                assert_eq!(refused.is_some(), expected, "{existing:?}: {refused:?}");
                assert!(
                    refused.is_none_or(|refused| refused.contains(text)),
                    "{text}"
                );
            }
        }
        let sizes: [(Change, &str); 2] = [
            (|o| o.max_messages(8), "max_messages is 7, not 8"),
            (|o| o.message_size(65), "message_size is 64, not 65"),
        ];
        for (change, text) in sizes {
            let mut options = plain.clone();
            assert_eq!(refusal(change(&mut options)), None, "as mq_open(3)");
            let refused = refusal(options.existing(Existing::Match)).unwrap();
            assert!(refused.contains(text), "{refused}");
        }
        assert_eq!(refusal(created.existing(Existing::Match)), None);
        assert_eq!(
            refusal(plain.existing(Existing::Match)),
            None,
            "nothing is asked for"
        );
    }

    #[test]
    fn no_queue_is_opened_or_created_without_an_access_mode() {
        let home = tempfile::tempdir_in("/dev/shm").unwrap();
        let namespace = Namespace::at(home.path()).unwrap();
        let mut options = OpenOptions::new();
        options.create(true).namespace(&namespace);
        let no_mode =
            |options: &OpenOptions| matches!(options.open("/q"), Err(OpenError::NoAccessMode));
        assert!(no_mode(&options));
        assert!(super::super::list(&namespace).unwrap().is_empty());
        drop(options.read(true).open("/q").unwrap());
        assert!(no_mode(options.read(false)));
    }
}
