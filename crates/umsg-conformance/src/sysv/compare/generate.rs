//! Random histories: their steps, and the steps that the kernel's limits exclude.

use libc::{
    IPC_CREAT, IPC_EXCL, IPC_NOWAIT, IPC_STAT, MSG_EXCEPT, MSG_INFO, MSG_NOERROR, MSG_STAT,
};

use super::call::{Call, SLOTS, Size, Target, Whose};
use crate::compare::{self, Histories, Random, processes};
use crate::sysv::backend::{Change, IPC_INFO, MSG_COPY, MSG_STAT_ANY};

type Operation = compare::Operation<Call>;
type Step = compare::Step<Call>;

/// The number of keys.
pub const KEYS: usize = 3;

/// The abilities of the two sides, which limit the steps of histories.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    /// True if a history can have processes of several users.
    pub users: bool,
    /// True if the namespace contains no queues of processes outside the history.
    pub alone: bool,
    /// True if users without access to a queue can see the queue's counts.
    pub strangers: bool,
    /// True if a call can have a size that is too large for every slice.
    pub pointers: bool,
}

/// The character of a history: how often each kind of operation occurs, and the range of types, sizes and keys.
#[derive(Debug, Clone, Copy)]
struct Character {
    slots: u64,
    keys: u64,
    types: u64,
    blocking: u64,
    longest: u64,
    max_bytes: u64,
    traffic: u64,
    registry: u64,
    control: u64,
    processes: u64,
}

/// Makes histories.
pub struct Generator {
    random: Random,
    bounds: Bounds,
    character: Character,
    sends: u64,
    /// A slot whose queue an earlier step may have removed.
    gone: Option<usize>,
    unasked: u64,
}

impl Generator {
    /// Creates a generator with this seed.
    pub fn new(seed: u64, bounds: Bounds) -> Generator {
        let mut random = Random::new(seed);
        let character = Character::by_chance(&mut random);
        Generator {
            random,
            bounds,
            character,
            sends: 5,
            gone: None,
            unasked: 0,
        }
    }
}

impl Character {
    fn by_chance(random: &mut Random) -> Character {
        Character {
            slots: random.pick(&[1, 2, SLOTS as u64]),
            keys: 1 + random.below(KEYS as u64),
            types: random.pick(&[1, 2, 5, 60]),
            blocking: random.pick(&[0, 10, 40, 80]),
            longest: random.pick(&[4, 20, 200, 3000]),
            max_bytes: random.pick(&[3, 30, 100, 1000, 16384]),
            traffic: random.pick(&[60, 150, 400]),
            registry: random.pick(&[3, 10, 40]),
            control: random.pick(&[10, 40]),
            processes: random.pick(&[2, 6, 20]),
        }
    }
}

impl Histories<Call> for Generator {
    fn history(&mut self, length: usize) -> Vec<Step> {
        self.character = Character::by_chance(&mut self.random);
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
        let mut unasked = Vec::new();
        if !self.bounds.alone {
            unasked.push(format!(
                "{} times for totals or for an index, because the queues of other processes are visible",
                self.unasked
            ));
        }
        if !self.bounds.strangers {
            unasked.push(
                "the counts of a queue for a process without access, which can't map the queue"
                    .to_string(),
            );
        }
        if unasked.is_empty() {
            return "nothing".to_string();
        }
        unasked.join("; ")
    }
}

impl Generator {
    /// Returns the first steps of a history. The first worker creates queues, and then forks workers.
    fn beginning(&mut self) -> Vec<Step> {
        let mut operations = vec![Operation::Umask { mask: 0o777 }];
        for slot in 0..self.character.slots as usize {
            operations.push(Operation::Call(Call::Get {
                slot,
                key: (slot < KEYS).then_some(slot),
                flags: IPC_CREAT | 0o666,
            }));
            let change = Change {
                uid: 0,
                gid: 0,
                mode: 0o666,
                max_bytes: self.character.max_bytes,
            };
            let target = Target::Slot(slot);
            operations.push(Operation::Call(Call::Set { target, change }));
        }
        let steps = operations.into_iter().map(|operation| Step {
            worker: 0,
            operation,
        });
        let mut steps: Vec<Step> = steps.collect();
        steps.extend(processes::beginning(&mut self.random, self.bounds.users));
        steps
    }

    fn step(&mut self) -> Step {
        let Character {
            traffic,
            registry,
            control,
            processes,
            ..
        } = self.character;
        let make: fn(&mut Generator) -> Operation = self.random.weighted(&[
            (traffic, |this| Operation::Call(this.traffic())),
            (registry, |this| Operation::Call(this.registry())),
            (control, |this| Operation::Call(this.control())),
            (processes, |this| {
                processes::change(&mut this.random, this.bounds.users)
            }),
        ]);
        let worker = processes::actor(&mut self.random);
        let operation = match self.gone.take_if(|_| self.random.percent(20)) {
            Some(slot) => Operation::Call(self.another(slot)),
            None => make(self),
        };
        Step { worker, operation }
    }

