//! A queue of each kind with two messages, for diagnosis and repair.

use crate::support::place::Place;
use std::fs::File;
use std::os::unix::fs::FileExt;
use umsg::diagnosis::{Diagnosis, Lock, Repaired};
use umsg::posix::{self, Queue};
use umsg::ring::{self, Post, Ring};
use umsg::sysv::{self, Want};

pub const KEY: i32 = 0x77;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Posix,
    SystemV,
    Ring,
}

pub const KINDS: [Kind; 3] = [Kind::Posix, Kind::SystemV, Kind::Ring];

pub struct Patient {
    pub kind: Kind,
    pub place: Place,
    pub queue: Option<Queue>,
    pub sysv_queue: Option<sysv::Queue>,
    pub ring: Option<Ring>,
}

/// Calls the function of this name for the patient's kind of queue.
macro_rules! of_kind {
    ($patient:ident, $function:ident, $what:literal) => {{
        let namespace = &$patient.place.namespace;
        match $patient.kind {
            Kind::Posix => posix::$function(namespace, "/q").expect($what),
            Kind::SystemV => sysv::$function(namespace, KEY).expect($what),
            Kind::Ring => ring::$function(namespace, "/r").expect($what),
        }
    }};
}

impl Patient {
    pub fn new(kind: Kind) -> Patient {
        let mut patient = Patient {
            kind,
            place: Place::new(),
            queue: None,
            sysv_queue: None,
            ring: None,
        };
        let (place, messages) = (&patient.place, [&b"one"[..], b"two"]);
        match kind {
            Kind::Posix => {
                let queue = place.create("/q", 4, 100);
                messages
                    .iter()
                    .for_each(|text| queue.try_send(text, 3).unwrap());
                patient.queue = Some(queue);
            }
            Kind::SystemV => {
                let queue = place.create_sysv(KEY);
                messages
                    .iter()
                    .for_each(|text| queue.try_send(5, text).unwrap());
                patient.sysv_queue = Some(queue);
            }
            Kind::Ring => {
                let mut options = ring::Options::new();
                options.entries(4).overflow(1);
                let ring = options.create_in(&place.namespace, "/r").unwrap();
                let sender = ring::Sender::open_in(&place.namespace, "/r").unwrap();
                messages
                    .iter()
                    .for_each(|_| sender.try_send(&Post::new(7)).unwrap());
                patient.ring = Some(ring);
            }
        }
        patient
    }

    pub fn file(&self) -> File {
        let path = match self.kind {
            Kind::Posix => "mq/q",
            Kind::SystemV => "msg/0",
            Kind::Ring => "ring/r",
        };
        let path = self.place.path().join(path);
        File::options().read(true).write(true).open(path).unwrap()
    }

    pub fn write(&self, offset: u64, word: u32) {
        let written = self.file().write_all_at(&word.to_ne_bytes(), offset);
        written.unwrap();
    }

    /// Returns the offsets of the locks of a queue. `guarded` returns the offset of a word that a call writes under them. Source: docs/format.md.
    pub fn locks(&self) -> &'static [u64] {
        match self.kind {
            Kind::SystemV => &[256],
            _ => &[512, 768],
        }
    }

    /// Returns the offset of a word that a call writes under the locks of [`locks`](Self::locks).
    pub fn guarded(&self) -> u64 {
        match self.kind {
            Kind::SystemV => 256 + 16,
            _ => 536,
        }
    }

    #[track_caller]
    pub fn diagnose(&self) -> Diagnosis {
        of_kind!(self, diagnose, "a diagnosis")
    }

    /// Returns the lock at this offset.
    #[track_caller]
    pub fn lock(&self, offset: u64) -> Lock {
        let mut locks = self.diagnose().locks.into_iter();
        locks.find(|lock| lock.offset == offset).expect("a lock")
    }

    #[track_caller]
    pub fn repair(&self) -> Repaired {
        of_kind!(self, repair, "a repair")
    }

    /// Receives all messages, and returns their number.
    pub fn receive_all(&mut self) -> usize {
        let mut buffer = [0; 8192];
        std::iter::from_fn(|| match (&self.queue, &self.sysv_queue, &mut self.ring) {
            (Some(queue), _, _) => queue.try_receive(&mut buffer).ok().map(drop),
            (_, Some(queue), _) => queue.try_receive(Want::Any, &mut buffer).ok().map(drop),
            (_, _, Some(ring)) => ring.try_receive().ok().map(drop),
            _ => None,
        })
        .count()
    }
}
