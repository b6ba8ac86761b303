//! Opening a queue that exists: what happens if its attributes or its policy differ from the options.

use super::options::OpenOptions;
use super::queue::Queue;
use crate::error::OpenError;
use std::ffi::OsStr;
use std::fmt::{Debug, Display};
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

/// The queues that [`OpenOptions::open`] accepts under an existing name. Only options that were set are compared.
///
/// The permission bits are not compared, because the umask changes them at creation and fchmod(2) later.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Existing {
    /// Every queue, with its own attributes and its own policy.
    Any,
    /// A queue whose policy is the one that the options set. Capacity and message size may differ, as in mq_open(3).
    #[default]
    MatchPolicy,
    /// A queue whose capacity, message size and policy are those that the options set.
    Match,
}

/// The options of the policy that were set. Others are not compared.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Asked {
    pub(super) on_full: bool,
    pub(super) time_to_live: bool,
    pub(super) max_deliveries: bool,
    pub(super) dead_letter: bool,
    pub(super) remove_on_last_close: bool,
    pub(super) close_with_producers: bool,
    pub(super) retry_delay: bool,
}

impl OpenOptions {
    /// Checks that an existing queue is as these options ask for.
    pub(super) fn check_existing(&self, queue: &Queue) -> Result<(), OpenError> {
        if self.existing == Existing::Any {
            return Ok(());
        }
        if self.existing == Existing::Match {
            let layout = queue.engine.segment().layout();
            same("max_messages", self.max_messages, layout.max_messages)?;
            same("message_size", self.message_size, layout.message_size)?;
        }
        let (asked, wanted, found) = (&self.asked, &self.policy, queue.engine.policy());
        equal(asked.on_full, "on_full", &wanted.on_full, &found.on_full)?;
        let age = |policy: &umsg_shm::posix_engine::segment::Policy| {
            or_none(Some(policy.time_to_live).filter(|&age| age != 0), |age| {
                format!("{:?}", Duration::from_nanos(age))
            })
        };
        shown(asked.time_to_live, "time_to_live", age(wanted), age(found))?;
        let times = |most: u32| {
            or_none(Some(most).filter(|&most| most != 0), |most| {
                most.to_string()
            })
        };
        shown(
            asked.max_deliveries,
            "max_deliveries",
            times(wanted.max_deliveries),
            times(found.max_deliveries),
        )?;
        let name = |name: &Option<Vec<u8>>| {
            or_none(name.as_deref(), |name| {
                OsStr::from_bytes(name).display().to_string()
            })
        };
        let other = match found.dead_letter.is_none() && found.sets_aside() {
            true => "a queue that its owner has not named".to_owned(),
            false => name(&found.dead_letter),
        };
        shown(
            asked.dead_letter,
            "dead_letter",
            name(&wanted.dead_letter),
            other,
        )?;
        equal(
            asked.remove_on_last_close,
            "remove_on_last_close",
            &wanted.remove_on_last_close,
            &found.remove_on_last_close,
        )?;
        equal(
            asked.close_with_producers,
            "close_with_last_producer",
            &wanted.close_with_producers,
            &found.close_with_producers,
        )?;
        equal(
            asked.retry_delay,
            "retry_delay",
            &wanted.retry_delay.map(Duration::from_nanos),
            &found.retry_delay.map(Duration::from_nanos),
        )
    }
}

fn or_none<T>(value: Option<T>, show: impl FnOnce(T) -> String) -> String {
    value.map_or_else(|| "none".to_owned(), show)
}

fn same(what: &'static str, wanted: Option<u32>, found: usize) -> Result<(), OpenError> {
    match wanted {
        Some(wanted) => equal(true, what, &(wanted as usize), &found),
        None => Ok(()),
    }
}

fn equal<T: Debug>(
    is_asked: bool,
    what: &'static str,
    wanted: &T,
    found: &T,
) -> Result<(), OpenError> {
    shown(
        is_asked,
        what,
        format_args!("{wanted:?}"),
        format_args!("{found:?}"),
    )
}

/// Compares two values by their text, which is different for different values.
fn shown(
    is_asked: bool,
    what: &'static str,
    wanted: impl Display,
    found: impl Display,
) -> Result<(), OpenError> {
    let (wanted, found) = (wanted.to_string(), found.to_string());
    match is_asked && wanted != found {
        true => Err(OpenError::Differs {
            what,
            wanted,
            found,
        }),
        false => Ok(()),
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
        drop(created.open("/q").unwrap());
        type Change = fn(&mut OpenOptions) -> &mut OpenOptions;
        let policies: [(Change, &str); 6] = [
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
