//! Random histories: their steps, and the steps that the kernel's limits exclude.

mod descriptors;
mod events;
mod openings;

use super::call::{Call, Deadline, SLOTS, Size, Slot};
use crate::backend::Attributes;
use crate::compare::Histories;
use crate::compare::operation;
use crate::compare::processes;
use crate::compare::random::Random;

type Operation = operation::Operation<Call>;
type Step = operation::Step<Call>;

/// The limits of a history's steps, mostly taken from the kernel's limits.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    /// The largest depth of a queue, in messages.
    pub max_messages: i64,
    /// The longest message, in bytes.
    pub max_message_size: i64,
    /// The most bytes that the queues of a history take. The budget is below RLIMIT_MSGQUEUE, because other processes of the user need a part of that
    /// limit.
    pub budget: i64,
    /// True if a history can have processes of several users.
    pub users: bool,
    /// True if both sides have real descriptors.
    pub descriptors: bool,
    /// The number of valid names. The invalid names follow them in the list of names.
    pub valid_names: usize,
    /// The number of all names, valid and invalid.
    pub names: usize,
}

/// The numbers of steps that were omitted because of the kernel's limits.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Unasked {
    /// Queues with a depth above the kernel's limit.
    pub depth: u64,
    /// Messages longer than the kernel's limit.
    pub length: u64,
    /// Queues that would take more memory than the history's budget has left.
    pub memory: u64,
}

/// The character of a history: how often each kind of operation occurs, and which possibilities the history uses.
#[derive(Debug, Clone, Copy)]
struct Character {
    names: u64,
    blocking: u64,
    priorities: u64,
    traffic: u64,
    opening: u64,
    descriptors: u64,
    processes: u64,
    polling: u64,
    /// True if epoll sets are used.
    sets: bool,
    notices: u64,
    users: bool,
    open_to_all: bool,
    slots: usize,
}

/// Makes histories.
pub struct Generator {
    random: Random,
    bounds: Bounds,
    character: Character,
    left: i64,
    sends: u64,
    /// The numbers of steps that were omitted so far.
    pub unasked: Unasked,
}

/// The set-user-ID and set-group-ID bits. chown(2) clears these bits for reasons that do not concern queues.
const SET_ID: u32 = 0o6000;

impl Generator {
    /// Creates the generator of this seed.
    pub fn new(seed: u64, bounds: Bounds) -> Generator {
        let character = Character {
            names: 1,
            blocking: 0,
            priorities: 1,
            traffic: 0,
            opening: 0,
            descriptors: 0,
            processes: 0,
            polling: 0,
            sets: false,
            notices: 0,
            users: false,
            open_to_all: false,
            slots: 1,
        };
        Generator {
            random: Random::new(seed),
            bounds,
            character,
            left: 0,
            sends: 5,
            unasked: Unasked::default(),
        }
    }
}

impl Histories<Call> for Generator {
    fn history(&mut self, length: usize) -> Vec<Step> {
        let random = &mut self.random;
        self.character = Character {
            names: 1 + random.below(3),
            blocking: random.pick(&[0, 5, 30, 70]),
            priorities: random.pick(&[1, 2, 4, 100, 32768]),
            traffic: random.pick(&[40, 120, 400]),
            opening: random.pick(&[5, 20, 60]),
            descriptors: random.pick(&[2, 15, 60]),
            processes: random.pick(&[2, 6, 20]),
            polling: random.pick(&[0, 0, 30, 120]),
            sets: self.bounds.descriptors,
            notices: random.pick(&[0, 0, 20, 60]),
            users: self.bounds.users,
            open_to_all: false,
            slots: random.pick(&[1, 3, SLOTS]),
        };
        self.settle_character();
        self.left = self.bounds.budget;
        let mut steps = self.beginning();
        while steps.len() < length {
            if steps.len().is_multiple_of(30) {
                self.sends = self.random.pick(&[2, 5, 8]);
            }
            steps.push(self.step());
        }
        steps
    }

