//! JSON output of `umsg doctor`. A field keeps its name and meaning in later versions. Unknown values are null.

use serde::Serialize;
use umsg::diagnosis::{
    Blocked, Diagnosis, Hold, HoldKind, Life, Lock, Owner, Problem, ProblemKind, Process,
    RefusedCall, Registration, Repair, Repairs, Side, Wait,
};
use umsg::sysv::Want;

use super::super::time::utc;
use super::queue::means;
use crate::commands::doctor::Inspected;

#[derive(Serialize)]
pub struct Report {
    healthy: bool,
    queues: Vec<Entry>,
    /// System calls that the kernel or a sandbox refuses to this process.
    refused: Vec<RefusedEntry>,
}

#[derive(Serialize)]
struct RefusedEntry {
    call: &'static str,
    errno: Option<i32>,
    consequence: &'static str,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Entry {
    Known(Box<Known>),
    Unknown { name: String, error: String },
}

#[derive(Serialize)]
struct Known {
    name: String,
    healthy: bool,
    busy: bool,
    messages: Option<u64>,
    bytes: Option<u64>,
    receiver: Option<ProcessEntry>,
    locks: Vec<LockEntry>,
    blocked: Vec<BlockedEntry>,
    held: Vec<HoldEntry>,
    registrations: Vec<RegistrationEntry>,
    pollers: Vec<ProcessEntry>,
    producers: Vec<ProcessEntry>,
    repairs: Vec<RepairsEntry>,
    damaged: Option<DamageEntry>,
    problems: Vec<ProblemEntry>,
    /// The other places with a queue of this name: "kernel", or the directory of another namespace.
    also_in: Vec<String>,
    /// The result of --repair.
    #[serde(skip_serializing_if = "Option::is_none")]
    repair: Option<RepairReport>,
}

#[derive(Serialize)]
struct RepairReport {
    done: Vec<String>,
    failed: Option<String>,
    /// The number of intact messages if the queue was rebuilt, otherwise null. `lost` has the number of corrupted messages.
    kept: Option<u64>,
    lost: u64,
}

#[derive(Serialize)]
struct ProcessEntry {
    pid: u32,
    thread: Option<u32>,
    program: Option<String>,
    /// alive, stopped or dead.
    life: &'static str,
    /// True if the process may live in another PID namespace. Then the process id and the thread id belong to that namespace.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    elsewhere: bool,
}

#[derive(Serialize)]
struct LockEntry {
    /// senders, receivers or queue.
    side: &'static str,
    /// free, held, lent, died, or wrong. `wrong` means that the process in the lock does not hold the lock.
    state: &'static str,
    owner: Option<ProcessEntry>,
    /// True if the owner's process has the queue's file mapped; null if there is no owner, or if the mappings can't be read.
    mapped: Option<bool>,
    offset: u64,
    word: u32,
}

#[derive(Serialize)]
struct BlockedEntry {
    #[serde(flatten)]
    process: ProcessEntry,
    /// send or receive.
    call: &'static str,
    seconds: f64,
    served: bool,
    messages: Option<u32>,
    bytes: Option<u64>,
    longest: Option<u64>,
    /// The selection of the wanted type: any, exactly, except or lowest. `type` has the type.
    want: Option<&'static str>,
    r#type: Option<i64>,
}

#[derive(Serialize)]
struct HoldEntry {
    /// leased, reserved, delayed, redriven or set-aside.
    kind: &'static str,
    holder: Option<ProcessEntry>,
    bytes: u32,
    deliveries: u32,
    ends_in_seconds: Option<f64>,
}

#[derive(Serialize)]
struct RegistrationEntry {
    #[serde(flatten)]
    process: ProcessEntry,
    /// signal, call or nothing.
    by: &'static str,
    signal: Option<u32>,
    told: bool,
}

#[derive(Serialize)]
struct RepairsEntry {
    side: &'static str,
    count: u32,
    /// The latest repairs; the most recent repair comes first.
    latest: Vec<RepairEntry>,
}

