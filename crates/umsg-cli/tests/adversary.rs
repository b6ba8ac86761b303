//! Tests the powers of another user over a namespace: a table of subjects, objects and operations.
//!
//! A walk through a namespace in use finds the objects. The test also watches which files the victims create, to find names that do not exist yet.
//! Each operation must be refused unless the modes grant it, and must leave the victims unharmed: two processes of another user and two of root
//! continue all their operations (send, receive, wait, poll, notify, create, open, remove, list, diagnose), each step within a bound. They skip the
//! one queue to which the modes grant the adversary some access, and the one name that the adversary used first.

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

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use actor::{Actor, User};
use objects::{Entry, KINDS, Kind, grants, kind};
use operations::{Act, OPERATIONS, Operation, PLANTS};
use stage::{MEMBER, STRANGER, Stage, Without};
use support::compiler::Workshop;

/// The answer of an adversary whose operation succeeded.
const SUCCESS: &str = "done";
/// The number of failed cells after which a test gives up.
const MOST_FAILURES: usize = 12;
/// The longest description of a failed cell, in characters: logs keep the last lines only.
const LONGEST_LINE: usize = 500;

/// The cells that failed, one line each: user, object, operation, the expected result, and the result with its victim.
#[derive(Default)]
struct Failures(Vec<String>);

impl Failures {
    /// If the result of a cell is an error, notes the cell. Returns whether it is an error.
    fn note(&mut self, cell: &str, result: Result<(), String>) -> bool {
        if let Err(error) = &result {
            eprintln!("{cell}: {error}");
            let line = format!("failed: {cell}: {}", error.replace('\n', " "));
            self.0.push(line.chars().take(LONGEST_LINE).collect());
        }
        let failures = self.0.len();
        assert!(failures < MOST_FAILURES, "{}", self.0.join("\n"));
        result.is_err()
    }

    /// Returns a new stage. If it can't be prepared, because the victims fail without an adversary, notes this and tries again.
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

/// Starts a process of a user that tries operations on paths. An order to the process is the index of an operation in `acts`. The process keeps all
/// resulting descriptors open as long as it lives.
fn adversary(user: User, acts: Vec<(Act, PathBuf)>, own: &Path) -> Result<Actor, String> {
    let own = own.to_owned();
    let adversary = Actor::start(user, user.name, move || {
        let mut held = Vec::new();
        Ok(move |order: &str| {
            let (act, path) = &acts[order.parse::<usize>().unwrap()];
            match act(path, &own) {
                Ok(more) => {
                    held.extend(more);
                    Ok(SUCCESS.to_owned())
                }
                Err(error) => Ok(error.to_string()),
            }
        })
    });
    adversary.answer()?;
    Ok(adversary)
}

#[test]
fn everything_in_a_namespace_is_of_a_known_kind_and_grants_what_its_maker_asked_for() {
    umsg_testkit::needs_root!();
    let workshop = Workshop::new();
    let mut failures = Failures::default();
    let stage = failures.stage(&stage::command(&workshop));
    for entry in stage.entries() {
        failures.note(&entry.path, grants_what_was_asked_for(&stage, &entry));
    }
    failures.expect_none();
}

fn grants_what_was_asked_for(stage: &Stage, entry: &Entry) -> Result<(), String> {
    let kind = kind(entry)?;
    let (_, _, most) = KINDS.iter().find(|row| row.0 == kind).unwrap();
    let place = stage.place_of(entry, kind);
    let asked = stage.kept().find(|object| object.place == place);
    // If the queue's creator permits a user to send or to receive, the file's mode permits both reading and writing. Each user of a queue needs both
    // rights to its file, and the library checks which of the two operations is permitted.
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

/// Lets a process of a user try several operations on an entry. If an operation succeeded, lets the victims perform a round. Returns whether an
/// operation succeeded.
fn cell(
    stage: &mut Stage,
    command: &Path,
    (user, entry, operations): (User, &Entry, &[&Operation]),
) -> Result<bool, String> {
    let path = stage.space.join(&entry.path);
    let acts = operations
        .iter()
        .map(|operation| (operation.act, path.clone()));
    let adversary = adversary(user, acts.collect(), &stage.own())?;
    let mut harmful = false;
    for (number, operation) in operations.iter().enumerate() {
        if adversary.ask(&number.to_string())? == SUCCESS {
            if !grants(user, entry, operation.needs) {
                return Err(format!(
                    "expected that the system refuses {:?}, got success: the mode is {:o}, the owner {}",
                    operation.name,
                    entry.meta.mode() & 0o7777,
                    entry.meta.uid(),
                ));
            }
            harmful = true;
        }
    }
    if harmful {
        // The modes permit the adversary all changes of this queue, so the victims skip the queue.
        let skipped = stage.place_of(entry, kind(entry)?);
        let without = Without {
            skipped: &skipped,
            spoiled: "",
        };
        stage.round(command, without).map_err(unharmed)?;
    }
    Ok(harmful)
}

/// Describes the failure of a round of the victims.
fn unharmed(error: String) -> String {
    format!("expected that the victims go on, got {error}")
}

/// The table, whose cells are tried on a stage. Some operations are tried together. If these do harm, each one is tried alone, to find the harmful
/// one.
struct Table<'a> {
    command: &'a Path,
    stage: Stage,
    failures: Failures,
}

impl Table<'_> {
    /// Tries all operations on an entry. One process tries all operations that the modes refuse. Each operation that the modes permit and that
    /// changes the entry is tried alone.
    fn try_all(&mut self, user: User, at: usize, entry: &Entry) {
        let is_granted = |operation: &&Operation| grants(user, entry, operation.needs);
        let (granted, refused): (Vec<_>, Vec<_>) = OPERATIONS.iter().partition(is_granted);
        let (changing, others): (Vec<_>, Vec<_>) =
            granted.into_iter().partition(|operation| operation.changes);
        self.try_together(user, at, &refused);
        self.try_together(user, at, &others);
        for operation in &changing {
            self.try_together(user, at, &[operation]);
        }
    }