    fn unasked(&self) -> String {
        let Unasked {
            depth,
            length,
            memory,
        } = self.unasked;
        format!(
            "{depth} queues deeper than {}, {length} with longer messages than it allows, {memory} beyond its memory limit",
            self.bounds.max_messages
        )
    }
}

impl Generator {
    /// Changes the character so that the history has no combination of operations that can't be compared.
    fn settle_character(&mut self) {
        let [is_even, is_odd] = [(); 2].map(|()| self.random.percent(50));
        let character = &mut self.character;
        if !self.bounds.descriptors {
            character.notices = 0;
            character.polling /= 4;
        }
        // A signal to another user's process arrives a little later, and may interrupt the next call of that process.
        if character.notices > 0 && character.users {
            if is_even {
                character.users = false;
            } else {
                character.blocking = 0;
            }
        }
        // If a process has inherited a queue whose mode denies it access, the process can't ring the doorbell of the queue's pollers.
        if character.polling > 0 && character.users {
            character.users = is_odd;
            character.open_to_all = is_odd;
            // An epoll set shows another user's operations a little later. The workers repeat `poll` and `select` until these operations are visible.
            // `epoll_wait` can't be repeated, because its answer consumes edges.
            character.sets &= !is_odd;
        }
    }

    /// Returns the first steps of a history. The first worker creates a queue, and then forks workers that inherit the queue.
    fn beginning(&mut self) -> Vec<Step> {
        let attributes = Some(Attributes::new(1 + self.random.below(4) as i64, 16));
        let flags = libc::O_CREAT | libc::O_RDWR | if self.blocks() { 0 } else { libc::O_NONBLOCK };
        let open = Call::Open {
            slot: 0,
            name: 0,
            flags,
            mode: 0o666,
            attributes,
        };
        let mut steps = vec![Step {
            worker: 0,
            operation: Operation::Umask { mask: 0 },
        }];
        steps.push(Step {
            worker: 0,
            operation: Operation::Call(open),
        });
        // If the first worker makes the epoll set before the forks, the other workers inherit the set.
        let watches = self.character.sets && self.character.polling > 0;
        let inherits = self.random.percent(50);
        if watches && inherits {
            steps.extend(self.watching());
        }
        steps.extend(processes::beginning(&mut self.random, self.character.users));
        if watches && !inherits {
            steps.extend(self.watching());
        }
        steps
    }

    fn blocks(&mut self) -> bool {
        self.random.percent(self.character.blocking)
    }

    fn slot(&mut self) -> Slot {
        // Slot 0 contains the descriptor of the queue that the first steps opened.
        if self.random.percent(50) {
            return 0;
        }
        self.random.below(self.character.slots as u64) as Slot
    }

    fn step(&mut self) -> Step {
        let Character {
            traffic,
            opening,
            descriptors,
            processes,
            polling,
            notices,
            ..
        } = self.character;
        let descriptors = if self.bounds.descriptors {
            descriptors
        } else {
            descriptors / 4
        };
        let make: fn(&mut Generator) -> Operation = self.random.weighted(&[
            (traffic, |this| Operation::Call(this.traffic())),
            (opening, Generator::opening as _),
            (descriptors, |this| Operation::Call(this.descriptor())),
            (processes, |this| {
                processes::change(&mut this.random, this.character.users)
            }),
            (polling, |this| Operation::Call(this.polling())),
            (notices, |this| Operation::Call(this.notices())),
        ]);
        let worker = processes::actor(&mut self.random);
        Step {
            worker,
            operation: make(self),
        }
    }

    /// Returns a random call that sends or receives.
    fn traffic(&mut self) -> Call {
        let (slot, deadline) = (self.slot(), self.deadline());
        if self.random.below(10) < self.sends {
            let wish = self.random.below(1 << 14) as usize;
            let size = self.random.weighted(&[
                (4, Size::Zero),
                (2, Size::Within(1)),
                (20, Size::Within(wish)),
                (10, Size::Exact),
                (2, Size::More(1)),
                (1, Size::More(100_000)),
            ]);
            return Call::Send {
                slot,
                size,
                priority: self.priority(),
                deadline,
            };
        }
        let size = self.random.weighted(&[
            (30, Size::Exact),
            (8, Size::More(1)),
            (4, Size::More(1000)),
            (2, Size::OneLess),
            (1, Size::Zero),
        ]);
        Call::Receive {
            slot,
            size,
            deadline,
        }
    }