    fn slot(&mut self) -> usize {
        // Slot 0 contains the identifier of a queue from the start of the history.
        if self.random.percent(40) {
            return 0;
        }
        self.random.below(self.character.slots) as usize
    }

    fn target(&mut self) -> Target {
        let slot = self.slot();
        match self.random.below(60) {
            0 => Target::Number(self.random.pick(&[-1, i32::MIN, i32::MAX])),
            1 if self.bounds.alone => Target::NextSequence(slot),
            2 if self.bounds.alone => Target::Number(self.random.below(8) as i32),
            _ => Target::Slot(slot),
        }
    }

    fn blocks(&mut self) -> i32 {
        if self.random.percent(self.character.blocking) {
            0
        } else {
            IPC_NOWAIT
        }
    }

    /// Returns a random call that sends or receives.
    fn traffic(&mut self) -> Call {
        if self.random.below(10) < self.sends {
            self.send()
        } else {
            self.receive()
        }
    }

    fn send(&mut self) -> Call {
        let target = self.target();
        let mtype = match self.random.below(40) {
            0 => self.random.pick(&[0, -1, i64::MIN, i64::MAX]),
            _ => 1 + self.random.below(self.character.types) as i64,
        };
        let size = match self.random.below(60) {
            0 => Size::Of(self.random.pick(&[8192, 8193, 100_000])),
            1 => self.wrong(),
            2..10 => Size::Of(0),
            _ => Size::Of(self.random.below(self.character.longest + 1) as usize),
        };
        // A send must ignore the flags that only a receive has, so some sends pass one of these flags.
        let mut flags = self.blocks();
        if self.random.percent(3) {
            flags |= self.random.pick(&[MSG_NOERROR, MSG_EXCEPT, MSG_COPY]);
        }
        Call::Send {
            target,
            mtype,
            size,
            flags,
        }
    }

    fn receive(&mut self) -> Call {
        let target = self.target();
        let mut flags = self.blocks();
        for (percent, flag) in [(20, MSG_NOERROR), (10, MSG_EXCEPT)] {
            if self.random.percent(percent) {
                flags |= flag;
            }
        }
        let mut mtype = self.wanted();
        if self.random.percent(15) {
            flags |= MSG_COPY;
            if self.random.percent(80) {
                flags = (flags | IPC_NOWAIT) & !MSG_EXCEPT;
                mtype = self.random.below(12) as i64;
            }
        }
        let longest = self.character.longest;
        let size = match self.random.below(60) {
            0 => Size::Of(self.random.pick(&[8192, 8193, 100_000])),
            1 => self.wrong(),
            2..5 => Size::Of(0),
            5..15 => Size::Of(self.random.below(longest + 1) as usize),
            _ => Size::Of(longest as usize + self.random.below(3) as usize),
        };
        Call::Receive {
            target,
            size,
            mtype,
            flags,
        }
    }

    /// Returns a random type argument of a receive.
    fn wanted(&mut self) -> i64 {
        let one = 1 + self.random.below(self.character.types) as i64;
        match self.random.below(20) {
            0..9 => 0,
            9..14 => one,
            14..19 => -one,
            _ => self
                .random
                .pick(&[i64::MIN, i64::MIN + 1, i64::MAX, one + 1, -one - 1]),
        }
    }

    /// Returns a size that is too large for every message.
    fn wrong(&mut self) -> Size {
        if self.bounds.pointers {
            Size::Wrong(self.random.pick(&[-1, i64::MIN, -4096]))
        } else {
            Size::Of(8193)
        }
    }

    /// Returns a call that creates, finds or removes a queue.
    fn registry(&mut self) -> Call {
        if self.random.percent(20) {
            let target = self.target();
            if let Target::Slot(slot) = target {
                self.gone = Some(slot);
            }
            return Call::Remove { target };
        }
        let mut flags = self.random.pick(&[
            0o600, 0o666, 0o666, 0o666, 0o660, 0o644, 0o640, 0o620, 0o622, 0o400, 0o200, 0o444,
            0o222, 0, 0o006, 0o060, 0o777,
        ]);
        for (percent, flag) in [(70, IPC_CREAT), (15, IPC_EXCL), (3, 0o7000)] {
            if self.random.percent(percent) {
                flags |= flag;
            }
        }
        let key = self.random.below(self.character.keys) as usize;
        Call::Get {
            slot: self.slot(),
            key: self.random.percent(85).then_some(key),
            flags,
        }
    }

