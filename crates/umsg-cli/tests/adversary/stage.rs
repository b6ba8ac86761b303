//! A namespace of several users, its victims, and the steps of the victims in each cell of the table.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;
use umsg::{Namespace, TMPFILES};

use super::actor::{Actor, User};
use super::objects::{self, Entry, Kind};
use super::support::{self, Outcome, compiler::Workshop};
use super::victims::{self, End, Keeper, Object};

pub const ROOT: User = User {
    name: "root",
    uid: 0,
    gid: 0,
};
pub const VICTIM: User = User {
    name: "victim",
    uid: 30_001,
    gid: 30_001,
};
/// A user who has only the access that the modes grant to others.
pub const STRANGER: User = User {
    name: "stranger",
    uid: 30_002,
    gid: 30_002,
};
/// A user of the victim's group.
pub const MEMBER: User = User {
    name: "member",
    uid: 30_003,
    gid: 30_001,
};

/// The first letter of each victim's object names, and the victim.
const VICTIMS: [(&str, User); 2] = [("v", VICTIM), ("r", ROOT)];

/// A victim's two processes.
struct Pair {
    owner: &'static str,
    user: User,
    objects: Vec<Object>,
    receiver: Actor,
    sender: Actor,
}

/// The objects that the victims skip in a round.
#[derive(Clone, Copy, Default)]
pub struct Without<'a> {
    /// The place of a kept object to which the modes grant the adversary some access. The victims don't use it.
    pub skipped: &'a str,
    /// The place of a new object that the adversary made first. Calls on it may fail.
    pub spoiled: &'a str,
}

/// The namespace and its victims.
pub struct Stage {
    base: TempDir,
    pub space: PathBuf,
    pairs: Vec<Pair>,
    rounds: u32,
}

/// New processes that have not yet done anything.
pub struct Newcomers(Vec<Actor>);

impl Stage {
    /// Makes the namespace as the administrator, and lets the victims make all of their objects.
    pub fn new(command: &Path) -> Result<Stage, String> {
        let mut stage = Stage::empty();
        let mut setup = Command::new(command);
        setup.arg("setup").arg("--dir").arg(&stage.space);
        ended_well(&support::finish(&mut setup, b""), "umsg setup")?;
        stage.keep_queues_small(command)?;
        stage.open(command)?;
        Ok(stage)
    }

    /// Sets limits that keep the files of System V queues short: `umsg doctor` needs 0.2 s to read a file of the default length.
    fn keep_queues_small(&self, command: &Path) -> Result<(), String> {
        let mut limits = Command::new(command);
        limits.args(["limits", "--max-qbytes", "16K"]);
        limits.env("UMSG_DIR", &self.space);
        ended_well(&support::finish(&mut limits, b""), "umsg limits")
    }

    /// Makes the directories that tmpfiles.d(5) makes at boot, as printed by `umsg setup --print-tmpfiles`. There is no victim yet.
    pub fn at_boot() -> Stage {
        let stage = Stage::empty();
        for line in TMPFILES.lines().filter(|line| line.starts_with("d ")) {
            let mut words = line.split_whitespace().skip(1);
            let (path, mode) = (words.next().unwrap(), words.next().unwrap());
            let path = path.strip_prefix("/dev/shm/umsg").unwrap();
            let path = stage.space.join(path.trim_start_matches('/'));
            fs::create_dir(&path).unwrap();
            set_mode(&path, u32::from_str_radix(mode, 8).unwrap());
        }
        stage
    }

    fn empty() -> Stage {
        let base = TempDir::with_prefix_in("umsg-adversary-", "/dev/shm").unwrap();
        set_mode(base.path(), 0o755);
        let space = base.path().join("space");
        Stage {
            base,
            space,
            pairs: Vec::new(),
            rounds: 0,
        }
    }

    /// Lets the victims make all of their objects, and perform all of their steps once.
    pub fn open(&mut self, command: &Path) -> Result<(), String> {
        for (owner, user) in VICTIMS {
            let pair = self.pair(owner, user)?;
            self.pairs.push(pair);
        }
        self.round(command, Without::default())
    }

