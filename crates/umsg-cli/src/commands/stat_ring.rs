//! `umsg stat` of a ring.

use std::io::{self, Write};

use umsg::Namespace;
use umsg::ring::{self, FoundRing};

use super::ls_ring::state;
use super::stat::{damage, moment};
use crate::address::RING;
use crate::failure::{Failure, Result};
use crate::names::Name;
use crate::output::json;
use crate::output::json::ring::Ring;
use crate::output::owner::Owners;

pub fn print(namespace: &Namespace, name: &Name, as_json: bool, out: &mut impl Write) -> Result {
    name.check()?;
    let found = ring::find(namespace, name);
    let found = found.map_err(|error| Failure::of(format_args!("{RING}{name}"), error))?;
    match as_json {
        true => json::print(out, &Ring::new(name.lossy(), &found))?,
        false => lines(out, name, &found)?,
    }
    Ok(())
}

fn lines(out: &mut impl Write, name: &Name, found: &FoundRing) -> io::Result<()> {
    let FoundRing {
        uid, gid, status, ..
    } = found;
    let owner = Owners::new().name(*uid);
    let mut line = |title: &str, text: String| writeln!(out, "{title:<18}{text}");
    line("name", format!("{RING}{name}"))?;
    line("state", state(status).to_owned())?;
    let lives = if status.owner_alive { "alive" } else { "dead" };
    line("receiver", format!("process {}, {lives}", status.owner))?;
    line(
        "messages",
        format!("{} of {}", status.messages, status.entries),
    )?;
    line(
        "overflow",
        format!("{} of {}", status.overflowing, status.overflow),
    )?;
    line("payload", format!("at most {} bytes", status.longest))?;
    line("mode", format!("{:04o}", status.mode))?;
    line("owner", format!("{owner} (uid {uid}, gid {gid})"))?;
    line("created", moment(Some(status.created)))?;
    line("senders", format!("{} made so far", status.senders))?;
    line(
        "blocked",
        format!(
            "{} sending now, {} so far",
            status.blocked_senders, status.sends_blocked
        ),
    )?;
    line(
        "not delivered",
        format!("{} dropped when full", status.dropped),
    )?;
    line(
        "waits",
        format!("{} slept, {} ended spinning", status.slept, status.spun),
    )?;
    line(
        "time waited",
        format!(
            "{:.6} s spinning, {:.6} s asleep",
            status.time_spun.as_secs_f64(),
            status.time_asleep.as_secs_f64()
        ),
    )?;
    line("deaths", format!("{} repaired", status.repairs))?;
    line("memory", format!("{} bytes", status.memory))?;
    damage(&mut line, status.damaged)
}