    /// Tries operations on the entry at a position in the list of entries. Inodes and random names differ on a new stage, but the order of the
    /// entries does not.
    fn try_together(&mut self, user: User, at: usize, operations: &[&Operation]) {
        let entries = self.stage.entries();
        let Some(entry) = entries.get(at).filter(|_| !operations.is_empty()) else {
            return;
        };
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
fn what_a_stranger_does_to_an_object_harms_no_other_user() {
    umsg_testkit::needs_root!();
    let workshop = Workshop::new();
    let command = stage::command(&workshop);
    let mut table = Table {
        command: &command,
        stage: Failures::default().stage(&command),
        failures: Failures::default(),
    };
    for (at, entry) in table.stage.entries().iter().enumerate() {
        for user in [STRANGER, MEMBER] {
            table.try_all(user, at, entry);
        }
    }
    table.failures.expect_none();
}

#[test]
fn what_a_stranger_puts_at_a_free_name_harms_no_other_user() {
    umsg_testkit::needs_root!();
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

/// Puts an entry under a name that the victims will use next, and lets the victims use the name.
fn plant(stage: &mut Stage, command: &Path, name: &str, act: Act) -> Result<(), String> {
    let newcomers = stage.newcomers();
    let (_adversary, planted) = put_all(stage, name, &newcomers.pids(), act)?;
    if planted.is_empty() {
        return Ok(());
    }
    let without = Without {
        skipped: "",
        spoiled: name,
    };
    let done = stage.round_with(command, without, &newcomers);
    let done = done.and_then(|()| stage.collect_garbage(command, without));
    for path in &planted {
        names::remove(path);
    }
    done.map_err(unharmed)
}

/// Lets the stranger create an entry at each path for which `name`, with its placeholders, stands. Returns the stranger's process, and the paths at
/// which the creation succeeded.
fn put_all(
    stage: &Stage,
    name: &str,
    pids: &[u32],
    act: Act,
) -> Result<(Actor, Vec<PathBuf>), String> {
    let paths = names::expand(name, pids);
    let acts: Vec<_> = paths
        .iter()
        .map(|path| (act, stage.space.join(path)))
        .collect();
    let adversary = adversary(STRANGER, acts.clone(), &stage.own())?;
    let mut put = Vec::new();
    for (number, (_, path)) in acts.into_iter().enumerate() {
        if adversary.ask(&number.to_string())? == SUCCESS {
            put.push(path);
        }
    }
    Ok((adversary, put))
}

#[test]
fn what_a_stranger_puts_into_a_namespace_before_its_first_use_harms_no_user() {
    umsg_testkit::needs_root!();
    let workshop = Workshop::new();
    let command = stage::command(&workshop);
    let mut failures = Failures::default();
    let used = failures.stage(&command);
    let empty = Stage::at_boot();
    let is_known = |entry: &Entry| empty.space.join(&entry.path).symlink_metadata().is_ok();
    // The kinds of entries that do not belong to a single queue.
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

/// Puts an entry into an unused namespace, and starts the victims.
fn plant_first(command: &Path, name: &str, act: Act) -> Result<(), String> {
    let mut stage = Stage::at_boot();
    let (_adversary, put) = put_all(&stage, name, &[], act)?;
    match put.is_empty() {
        true => Ok(()),
        false => stage.open(command).map_err(unharmed),
    }
}