    fn priority(&mut self) -> u32 {
        match self.random.below(60) {
            0 => self.random.pick(&[32768, 65536, 1 << 31, u32::MAX]),
            1 => self.random.pick(&[0, 31, 32, 1023, 1024, 32767]),
            _ => self.random.below(self.character.priorities) as u32,
        }
    }

    fn deadline(&mut self) -> Deadline {
        let deadline = match self.random.below(100) {
            0..70 => Deadline::Never,
            70..73 => Deadline::Null,
            73..87 => Deadline::Past,
            87..88 => Deadline::Soon(1 + self.random.below(4) as i64),
            88..96 => Deadline::Distant,
            _ => Deadline::Invalid(self.random.below(Deadline::INVALIDS as u64) as usize),
        };
        match deadline {
            Deadline::Invalid(_) if !self.bounds.descriptors => Deadline::Past,
            deadline => deadline,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bounds(descriptors: bool) -> Bounds {
        Bounds {
            max_messages: 10,
            max_message_size: 8192,
            budget: 150_000,
            users: false,
            descriptors,
            valid_names: 3,
            names: 9,
        }
    }

    #[test]
    fn a_seed_gives_the_same_histories_again() {
        let histories = || {
            let mut generator = Generator::new(7, bounds(true));
            [generator.history(300), generator.history(300)]
        };
        assert_eq!(histories(), histories());
    }

    #[test]
    fn the_queues_of_a_history_stay_within_its_budget() {
        let mut generator = Generator::new(1, bounds(true));
        for _ in 0..200 {
            let mut cost = 0;
            for step in generator.history(300) {
                let Operation::Call(Call::Open {
                    flags,
                    name,
                    attributes,
                    ..
                }) = step.operation
                else {
                    continue;
                };
                let Attributes {
                    max_messages,
                    message_size,
                    ..
                } = attributes.unwrap_or(Attributes::new(10, 8192));
                let is_made =
                    (1..=10).contains(&max_messages) && (1..=8192).contains(&message_size);
                if flags & libc::O_CREAT != 0 && name < 3 && is_made {
                    // When the budget is used up, only the smallest queues are created.
                    let cost_of_this = generator.cost(max_messages, message_size);
                    cost += if cost_of_this > 4 * (16 + 128) + 1024 {
                        cost_of_this
                    } else {
                        0
                    };
                }
            }
            assert!(cost <= 150_000, "{cost} bytes");
        }
        assert!(
            generator.unasked.depth > 0
                && generator.unasked.length > 0
                && generator.unasked.memory > 0
        );
    }

    #[test]
    fn no_set_is_used_where_several_users_poll() {
        let bounds = Bounds {
            users: true,
            ..bounds(true)
        };
        let mut generator = Generator::new(1, bounds);
        let uses_sets = |step: &Step| {
            matches!(
                step.operation,
                Operation::Call(Call::MakeSet { .. } | Call::Register { .. } | Call::Wait { .. })
            )
        };
        let changes_user =
            |step: &Step| matches!(step.operation, Operation::Fork { user: Some(_), .. });
        let histories: Vec<Vec<Step>> = (0..100).map(|_| generator.history(300)).collect();
        let sets = histories.iter().filter(|steps| steps.iter().any(uses_sets));
        assert!(sets.clone().count() > 0);
        assert!(!sets.flatten().any(changes_user));
    }

    #[test]
    fn without_users_no_process_becomes_one() {
        let mut generator = Generator::new(1, bounds(true));
        let steps: Vec<Step> = (0..50).flat_map(|_| generator.history(300)).collect();
        assert!(!steps.iter().any(|step| matches!(
            step.operation,
            Operation::Fork { user: Some(_), .. } | Operation::Call(Call::ChangeOwner { .. })
        )));
    }
}