#[derive(Serialize)]
struct RepairEntry {
    at: String,
    died: Option<u32>,
    by: u32,
}

#[derive(Serialize)]
struct DamageEntry {
    /// null if no process has found the corruption.
    found_by: Option<u32>,
    at: Option<String>,
}

#[derive(Serialize)]
struct ProblemEntry {
    /// damaged, stuck, stopped, undelivered or died.
    kind: &'static str,
    what: String,
    advice: String,
    check: Option<&'static str>,
    offset: Option<u64>,
    expected: Option<String>,
    found: Option<String>,
}

impl Report {
    pub fn new(inspected: &[Inspected], refused: &[RefusedCall]) -> Report {
        Report {
            healthy: inspected.iter().all(Inspected::is_healthy),
            queues: inspected.iter().map(Entry::new).collect(),
            refused: refused.iter().map(RefusedEntry::new).collect(),
        }
    }
}

impl RefusedEntry {
    fn new(refused: &RefusedCall) -> RefusedEntry {
        RefusedEntry {
            call: refused.call,
            errno: refused.error.raw_os_error(),
            consequence: refused.consequence,
        }
    }
}

impl Entry {
    fn new(item: &Inspected) -> Entry {
        let name = item.name.clone();
        match &item.found {
            Ok(diagnosis) => {
                let mut known = Known::new(name, diagnosis);
                known.also_in.clone_from(&item.also_in);
                known.repair = item.repair.as_ref().map(|repair| RepairReport {
                    done: repair.done.clone(),
                    failed: repair.failed.clone(),
                    kept: repair.kept,
                    lost: repair.lost,
                });
                Entry::Known(Box::new(known))
            }
            Err(error) => Entry::Unknown {
                name,
                error: error.clone(),
            },
        }
    }
}

impl Known {
    fn new(name: String, diagnosis: &Diagnosis) -> Known {
        let contents = diagnosis.contents;
        Known {
            name,
            healthy: diagnosis.is_healthy(),
            busy: diagnosis.busy,
            messages: contents.map(|contents| contents.messages),
            bytes: contents.map(|contents| contents.bytes),
            receiver: diagnosis.receiver.as_ref().map(ProcessEntry::new),
            locks: diagnosis.locks.iter().map(LockEntry::new).collect(),
            blocked: diagnosis.blocked.iter().map(BlockedEntry::new).collect(),
            held: diagnosis.holds.iter().map(HoldEntry::new).collect(),
            registrations: diagnosis
                .registrations
                .iter()
                .map(RegistrationEntry::new)
                .collect(),
            pollers: diagnosis.pollers.iter().map(ProcessEntry::new).collect(),
            producers: diagnosis.producers.iter().map(ProcessEntry::new).collect(),
            repairs: diagnosis.repairs.iter().map(RepairsEntry::new).collect(),
            damaged: damage(diagnosis),
            problems: diagnosis.problems.iter().map(ProblemEntry::new).collect(),
            also_in: Vec::new(),
            repair: None,
        }
    }
}

/// Returns the process that found the corruption first. Returns None if no process has found corruption.
fn damage(diagnosis: &Diagnosis) -> Option<DamageEntry> {
    let mut problems = diagnosis.problems.iter();
    let is_damaged = problems.any(|problem| problem.kind == ProblemKind::Damaged);
    let noted = diagnosis.damage.as_ref();
    is_damaged.then(|| DamageEntry {
        found_by: noted.map(|damage| damage.by.pid),
        at: noted.and_then(|damage| damage.at).map(utc),
    })
}

impl ProcessEntry {
    fn new(who: &Process) -> ProcessEntry {
        ProcessEntry {
            pid: who.pid,
            thread: who.thread,
            program: who.program.clone(),
            life: match who.life {
                Life::Stopped => "stopped",
                Life::Dead => "dead",
                _ => "alive",
            },
            elsewhere: who.elsewhere,
        }
    }
}