    fn pair(&self, owner: &'static str, user: User) -> Result<Pair, String> {
        let mut objects = victims::kept(owner);
        let receiver = self.keeper(user, &objects, End::Receiver);
        receiver.answer()?;
        let private = receiver.ask("places")?;
        for object in objects.iter_mut().filter(|object| object.place.is_empty()) {
            object.place.clone_from(&private);
        }
        let sender = self.keeper(user, &objects, End::Sender);
        sender.answer()?;
        Ok(Pair {
            owner,
            user,
            objects,
            receiver,
            sender,
        })
    }

    fn keeper(&self, user: User, objects: &[Object], end: End) -> Actor {
        let what = match end {
            End::Receiver => format!("{}'s receiver", user.name),
            End::Sender => format!("{}'s sender", user.name),
        };
        Actor::start(user, what, || {
            victims::catch_truncation()?;
            let space = Namespace::at(&self.space).map_err(|error| error.to_string())?;
            let mut keeper = Keeper::open(&space, objects, end)?;
            Ok(move |order: &str| keeper.act(order))
        })
    }

    /// Returns a directory for an adversary's files: every user can write to it, and it is in the same file system.
    pub fn own(&self) -> PathBuf {
        let own = self.base.path().join("own");
        let _ = fs::remove_dir_all(&own);
        fs::create_dir(&own).unwrap();
        set_mode(&own, 0o1777);
        own
    }

    /// Starts processes of the victims that have not used the namespace yet.
    pub fn newcomers(&self) -> Newcomers {
        let start = |pair: &Pair| {
            let what = format!("{}'s newcomer", pair.user.name);
            let (path, objects) = (self.space.clone(), pair.objects.clone());
            let owner = pair.owner;
            Actor::start(pair.user, what, move || {
                victims::catch_truncation()?;
                Ok(move |order: &str| {
                    let space = Namespace::at(&path).map_err(|error| error.to_string())?;
                    let (skipped, spoiled) = order.split_once(' ').unwrap_or_default();
                    victims::come_new(&space, owner, &objects, skipped, spoiled)?;
                    Ok(String::new())
                })
            })
        };
        Newcomers(self.pairs.iter().map(start).collect())
    }

    /// Performs all steps of the victims: by the running processes, by new processes, and by the umsg command.
    pub fn round(&mut self, command: &Path, without: Without<'_>) -> Result<(), String> {
        let newcomers = self.newcomers();
        self.round_with(command, without, &newcomers)
    }

    /// Performs a [`round`](Self::round) with newcomers that were started before.
    pub fn round_with(
        &mut self,
        command: &Path,
        without: Without<'_>,
        newcomers: &Newcomers,
    ) -> Result<(), String> {
        self.keepers_round(without)?;
        newcomers.round(without)?;
        self.command_round(command, without)?;
        Ok(())
    }

    /// Each receiver polls, waits and is notified; each sender sends.
    pub fn keepers_round(&mut self, without: Without<'_>) -> Result<(), String> {
        self.rounds += 1;
        let what = format!("{} {}", self.rounds, without.skipped);
        for pair in &self.pairs {
            pair.receiver.ask("register")?;
            pair.receiver.order(&format!("receive {what}"));
            pair.sender.order(&format!("send {what}"));
        }
        for pair in &self.pairs {
            pair.sender.answer()?;
            pair.receiver.answer()?;
        }
        Ok(())
    }

    /// Lets the victims list and diagnose everything, all at the same time.
    fn command_round(&self, command: &Path, without: Without<'_>) -> Result<(), String> {
        const COMMANDS: [&[&str]; 3] = [
            &["ls", "--quiet"],
            &["doctor", "--all"],
            &["gc", "--leftovers"],
        ];
        let start = |user: User, arguments: &[&str]| {
            let mut run = Command::new(command);
            run.args(arguments).env("UMSG_DIR", &self.space);
            run.uid(user.uid).gid(user.gid).current_dir("/");
            support::start(&mut run)
        };
        let runs = VICTIMS.iter().flat_map(|(_, user)| {
            COMMANDS.map(|arguments| (user, arguments, start(*user, arguments)))
        });
        let runs: Vec<_> = runs.collect();
        for (user, arguments, child) in runs {
            let outcome = support::end(child);
            let what = format!("{} runs umsg {}", user.name, arguments.join(" "));
            ended(&outcome, &what)?;
            if arguments[0] == "ls" {
                self.lists_all(&outcome, without)?;
            }
        }
        Ok(())
    }

