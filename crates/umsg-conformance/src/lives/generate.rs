//! Generates random histories. The generator keeps a rough model of each process's descriptors, so that most calls reach a queue. If the model is
//! wrong, a call only fails with EBADF.

use std::collections::BTreeMap;

use super::act::{Act, NAMES, PROCESSES, Step, Waits};
use crate::compare::Random;
use crate::compare::posix::notices;

/// The range from which the generator chooses descriptor numbers.
const NUMBERS: std::ops::Range<i32> = 3..14;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Queue,
    Set,
}

/// The descriptors that the generator expects a process to have.
type Table = BTreeMap<i32, Kind>;

/// The character of a history: how often each kind of event occurs, and the number of queue names.
struct Character {
    names: usize,
    blocking: u64,
    weights: [u64; 6],
}

/// Makes histories.
pub struct Generator {
    random: Random,
    tables: [Option<Table>; PROCESSES],
    mail: Vec<Kind>,
    character: Character,
}

const EVENTS: [i32; 4] = [
    libc::EPOLLIN,
    libc::EPOLLOUT,
    libc::EPOLLIN | libc::EPOLLOUT,
    0,
];
const WAYS: [i32; 4] = [
    0,
    libc::EPOLLET,
    libc::EPOLLONESHOT,
    libc::EPOLLET | libc::EPOLLONESHOT,
];

impl Generator {
    /// Creates a generator with this seed.
    pub fn new(seed: u64) -> Generator {
        Generator {
            random: Random::new(seed),
            tables: Default::default(),
            mail: Vec::new(),
            character: Character {
                names: 1,
                blocking: 0,
                weights: [1; 6],
            },
        }
    }

    /// Returns the next history, of 40 to 80 steps.
    pub fn history(&mut self) -> Vec<Step> {
        let random = &mut self.random;
        self.character = Character {
            names: 1 + random.below(NAMES as u64) as usize,
            blocking: random.pick(&[0, 20, 60]),
            weights: [
                random.pick(&[20, 40]),
                random.pick(&[6, 15]),
                random.pick(&[4, 15]),
                random.pick(&[0, 15, 40]),
                random.pick(&[0, 10, 25]),
                random.pick(&[0, 10, 40]),
            ],
        };
        self.tables = Default::default();
        self.tables[0] = Some(Table::new());
        self.mail.clear();
        let length = 40 + self.random.below(41) as usize;
        let open = self.open(0);
        let mut steps = vec![Step {
            process: 0,
            act: open,
        }];
        while steps.len() < length {
            let process = self.actor();
            let act = self.act(process);
            steps.push(Step { process, act });
        }
        steps
    }

    fn actor(&mut self) -> usize {
        let living: Vec<usize> = (0..PROCESSES)
            .filter(|&process| self.tables[process].is_some())
            .collect();
        self.random.pick(&living)
    }

    fn act(&mut self, process: usize) -> Act {
        let [traffic, descriptors, lives, polling, notices, typed] = self.character.weights;
        let make: fn(&mut Generator, usize) -> Act = self.random.weighted(&[
            (traffic, Generator::traffic as _),
            (descriptors, Generator::descriptors as _),
            (lives, Generator::lives as _),
            (polling, Generator::polling as _),
            (notices, Generator::notices as _),
            (typed, |this: &mut Generator, _| this.typed()),
        ]);
        make(self, process)
    }

    /// Returns a descriptor number that probably belongs to a descriptor of this kind.
    fn number(&mut self, process: usize, kind: Kind) -> i32 {
        let table = self.tables[process].as_ref();
        let likely: Vec<i32> = table
            .into_iter()
            .flatten()
            .filter_map(|(&fd, &has)| (has == kind).then_some(fd))
            .collect();
        if likely.is_empty() || self.random.percent(4) {
            return self.any_number();
        }
        self.random.pick(&likely)
    }

    fn any_number(&mut self) -> i32 {
        let range = NUMBERS.end - NUMBERS.start;
        NUMBERS.start + self.random.below(range as u64) as i32
    }

    fn enter(&mut self, process: usize, kind: Kind) {
        if let Some(table) = &mut self.tables[process]
            && let Some(free) = (3..).find(|fd| !table.contains_key(fd))
        {
            table.insert(free, kind);
        }
    }

    fn kind_of(&self, process: usize, fd: i32) -> Option<Kind> {
        self.tables[process].as_ref()?.get(&fd).copied()
    }

    fn blocks(&mut self) -> bool {
        self.random.percent(self.character.blocking)
    }

    fn name(&mut self) -> usize {
        self.random.below(self.character.names as u64) as usize
    }

    fn open(&mut self, process: usize) -> Act {
        self.enter(process, Kind::Queue);
        let nonblock = if self.blocks() { 0 } else { libc::O_NONBLOCK };
        let access =
            self.random
                .weighted(&[(8, libc::O_RDWR), (1, libc::O_RDONLY), (1, libc::O_WRONLY)]);
        let create = self.random.weighted(&[
            (8, libc::O_CREAT),
            (1, libc::O_CREAT | libc::O_EXCL),
            (1, 0),
        ]);
        Act::Open {
            name: self.name(),
            flags: access | create | nonblock,
            depth: 1 + self.random.below(3) as i64,
        }
    }

    fn waits(&mut self) -> Waits {
        self.random.weighted(&[
            (10, Waits::Forever),
            (2, Waits::Long),
            (1, Waits::Briefly),
            (1, Waits::Not),
        ])
    }