fn side(side: Side) -> &'static str {
    match side {
        Side::Senders => "senders",
        Side::Receivers => "receivers",
        _ => "queue",
    }
}

impl LockEntry {
    fn new(lock: &Lock) -> LockEntry {
        let (state, owner) = match &lock.owner {
            Owner::Thread(who) => ("held", Some(ProcessEntry::new(who))),
            Owner::Receiver => ("lent", None),
            Owner::Died(who) => ("died", who.as_ref().map(ProcessEntry::new)),
            Owner::Impossible => ("wrong", None),
            Owner::Stranger(who) => ("wrong", Some(ProcessEntry::new(who))),
            _ => ("free", None),
        };
        LockEntry {
            side: side(lock.side),
            state,
            owner,
            mapped: lock.mapped,
            offset: lock.offset,
            word: lock.word,
        }
    }
}

impl BlockedEntry {
    fn new(blocked: &Blocked) -> BlockedEntry {
        let mut entry = BlockedEntry {
            process: ProcessEntry::new(&blocked.who),
            call: "receive",
            seconds: blocked.time.as_secs_f64(),
            served: blocked.served,
            messages: None,
            bytes: None,
            longest: None,
            want: None,
            r#type: None,
        };
        match blocked.wait {
            Wait::Message { want, longest } => {
                let (kind, mtype) = match want {
                    Want::Any => ("any", None),
                    Want::Exactly(mtype) => ("exactly", Some(mtype)),
                    Want::Except(mtype) => ("except", Some(mtype)),
                    Want::Lowest(mtype) => ("lowest", Some(mtype)),
                };
                (entry.want, entry.r#type, entry.longest) = (Some(kind), mtype, longest);
            }
            Wait::Room { messages, bytes } => {
                (entry.call, entry.messages, entry.bytes) = ("send", Some(messages), bytes);
            }
            _ => {}
        }
        entry
    }
}

impl HoldEntry {
    fn new(hold: &Hold) -> HoldEntry {
        HoldEntry {
            kind: match hold.kind {
                HoldKind::Leased => "leased",
                HoldKind::Reserved => "reserved",
                HoldKind::Delayed => "delayed",
                HoldKind::Redriven => "redriven",
                _ => "set-aside",
            },
            holder: hold.who.as_ref().map(ProcessEntry::new),
            bytes: hold.bytes,
            deliveries: hold.deliveries,
            ends_in_seconds: hold.ends_in.map(|time| time.as_secs_f64()),
        }
    }
}

impl RegistrationEntry {
    fn new(registration: &Registration) -> RegistrationEntry {
        let (by, signal) = means(registration.kind);
        RegistrationEntry {
            process: ProcessEntry::new(&registration.who),
            by,
            signal,
            told: registration.told,
        }
    }
}

impl RepairsEntry {
    fn new(repairs: &Repairs) -> RepairsEntry {
        let entry = |repair: &Repair| RepairEntry {
            at: utc(repair.at),
            died: repair.died,
            by: repair.by,
        };
        RepairsEntry {
            side: side(repairs.side),
            count: repairs.count,
            latest: repairs.latest.iter().map(entry).collect(),
        }
    }
}

impl ProblemEntry {
    fn new(problem: &Problem) -> ProblemEntry {
        let finding = problem.finding.as_ref();
        ProblemEntry {
            kind: match problem.kind {
                ProblemKind::Damaged => "damaged",
                ProblemKind::Stuck => "stuck",
                ProblemKind::Stopped => "stopped",
                ProblemKind::Undelivered => "undelivered",
                _ => "died",
            },
            what: problem.what.clone(),
            advice: problem.advice.clone(),
            check: finding.map(|finding| finding.check),
            offset: finding.map(|finding| finding.offset),
            expected: finding.map(|finding| finding.expected.clone()),
            found: finding.map(|finding| finding.found.clone()),
        }
    }
}
