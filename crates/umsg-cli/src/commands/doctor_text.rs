//! The text of `umsg doctor`.

use std::io::{self, Write};
use std::time::Duration;

use umsg::diagnosis::{
    Blocked, Diagnosis, Hold, HoldKind, Life, Lock, Owner, Process, RefusedCall, Registration,
    Repairs, Side, Wait,
};
use umsg::posix::NotifyKind;
use umsg::sysv::Want;

use super::doctor::Inspected;
use super::doctor_problems::told;
use crate::elsewhere;
use crate::output::{text, time};

/// The maximum number of lines that the report has under one title.
const MOST: usize = 20;

pub fn print(out: &mut impl Write, inspected: &[Inspected]) -> io::Result<()> {
    // Queues and rings that could not be inspected are left out here: standard error already has the reasons.
    let seen = inspected.iter().filter_map(|item| {
        let diagnosis = item.found.as_ref().ok()?;
        Some((item, diagnosis))
    });
    for (n, (item, diagnosis)) in seen.enumerate() {
        if n != 0 {
            writeln!(out)?;
        }
        writeln!(out, "{}", text::on_one_line(item.name.as_bytes()))?;
        if let Some(repair) = &item.repair {
            lines(out, "repaired now", &repair.done, Clone::clone)?;
            let failed = repair.failed.as_slice();
            lines(out, "not repaired", failed, Clone::clone)?;
        }
        let also_in = |place: &String| elsewhere::described(place);
        lines(out, "elsewhere", &item.also_in, also_in)?;
        describe(out, diagnosis)?;
    }
    Ok(())
}

/// Writes two lines for each system call that the kernel or a sandbox refuses to this process.
pub fn print_refused(out: &mut impl Write, refused: &[RefusedCall]) -> io::Result<()> {
    for RefusedCall {
        call,
        error,
        consequence,
        ..
    } in refused
    {
        writeln!(out, "\n{call}: {error}\n  {consequence}")?;
    }
    Ok(())
}

fn line(out: &mut impl Write, title: &str, text: &str) -> io::Result<()> {
    writeln!(out, "  {title:<14}{}", text::on_one_line(text.as_bytes()))
}

/// Writes a line for each item; the first line has the title.
fn lines<T>(
    out: &mut impl Write,
    title: &str,
    all: &[T],
    show: impl Fn(&T) -> String,
) -> io::Result<()> {
    for (n, one) in all.iter().take(MOST).enumerate() {
        line(out, if n == 0 { title } else { "" }, &show(one))?;
    }
    match all.len().saturating_sub(MOST) {
        0 => Ok(()),
        more => line(out, "", &format!("and {more} more")),
    }
}

fn describe(out: &mut impl Write, diagnosis: &Diagnosis) -> io::Result<()> {
    if let Some(contents) = &diagnosis.contents {
        let (messages, bytes) = (contents.messages, contents.bytes);
        line(
            out,
            "holds",
            &format!(
                "{}, {}",
                text::counted(messages, "message"),
                text::counted(bytes, "byte")
            ),
        )?;
    }
    if let Some(receiver) = &diagnosis.receiver {
        line(out, "receiver", &process(receiver))?;
    }
    lines(out, "locks", &diagnosis.locks, lock)?;
    lines(out, "blocked", &diagnosis.blocked, blocked)?;
    lines(out, "held", &diagnosis.holds, hold)?;
    lines(out, "notifies", &diagnosis.registrations, registration)?;
    lines(out, "polled by", &diagnosis.pollers, process)?;
    lines(out, "produced by", &diagnosis.producers, process)?;
    let repaired: Vec<_> = diagnosis
        .repairs
        .iter()
        .filter(|repairs| repairs.count != 0)
        .collect();
    lines(out, "repaired", &repaired, |repairs| repair(repairs))?;
    if diagnosis.busy {
        line(
            out,
            "in use",
            "at each attempt, so the check is incomplete; run the command again under less load",
        )?;
    }
    if diagnosis.is_healthy() {
        return line(out, "healthy", "nothing is wrong");
    }
    for (title, text) in told(&diagnosis.problems) {
        line(out, title, &text)?;
    }
    Ok(())
}

fn process(who: &Process) -> String {
    let mut shown = format!("process {}", who.pid);
    if who.elsewhere {
        shown.push_str(" of another PID namespace");
    }
    if let Some(program) = &who.program {
        shown.push_str(&format!(" ({program})"));
    }
    if let Some(thread) = who.thread.filter(|&thread| thread != who.pid) {
        shown.push_str(&format!(", thread {thread}"));
    }
    match who.life {
        Life::Stopped => shown.push_str(", stopped"),
        Life::Dead => shown.push_str(", dead"),
        _ => {}
    }
    shown
}

