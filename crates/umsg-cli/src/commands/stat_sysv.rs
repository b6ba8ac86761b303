//! `umsg stat` of a System V queue.

use std::io::{self, Write};

use umsg::Namespace;
use umsg::sysv::{Entry, Status};

use super::stat::{blocked, closes, creation, damage, moment, retry_delay, sending, waits};
use crate::address::Label;
use crate::attached::Attached;
use crate::failure::Result;
use crate::output::json;
use crate::output::json::sysv::SysvQueue;
use crate::output::owner::Owners;
use crate::output::text;

/// The maximum number of types in a line.
const TYPES: usize = 16;

/// Types with their numbers of messages.
type Types = Vec<(i64, u32)>;

pub fn print(namespace: &Namespace, label: Label, as_json: bool, out: &mut impl Write) -> Result {
    let attached = Attached::open(namespace, label)?;
    let queue = &attached.queue;
    let status = queue.status().map_err(|error| attached.not_told(error))?;
    let most = match as_json {
        true => usize::try_from(status.entry.messages).unwrap_or(usize::MAX),
        false => TYPES + 1,
    };
    let types = queue
        .types(most)
        .map_err(|error| attached.not_seen(&error))?;
    match as_json {
        true => json::print(
            out,
            &SysvQueue::new(&status.entry, Some(&status)).with_types(&types),
        )?,
        false => lines(out, &status, &types)?,
    }
    Ok(())
}

fn lines(out: &mut impl Write, status: &Status, types: &Types) -> io::Result<()> {
    let (entry, owners) = (&status.entry, Owners::new());
    let mut line = |title: &str, text: String| writeln!(out, "{title:<18}{text}");
    line("id", entry.id.to_string())?;
    line("key", key(entry))?;
    line("messages", entry.messages.to_string())?;
    line("types", shown(types))?;
    line("bytes", format!("{} of {}", entry.bytes, entry.qbytes))?;
    line(
        "held",
        format!(
            "{} leased, {} delayed, of {} bytes",
            status.leased, status.delayed, status.leased_bytes
        ),
    )?;
    line("retry delay", retry_delay(status.retry_delay))?;
    line("sending", sending(status.send_closed).to_owned())?;
    let producers = status.close_with_last_producer.then_some(status.producers);
    line("closes", closes(producers))?;
    line("message size", format!("at most {} bytes", status.msgmax))?;
    line("mode", format!("{:04o}", entry.mode))?;
    let who = |uid: u32, gid: u32| format!("{} (uid {uid}, gid {gid})", owners.name(uid));
    line("owner", who(entry.uid, entry.gid))?;
    line("creator", who(entry.cuid, entry.cgid))?;
    creation(&mut line, status.created, status.creator)?;
    line("changed", moment(entry.changed))?;
    line("last send", by(moment(entry.last_send), entry.last_sender))?;
    line(
        "last receive",
        by(moment(entry.last_receive), entry.last_receiver),
    )?;
    let (senders, receivers) = (status.blocked_senders, status.blocked_receivers);
    blocked(&mut line, "blocked now", senders as u64, receivers as u64)?;
    let counted = &status.statistics;
    let (sends, receives) = (counted.sends_blocked, counted.receives_blocked);
    blocked(&mut line, "blocked so far", sends, receives)?;
    line("handed over", format!("{} messages", counted.handed_over))?;
    line("came back", text::counted(counted.returned, "lease"))?;
    let (spins, given_up) = (counted.spins_paid, counted.given_up);
    waits(&mut line, spins, given_up)?;
    let (died, repairs) = (counted.waiters_died, counted.repairs);
    line("deaths", format!("{died} waiting, {repairs} repaired"))?;
    line("memory", format!("{} bytes", status.memory))?;
    damage(&mut line, status.damaged)
}

fn key(entry: &Entry) -> String {
    match entry.key {
        0 => "none".to_owned(),
        key => format!("{key:#010x}"),
    }
}

fn by(moment: String, pid: u32) -> String {
    match pid {
        0 => moment,
        pid => format!("{moment} by process {pid}"),
    }
}

/// Formats the lowest types, each with its number of messages.
fn shown(types: &Types) -> String {
    let first = types.iter().take(TYPES);
    let mut all: Vec<String> = first
        .map(|(mtype, messages)| format!("{mtype} ({messages})"))
        .collect();
    match types.len() {
        0 => return "none".to_owned(),
        n if n > TYPES => all.push("...".to_owned()),
        _ => {}
    }
    all.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_types_are_shown_all_and_many_are_cut() {
        assert_eq!(shown(&vec![]), "none");
        assert_eq!(shown(&vec![(1, 2), (7, 1)]), "1 (2), 7 (1)");
        let many: Types = (1..=TYPES as i64 + 1).map(|mtype| (mtype, 1)).collect();
        assert!(shown(&many).ends_with("16 (1), ..."), "{}", shown(&many));
    }
}
