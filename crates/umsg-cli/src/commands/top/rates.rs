//! Compares each refresh with the previous one: computes rates, and keeps the recent figures of each queue.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use crate::commands::sample::figures::{Figures, Kind};
use crate::commands::sample::gather::{Refused, Snapshot};

/// The number of refreshes of which the figures of a queue are kept.
pub const PAST: usize = 120;

/// The state of a namespace at one refresh.
#[derive(Debug)]
pub struct View {
    pub at: SystemTime,
    /// The time since the previous refresh, in seconds.
    pub seconds: Option<f64>,
    pub rows: Vec<Row>,
    pub refused: Vec<Refused>,
}

/// A queue at one refresh.
#[derive(Debug)]
pub struct Row {
    pub figures: Figures,
    /// The rates; None at the first refresh of a queue, and if its counters have restarted.
    pub rates: Option<Rates>,
    pub past: Arc<Past>,
}

/// Messages and bytes per second. A rate is None if the kind of queue does not count the messages or bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rates {
    pub sent: f64,
    pub removed: f64,
    pub sent_bytes: Option<f64>,
    pub removed_bytes: Option<f64>,
}

/// The recent figures of a queue; the latest figure is the last one.
#[derive(Clone, Debug, Default)]
pub struct Past {
    pub messages: VecDeque<f64>,
    pub fill: VecDeque<f64>,
    pub sent: VecDeque<f64>,
    pub removed: VecDeque<f64>,
}

/// A queue at the previous refresh.
struct Known {
    figures: Figures,
    past: Arc<Past>,
    refresh: u64,
}

/// All queues at the previous refresh.
#[derive(Default)]
pub struct Refreshes {
    known: HashMap<(Kind, Arc<str>, Option<i32>), Known>,
    last: Option<Instant>,
    count: u64,
}

impl Refreshes {
    pub fn next(&mut self, snapshot: Snapshot) -> View {
        let (now, at) = (Instant::now(), SystemTime::now());
        let seconds = self.last.map(|last| (now - last).as_secs_f64());
        self.last = Some(now);
        self.count += 1;
        let rows = snapshot.figures.into_iter();
        let rows = rows.map(|figures| self.row(figures, seconds)).collect();
        let count = self.count;
        self.known.retain(|_, known| known.refresh == count);
        View {
            at,
            seconds,
            rows,
            refused: snapshot.refused,
        }
    }

    fn row(&mut self, figures: Figures, seconds: Option<f64>) -> Row {
        let key = (figures.kind, Arc::clone(&figures.queue), figures.id);
        let before = self.known.remove(&key);
        // If another queue of the same name has replaced the queue, the name is a new `Arc`. Then the earlier figures belong to the replaced queue,
        // and are not used.
        let before = before.filter(|known| Arc::ptr_eq(&known.figures.queue, &figures.queue));
        let rates = before
            .as_ref()
            .zip(seconds)
            .and_then(|(known, seconds)| Rates::between(&known.figures, &figures, seconds));
        let mut past = before.map(|known| known.past).unwrap_or_default();
        Arc::make_mut(&mut past).add(&figures, rates);
        let known = Known {
            figures: figures.clone(),
            past: Arc::clone(&past),
            refresh: self.count,
        };
        self.known.insert(key, known);
        Row {
            figures,
            rates,
            past,
        }
    }
}

impl Rates {
    /// Returns the rates between two refreshes. Returns None if a counter is lower than before: a rebuilt queue starts its counters at 0.
    fn between(before: &Figures, now: &Figures, seconds: f64) -> Option<Rates> {
        let rate = |before: u64, now: u64| {
            let seconds = seconds.max(1e-6);
            Some(now.checked_sub(before)? as f64 / seconds)
        };
        let bytes = |before: Option<u64>, now: Option<u64>| rate(before?, now?);
        Some(Rates {
            sent: rate(before.sent, now.sent)?,
            removed: rate(before.removed, now.removed)?,
            sent_bytes: bytes(before.sent_bytes, now.sent_bytes),
            removed_bytes: bytes(before.removed_bytes, now.removed_bytes),
        })
    }
}

impl Past {
    fn add(&mut self, figures: &Figures, rates: Option<Rates>) {
        let push = |to: &mut VecDeque<f64>, value| {
            if to.len() == PAST {
                to.pop_front();
            }
            to.push_back(value);
        };
        push(&mut self.messages, figures.messages as f64);
        push(&mut self.fill, figures.fill);
        if let Some(rates) = rates {
            push(&mut self.sent, rates.sent);
            push(&mut self.removed, rates.removed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures(label: &Arc<str>, sent: u64) -> Figures {
        Figures {
            queue: Arc::clone(label),
            sent,
            sent_bytes: Some(10 * sent),
            ..Figures::nothing(Kind::Posix)
        }
    }

    fn snapshot(figures: Figures) -> Snapshot {
        let mut snapshot = Snapshot::default();
        snapshot.figures.push(figures);
        snapshot
    }

    #[test]
    fn rates_are_differences_by_time_and_begin_again_with_a_counter_or_a_queue() {
        let (label, mut refreshes) = (Arc::from("/q"), Refreshes::default());
        let mut next = |figures| refreshes.next(snapshot(figures)).rows.remove(0);
        assert_eq!(next(figures(&label, 5)).rates, None);
        let row = next(figures(&label, 25));
        let rates = row.rates.unwrap();
        assert!(rates.sent > 0.0 && rates.removed == 0.0);
        let bytes = rates.sent_bytes.unwrap();
        assert!((bytes / rates.sent - 10.0).abs() < 1e-6);
        assert_eq!(next(figures(&label, 3)).rates, None, "a lower counter");
        assert!(next(figures(&label, 4)).rates.is_some());
        let another = Arc::from("/q");
        assert_eq!(next(figures(&another, 99)).rates, None, "another queue");
    }

    #[test]
    fn the_past_is_bounded() {
        let (label, mut refreshes) = (Arc::from("/q"), Refreshes::default());
        let mut past = Arc::default();
        for sent in 0..2 * PAST as u64 {
            let row = refreshes
                .next(snapshot(figures(&label, sent)))
                .rows
                .remove(0);
            past = row.past;
        }
        assert_eq!((past.messages.len(), past.sent.len()), (PAST, PAST));
    }
}