fn side(side: Side) -> &'static str {
    match side {
        Side::Senders => "senders",
        Side::Receivers => "receivers",
        _ => "queue",
    }
}

fn lock(lock: &Lock) -> String {
    let owner = match &lock.owner {
        Owner::Nobody => "free".to_owned(),
        Owner::Thread(who) => format!("held by {}", process(who)),
        Owner::Receiver => "lent to the owner of the receivers' lock".to_owned(),
        Owner::Died(Some(who)) => format!("orphaned by process {}", who.pid),
        Owner::Died(None) => "orphaned by a dead thread".to_owned(),
        Owner::Impossible => format!("wrong: {:#010x} is an impossible thread id", lock.word),
        Owner::Stranger(who) => format!(
            "wrong: names {}, which does not use the queue",
            process(who)
        ),
        _ => "held".to_owned(),
    };
    format!("{:<11}{owner}", side(lock.side))
}

fn blocked(blocked: &Blocked) -> String {
    let what = match &blocked.wait {
        Wait::Message { want, longest } => {
            let longest = longest.map_or_else(String::new, |bytes| {
                format!(" of up to {}", text::counted(bytes, "byte"))
            });
            format!("receives {}{longest}", wanted(*want))
        }
        Wait::Room { messages, bytes } => {
            let bytes = bytes.map_or_else(String::new, |bytes| {
                format!(" of {}", text::counted(bytes, "byte"))
            });
            let what = if *messages == 1 {
                "a message".to_owned()
            } else {
                format!("{messages} messages at once")
            };
            format!("sends {what}{bytes}")
        }
        _ => "waits".to_owned(),
    };
    let served = if blocked.served {
        "; the wait is over, but the thread has not run since"
    } else {
        ""
    };
    format!(
        "{}, {what}, for {}{served}",
        process(&blocked.who),
        duration(blocked.time)
    )
}

fn wanted(want: Want) -> String {
    match want {
        Want::Any => "a message".to_owned(),
        Want::Exactly(mtype) => format!("a message of type {mtype}"),
        Want::Except(mtype) => format!("a message of any type but {mtype}"),
        Want::Lowest(mtype) => format!("a message of the lowest type up to {mtype}"),
    }
}

fn duration(time: Duration) -> String {
    match time.as_secs() {
        0 => format!("{}ms", time.as_millis()),
        s => format!("{s}s"),
    }
}

fn hold(hold: &Hold) -> String {
    let who = hold.who.as_ref().map(process);
    let by = who.map_or_else(String::new, |who| format!(" by {who}"));
    let bytes = text::counted(hold.bytes, "byte");
    let times = text::counted(hold.deliveries, "time");
    let mut shown = match hold.kind {
        HoldKind::Leased => format!("{bytes} leased{by}, delivered {times}"),
        HoldKind::Reserved => format!("room for {bytes} reserved{by}"),
        HoldKind::Delayed => format!("{bytes} delayed, delivered {times}"),
        HoldKind::Redriven => format!("{bytes} on the way back to another queue{by}"),
        _ => format!("{bytes} set aside for the dead-letter queue"),
    };
    if let Some(time) = hold.ends_in {
        shown.push_str(&format!(", ends by itself in {}", duration(time)));
    }
    shown
}

fn registration(registration: &Registration) -> String {
    let how = match registration.kind {
        NotifyKind::Signal(signal) => format!("by signal {signal}"),
        NotifyKind::Call => "by a function call".to_owned(),
        _ => "without notification".to_owned(),
    };
    // A fired record of a dead process stays until another process needs a record.
    if registration.who.life == Life::Dead {
        return format!(
            "process {}, a process that has ended, {how}; a later registration replaces it, no action is needed",
            registration.who.pid
        );
    }
    let told = if registration.told {
        "; notified, and has not reacted yet"
    } else {
        ""
    };
    format!("{}, {how}{told}", process(&registration.who))
}

fn repair(repairs: &Repairs) -> String {
    let times = if repairs.count == 1 {
        "once".to_owned()
    } else {
        format!("{} times", repairs.count)
    };
    let mut shown = format!("{:<11}{times}", side(repairs.side));
    if let Some(latest) = repairs.latest.first() {
        let died = latest
            .died
            .map_or_else(|| "a process".to_owned(), |pid| format!("process {pid}"));
        let ago = time::ago(Some(latest.at));
        shown.push_str(&format!(
            ", last {ago}: {died} had died, process {} repaired the queue",
            latest.by
        ));
    }
    shown
}
