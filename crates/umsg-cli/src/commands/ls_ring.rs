//! `umsg ls` of rings.

use umsg::posix::OpenError;
use umsg::ring::{FoundRing, Listed, RingError, Status};

use super::ls::shown;
use crate::address::RING;
use crate::failure::Explain;
use crate::output::owner::Owners;
use crate::output::table::{Side, Table};

pub fn table(rings: &[Listed]) -> Table<10> {
    let owners = Owners::new();
    let mut table = Table::new([
        ("RING", Side::Left),
        ("MESSAGES", Side::Right),
        ("ENTRIES", Side::Right),
        ("OVERFLOW", Side::Right),
        ("MODE", Side::Left),
        ("OWNER", Side::Left),
        ("PID", Side::Right),
        ("STATE", Side::Left),
        ("WAIT-SEND", Side::Right),
        ("", Side::Left),
    ]);
    for ring in rings {
        let name = format!("{RING}{}", shown(&ring.name));
        table.push(match &ring.found {
            Ok(found) => cells(name, found, &owners),
            Err(error) => unknown(name, error),
        });
    }
    table
}

fn cells(name: String, found: &FoundRing, owners: &Owners) -> [String; 10] {
    let status = &found.status;
    [
        name,
        status.messages.to_string(),
        status.entries.to_string(),
        status.overflowing.to_string(),
        format!("{:04o}", status.mode),
        owners.name(found.uid),
        status.owner.to_string(),
        state(status).to_owned(),
        status.blocked_senders.to_string(),
        if status.damaged { "corrupted" } else { "" }.to_owned(),
    ]
}

fn unknown(name: String, error: &RingError) -> [String; 10] {
    let mut cells: [String; 10] = std::array::from_fn(|_| "-".to_owned());
    cells[0] = name;
    cells[9] = match error {
        RingError::Open(OpenError::PermissionDenied) => "permission denied".to_owned(),
        error => error.explain(),
    };
    cells
}

/// Returns the state of the ring from the point of view of a sender.
pub fn state(status: &Status) -> &'static str {
    match (status.closed, status.owner_alive, status.enabled) {
        (true, ..) => "closed",
        (_, false, _) => "dead",
        (.., false) => "disabled",
        _ => "open",
    }
}