    /// Checks that the output of `umsg ls` names all kept queues except the skipped one. These queues exist all the time.
    fn lists_all(&self, listed: &Outcome, without: Without<'_>) -> Result<(), String> {
        let text = String::from_utf8_lossy(&listed.output);
        let kept = self.kept().filter(|object| object.place != without.skipped);
        let mut names = kept.filter_map(|object| object.place.strip_prefix("mq"));
        match names.find(|name| !text.lines().any(|line| line == *name)) {
            None => Ok(()),
            Some(name) => Err(format!("{name} is not listed: {listed:?}")),
        }
    }

    /// Lets root remove stale files, which must not affect the victims.
    pub fn collect_garbage(&mut self, command: &Path, without: Without<'_>) -> Result<(), String> {
        let mut gc = Command::new(command);
        gc.args(["gc", "--leftovers", "--remove"]);
        gc.env("UMSG_DIR", &self.space);
        ended(&support::finish(&mut gc, b""), "root runs umsg gc --remove")?;
        self.keepers_round(without)
    }

    pub fn entries(&self) -> Vec<Entry> {
        objects::walk(&self.space)
    }

    /// Returns the objects that the victims keep as long as the stage lives.
    pub fn kept(&self) -> impl Iterator<Item = &Object> {
        self.pairs.iter().flat_map(|pair| &pair.objects)
    }

    /// Returns the place of the object to which an entry belongs; empty if the entry belongs to no object.
    pub fn place_of(&self, entry: &Entry, kind: Kind) -> String {
        let parts: Vec<&str> = entry.path.split('/').collect();
        match (kind, &parts[..]) {
            (Kind::Queue | Kind::Transient, ["mq", name, ..]) => format!("mq/{name}"),
            (Kind::Queue, ["msg", index]) => self.label_of(index).unwrap_or_default(),
            (Kind::Ring, _) => entry.path.clone(),
            (Kind::Socket, ["ring", name]) => self.ring_of(name).unwrap_or_default(),
            _ => String::new(),
        }
    }

    /// Returns the place of the System V queue with an index: the path of its label symlink.
    fn label_of(&self, index: &str) -> Option<String> {
        let index: u32 = index.parse().ok()?;
        let mut labels = self
            .kept()
            .filter(|object| object.place.starts_with("msg/"));
        let label = labels.find(|object| {
            let id = fs::read_link(self.space.join(&object.place));
            let id = id.ok().and_then(|id| id.to_str()?.parse::<u32>().ok());
            id.is_some_and(|id| id & 0x7fff == index)
        });
        label.map(|object| object.place.clone())
    }

    /// Returns the ring whose doorbell is the socket with this name.
    fn ring_of(&self, socket: &str) -> Option<String> {
        let inode: u64 = socket
            .strip_prefix(".bell-")?
            .split('-')
            .next()?
            .parse()
            .ok()?;
        let mut rings = self
            .kept()
            .filter(|object| object.place.starts_with("ring/"));
        let ring = rings.find(|object| {
            let meta = self.space.join(&object.place).symlink_metadata();
            meta.is_ok_and(|meta| meta.ino() == inode)
        });
        ring.map(|object| object.place.clone())
    }
}

impl Newcomers {
    pub fn pids(&self) -> Vec<u32> {
        self.0.iter().map(Actor::pid).collect()
    }

    pub fn round(&self, without: Without<'_>) -> Result<(), String> {
        for actor in &self.0 {
            actor.answer()?;
            actor.ask(&format!("{} {}", without.skipped, without.spoiled))?;
        }
        Ok(())
    }
}

/// Returns the path of a copy of the command that every user can execute.
pub fn command(workshop: &Workshop) -> PathBuf {
    workshop.copy(env!("CARGO_BIN_EXE_umsg"), "umsg")
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

/// Checks that a command ended by itself; it may have reported an error.
fn ended(outcome: &Outcome, what: &str) -> Result<(), String> {
    let ended = outcome.code.is_some_and(|code| code < 100);
    ended
        .then_some(())
        .ok_or_else(|| format!("{what}: {outcome:?}"))
}

fn ended_well(outcome: &Outcome, what: &str) -> Result<(), String> {
    let well = outcome.code == Some(0);
    well.then_some(())
        .ok_or_else(|| format!("{what}: {outcome:?}"))
}