    /// Returns a call that creates or finds a queue and stores its identifier in this slot.
    fn another(&mut self, slot: usize) -> Call {
        let key = self.random.below(self.character.keys) as usize;
        Call::Get {
            slot,
            key: self.random.percent(50).then_some(key),
            flags: IPC_CREAT | self.random.pick(&[0o666, 0o600]),
        }
    }

    /// Returns a random call that inspects or changes a queue.
    fn control(&mut self) -> Call {
        let target = self.target();
        match self.random.below(30) {
            0..10 => look(target, IPC_STAT, Whose::Everybodys),
            10..15 => self.look(target),
            15..19 => self.total(),
            19 if self.bounds.pointers => Call::Control {
                target,
                command: self.random.pick(&[4, 10, 99, -1, i32::MIN, i32::MAX]),
            },
            _ => self.set(target),
        }
    }

    /// Returns a call of `MSG_STAT` or `MSG_STAT_ANY` with an index. Without a private namespace, the index may belong to another process's queue, so
    /// the result is a call of `IPC_STAT` with an identifier.
    fn look(&mut self, target: Target) -> Call {
        if !self.bounds.alone {
            self.unasked += 1;
            return look(target, IPC_STAT, Whose::Everybodys);
        }
        let index = Target::IndexOf(self.slot());
        let target = self.random.pick(&[target, index]);
        if self.random.percent(50) {
            return look(target, MSG_STAT, Whose::Everybodys);
        }
        look(target, MSG_STAT_ANY, self.whose())
    }

    /// Returns the processes whose view of all queues is the same on both sides.
    fn whose(&self) -> Whose {
        if self.bounds.strangers {
            Whose::Everybodys
        } else {
            Whose::Roots
        }
    }

    fn total(&mut self) -> Call {
        let command = self.random.pick(&[MSG_INFO, MSG_INFO, MSG_INFO, IPC_INFO]);
        if !self.bounds.alone {
            self.unasked += 1;
            return self.look(Target::Slot(0));
        }
        let whose = if command == MSG_INFO {
            self.whose()
        } else {
            Whose::Everybodys
        };
        Call::Info { command, whose }
    }

    fn set(&mut self, target: Target) -> Call {
        let (uid, gid) = self.random.weighted(&[
            (12, (0, 0)),
            (2, (65534, 65534)),
            (2, (65533, 0)),
            (1, (65531, 65534)),
            (1, (u32::MAX, 0)),
            (1, (0, u32::MAX)),
        ]);
        let mode = if self.random.percent(5) {
            self.random.below(1 << 16) as u32
        } else {
            self.random.pick(&[
                0o666, 0o666, 0o600, 0o660, 0o640, 0o620, 0o606, 0, 0o444, 0o222,
            ])
        };
        let max_bytes = match self.random.below(20) {
            0 => self.random.pick(&[16385, 1 << 30, u64::MAX, 1 << 63]),
            1 => 0,
            2 | 3 => 16384,
            4..8 => self.character.max_bytes,
            _ => self.random.below(2 * self.character.max_bytes).min(16384),
        };
        let change = Change {
            uid,
            gid,
            mode,
            max_bytes,
        };
        Call::Set { target, change }
    }
}

fn look(target: Target, command: i32, whose: Whose) -> Call {
    Call::Stat {
        target,
        command,
        whose,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn generator(seed: u64, yes: bool) -> Generator {
        let bounds = Bounds {
            users: yes,
            alone: yes,
            strangers: yes,
            pointers: yes,
        };
        Generator::new(seed, bounds)
    }

    #[test]
    fn a_seed_gives_the_same_histories_again() {
        let histories = || {
            let mut generator = generator(7, true);
            [generator.history(300), generator.history(300)]
        };
        assert_eq!(histories(), histories());
    }

    #[test]
    fn what_belongs_to_others_is_asked_only_when_there_are_none() {
        let asked = |yes| {
            let mut generator = generator(1, yes);
            let steps: Vec<Step> = (0..100).flat_map(|_| generator.history(300)).collect();
            let asked = steps.iter().filter(|step| match step.operation {
                Operation::Call(Call::Info { .. }) => true,
                Operation::Call(Call::Stat { command, .. }) => command != IPC_STAT,
                Operation::Call(call) => matches!(
                    call.target(),
                    Some(Target::NextSequence(_) | Target::Number(0..8))
                ),
                _ => false,
            });
            (asked.count(), generator.unasked)
        };
        let [(some, none), (nothing, unasked)] = [true, false].map(asked);
        assert!(some > 100 && none == 0, "{some} {none}");
        assert!(nothing == 0 && unasked > 100, "{nothing} {unasked}");
    }
}