    fn traffic(&mut self, process: usize) -> Act {
        let (fd, waits) = (self.number(process, Kind::Queue), self.waits());
        match self.random.below(10) {
            0..5 => Act::Send {
                fd,
                priority: self.random.below(3) as u32,
                waits,
            },
            5..9 => Act::Receive { fd, waits },
            _ => Act::Attributes { fd },
        }
    }

    fn descriptors(&mut self, process: usize) -> Act {
        let fd = self.number(process, Kind::Queue);
        match self.random.below(20) {
            0..5 => self.open(process),
            5..8 => {
                let fd = match self.random.percent(30) {
                    true => self.number(process, Kind::Set),
                    false => fd,
                };
                if let Some(table) = &mut self.tables[process] {
                    table.remove(&fd);
                }
                Act::Close { fd }
            }
            8..10 => Act::Unlink { name: self.name() },
            10 => Act::Nonblock {
                fd,
                on: !self.blocks(),
            },
            11 => Act::KeepOnExec {
                fd,
                keep: self.random.percent(80),
            },
            12 | 13 => {
                let fd = match self.random.percent(20) {
                    true => self.number(process, Kind::Set),
                    false => fd,
                };
                if let Some(kind) = self.kind_of(process, fd) {
                    self.enter(process, kind);
                }
                Act::Dup { fd }
            }
            14..16 => {
                let onto = self.any_number();
                let kind = self.kind_of(process, fd);
                if let (Some(table), Some(kind)) = (&mut self.tables[process], kind) {
                    table.insert(onto, kind);
                }
                Act::Dup2 { fd, onto }
            }
            16..18 => {
                if let Some(kind) = self.kind_of(process, fd) {
                    self.mail.push(kind);
                }
                Act::Pass { fd }
            }
            _ => {
                if !self.mail.is_empty() {
                    let kind = self.mail.remove(0);
                    self.enter(process, kind);
                }
                Act::Take
            }
        }
    }

    fn lives(&mut self, process: usize) -> Act {
        match self.random.below(20) {
            0..9 => {
                let child = self.random.below(PROCESSES as u64) as usize;
                if self.tables[child].is_none() {
                    self.tables[child] = self.tables[process].clone();
                }
                Act::Fork { child }
            }
            9..12 => Act::Exec,
            12 | 13 => self.end(process, Act::Exit),
            14 => self.end(process, Act::Kill),
            15 | 16 => Act::Interrupt,
            17 | 18 => Act::Disturb,
            _ => Act::StopAndContinue,
        }
    }

    fn end(&mut self, process: usize, how: Act) -> Act {
        if self.tables.iter().flatten().count() > 1 {
            self.tables[process] = None;
        }
        how
    }

    fn polling(&mut self, process: usize) -> Act {
        let fd = self.number(process, Kind::Queue);
        let set = self.number(process, Kind::Set);
        match self.random.below(20) {
            0..3 => Act::Poll {
                fds: [fd, self.number(process, Kind::Queue)],
                events: self.random.pick(&[
                    libc::POLLIN,
                    libc::POLLOUT,
                    libc::POLLIN | libc::POLLOUT,
                ]),
                waits: self.blocks(),
            },
            3 => Act::Select { fd },
            4..7 => {
                self.enter(process, Kind::Set);
                Act::MakeSet
            }
            7..14 => Act::Control {
                set,
                operation: self.random.weighted(&[
                    (6, libc::EPOLL_CTL_ADD),
                    (2, libc::EPOLL_CTL_MOD),
                    (1, libc::EPOLL_CTL_DEL),
                ]),
                fd,
                events: (self.random.pick(&EVENTS) | self.random.pick(&WAYS)).cast_unsigned(),
            },
            _ => Act::WaitSet {
                set,
                waits: self.blocks(),
            },
        }
    }

    fn notices(&mut self, process: usize) -> Act {
        let fd = self.number(process, Kind::Queue);
        match self.random.below(10) {
            0..4 => Act::Notify {
                fd,
                signal: Some(
                    self.random
                        .pick(&[0, notices::SIGNALS[0], notices::SIGNALS[1]]),
                ),
            },
            4 => Act::Notify { fd, signal: None },
            5..8 => Act::Notices,
            _ => Act::StatusLine { fd },
        }
    }

    fn typed(&mut self) -> Act {
        let (key, waits) = (self.name(), self.blocks());
        match self.random.below(24) {
            0..4 => Act::Get {
                key,
                flags: self.random.pick(&[
                    libc::IPC_CREAT,
                    libc::IPC_CREAT,
                    libc::IPC_CREAT | libc::IPC_EXCL,
                    0,
                ]),
            },
            4..11 => Act::SendTyped {
                key,
                kind: 1 + self.random.below(3) as i64,
                waits,
            },
            11..19 => Act::ReceiveTyped {
                key,
                kind: self.random.pick(&[0, 0, 1, 2, -2, -3]),
                waits,
            },
            19 | 20 => Act::LimitBytes {
                key,
                bytes: self.random.pick(&[4, 8, 12, 16384]),
            },
            21 => Act::Remove { key },
            _ => Act::Count { key },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_the_same_histories_again() {
        let histories = || {
            let mut generator = Generator::new(7);
            [generator.history(), generator.history()]
        };
        assert_eq!(histories(), histories());
    }

    #[test]
    fn a_history_has_40_to_80_steps() {
        let mut generator = Generator::new(1);
        for _ in 0..100 {
            assert!((40..=80).contains(&generator.history().len()));
        }
    }
}
