//! What another user can do to a namespace: a table of subjects, objects and operations.
//!
//! The objects are found by a walk through a namespace in use, and the names that do not exist yet by a look at what the victims make. Each operation
//! must be refused unless the modes grant it, and must leave the victims unharmed: two processes of another user and two of root go on with
//! everything that they do (send, receive, wait, poll, notify, create, open, remove, list, diagnose), each step within a bound. They do without the
//! one queue that the modes grant the adversary something of, or without the one name that it was the first to use.

#[path = "adversary/actor.rs"]
mod actor;
#[allow(dead_code, reason = "the library's tests use the rest")]
#[path = "../../umsg/tests/support/fault.rs"]
mod fault;
#[path = "adversary/names.rs"]
mod names;
#[path = "adversary/objects.rs"]
mod objects;
#[path = "adversary/operations.rs"]
mod operations;
#[path = "adversary/stage.rs"]
mod stage;
mod support;
#[path = "adversary/victims.rs"]
mod victims;

use std::path::Path;

use actor::{Actor, User};
use objects::{Entry, KINDS, Kind, grants, kind};
use operations::{Act, OPERATIONS, Operation, PLANTS};
use stage::{MEMBER, STRANGER, Stage, Without};
use support::compiler::Workshop;

/// What an adversary answers whose operation succeeded.
const SUCCESS: &str = "done";
/// After so many failed cells a test gives up.
const MOST_FAILURES: usize = 12;

/// The cells that failed.
#[derive(Default)]
struct Failures(Vec<String>);

impl Failures {
    /// Notes a failed cell; whether it was one.
    fn note(&mut self, cell: &str, result: Result<(), String>) -> bool {
        if let Err(error) = &result {
            eprintln!("failed: {cell}: {error}");
            self.0.push(format!("{cell}: {error}"));
        }
        let failures = self.0.len();
        assert!(failures < MOST_FAILURES, "{}", self.0.join("\n"));
        result.is_err()
    }

    /// A new stage. Beside nobody, the victims must do well.
    fn stage(&mut self, command: &Path) -> Stage {
        loop {
            match Stage::new(command) {
                Ok(stage) => return stage,
                Err(error) => self.note("no adversary", Err(error)),
            };
        }
    }

    fn expect_none(self) {
        assert!(self.0.is_empty(), "{}", self.0.join("\n"));
    }
}

/// Several users, or none if the test is not root.
fn is_root() -> bool {
    let root = support::is_root();
    if !root {
        eprintln!("left out: needs root, to act as several users");
    }
    root
}

/// A process of a user that tries the operations of a table, each when its number is ordered, and keeps what it holds of them as long as it lives.
fn adversary(user: User, acts: Vec<Act>, path: &Path, own: &Path) -> Result<Actor, String> {
    let (path, own) = (path.to_owned(), own.to_owned());
    let adversary = Actor::start(user, user.name, move || {
        let mut held = Vec::new();
        Ok(
            move |order: &str| match acts[order.parse::<usize>().unwrap()](&path, &own) {
                Ok(more) => {
                    held.extend(more);
                    Ok(SUCCESS.to_owned())
                }
                Err(error) => Ok(error.to_string()),
            },
        )
    });
    adversary.answer()?;
    Ok(adversary)
}

#[test]
fn everything_in_a_namespace_is_of_a_known_kind_and_grants_what_its_maker_asked_for() {
    if !is_root() {
        return;
    }
    let workshop = Workshop::new();
    let mut failures = Failures::default();
    let stage = failures.stage(&stage::command(&workshop));
    for entry in stage.entries() {
        failures.note(&entry.path, grants_what_was_asked_for(&stage, &entry));
    }
    failures.expect_none();
}

fn grants_what_was_asked_for(stage: &Stage, entry: &Entry) -> Result<(), String> {
    use std::os::unix::fs::MetadataExt;
    let kind = kind(entry)?;
    let (_, _, most) = KINDS.iter().find(|row| row.0 == kind).unwrap();
    let place = stage.place_of(entry, kind);
    let asked = stage.kept().find(|object| object.place == place);
    // A process needs both rights to use a queue: the library tells senders from receivers.
    let most = match asked.map(|object| object.mode) {
        Some(mode) if matches!(kind, Kind::Queue | Kind::Ring | Kind::Socket) => {
            let class = |bits: u32| {
                if mode & bits == 0 {
                    0
                } else {
                    bits | bits >> 2
                }
            };
            most & (class(0o060) | class(0o006))
        }
        _ => *most,
    };
    let granted = entry.meta.mode() & 0o077;
    match granted & !most {
        0 => Ok(()),
        _ => Err(format!("mode {granted:03o} grants more than {most:03o}")),
    }
}

/// Has a user try operations on an entry, all by one process, and lets the victims go on beside it if any succeeded. Whether any did.
fn cell(
    stage: &mut Stage,
    command: &Path,
    (user, entry, operations): (User, &Entry, &[&Operation]),
) -> Result<bool, String> {
    let path = stage.space.join(&entry.path);
    let acts = operations.iter().map(|operation| operation.act).collect();
    let adversary = adversary(user, acts, &path, &stage.own())?;
    let mut harmful = false;
    for (number, operation) in operations.iter().enumerate() {
        if adversary.ask(&number.to_string())? == SUCCESS {
            if !grants(user, entry, operation.needs) {
                return Err(format!("{} was not refused", operation.name));
            }
            harmful = true;
        }
    }
    if harmful {
        // The adversary may do to that queue what it likes.
        let skipped = stage.place_of(entry, kind(entry)?);
        let without = Without {
            skipped: &skipped,
            spoiled: "",
        };
        stage.round(command, without)?;
    }
    Ok(harmful)
}

/// All cells of the table, of which some are tried together. Those together that do harm are tried one by one to name them.
struct Table<'a> {
    command: &'a Path,
    stage: Stage,
    failures: Failures,
}

impl Table<'_> {
    /// Tries operations on the entry at a position: inodes and random names differ on a new stage, but the order of the entries does not.
    fn try_together(&mut self, user: User, at: usize, operations: &[&Operation]) {
        let entries = self.stage.entries();
        let Some(entry) = entries.get(at) else { return };
        let done = cell(&mut self.stage, self.command, (user, entry, operations));
        let changes = operations.iter().any(|operation| operation.changes);
        if done.is_err() || done == Ok(true) && changes {
            self.stage = self.failures.stage(self.command);
        }
        if done.is_err() && operations.len() > 1 {
            let failures = self.failures.0.len();
            for operation in operations {
                self.try_together(user, at, &[operation]);
            }
            if self.failures.0.len() > failures {
                return;
            }
        }
        let names: Vec<&str> = operations.iter().map(|operation| operation.name).collect();
        let name = format!("{}: {}: {}", user.name, entry.path, names.join(", "));
        self.failures.note(&name, done.map(drop));
    }
}

#[test]
fn what_a_stranger_does_to_an_object_harms_nobody_else() {
    if !is_root() {
        return;
    }
    let workshop = Workshop::new();
    let command = stage::command(&workshop);
    let mut table = Table {
        command: &command,
        stage: Failures::default().stage(&command),
        failures: Failures::default(),
    };
    let (changing, others): (Vec<_>, Vec<_>) =
        OPERATIONS.iter().partition(|operation| operation.changes);
    for at in 0..table.stage.entries().len() {
        for user in [STRANGER, MEMBER] {
            table.try_together(user, at, &others);
            for operation in &changing {
                table.try_together(user, at, &[operation]);
            }
        }
    }
    table.failures.expect_none();
}

#[test]
fn what_a_stranger_puts_where_nothing_is_harms_nobody_else() {
    if !is_root() {
        return;
    }
    let workshop = Workshop::new();
    let command = stage::command(&workshop);
    let mut failures = Failures::default();
    let mut stage = failures.stage(&command);
    let names = names::learn(&mut stage).unwrap();
    println!("names: {}", names.join(", "));
    for name in &names {
        for (what, act) in PLANTS {
            let cell = format!("stranger: {what} as {name}");
            let done = plant(&mut stage, &command, name, *act);
            if failures.note(&cell, done) {
                stage = failures.stage(&command);
            }
        }
    }
    failures.expect_none();
}

/// Puts something under a name that the victims are about to use, and lets them.
fn plant(stage: &mut Stage, command: &Path, name: &str, act: Act) -> Result<(), String> {
    let newcomers = stage.newcomers();
    let own = stage.own();
    let mut planted = Vec::new();
    for path in names::expand(name, &newcomers.pids()) {
        let path = stage.space.join(path);
        let adversary = adversary(STRANGER, vec![act], &path, &own)?;
        if adversary.ask("0")? == SUCCESS {
            planted.push((adversary, path));
        }
    }
    if planted.is_empty() {
        return Ok(());
    }
    let without = Without {
        skipped: "",
        spoiled: name,
    };
    let done = stage.round_with(command, without, &newcomers);
    let done = done.and_then(|()| stage.collect_garbage(command, without));
    for (_, path) in &planted {
        names::remove(path);
    }
    done
}

#[test]
fn what_a_stranger_puts_into_a_namespace_before_its_first_user_harms_nobody() {
    if !is_root() {
        return;
    }
    let workshop = Workshop::new();
    let command = stage::command(&workshop);
    let mut failures = Failures::default();
    let used = failures.stage(&command);
    let empty = Stage::at_boot();
    let is_known = |entry: &Entry| empty.space.join(&entry.path).symlink_metadata().is_ok();
    // What is not of one queue alone.
    let common = [Kind::Record, Kind::Next, Kind::Directory];
    let entries = used.entries().into_iter().filter(|entry| !is_known(entry));
    let mut names: Vec<String> = entries
        .filter(|entry| kind(entry).is_ok_and(|kind| common.contains(&kind)))
        .map(|entry| entry.path)
        .collect();
    names.push(names::INDEX.to_owned());
    for name in &names {
        for (what, act) in PLANTS {
            let done = plant_first(&command, name, *act);
            failures.note(&format!("stranger: {what} as {name}, first of all"), done);
        }
    }
    failures.expect_none();
}

/// Puts something into a namespace that nobody has used, and has the victims come.
fn plant_first(command: &Path, name: &str, act: Act) -> Result<(), String> {
    let mut stage = Stage::at_boot();
    let own = stage.own();
    let mut adversaries = Vec::new();
    let mut is_harmful = false;
    for path in names::expand(name, &[]) {
        let adversary = adversary(STRANGER, vec![act], &stage.space.join(path), &own)?;
        is_harmful |= adversary.ask("0")? == SUCCESS;
        adversaries.push(adversary);
    }
    match is_harmful {
        true => stage.open(command),
        false => Ok(()),
    }
}
