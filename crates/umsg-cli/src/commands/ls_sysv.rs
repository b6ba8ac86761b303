//! `umsg ls` of System V queues.

use umsg::Namespace;
use umsg::sysv::{self, ControlError, Entry, OpenError, OpenOptions, Status};

use crate::failure::{self, Code, Explain, Failure};
use crate::output::json::sysv::SysvQueue;
use crate::output::owner::Owners;
use crate::output::table::{Side, Table};
use crate::output::time;

/// A listed queue. Its status is known only if the caller has permission to receive.
pub struct Row {
    pub entry: Entry,
    status: Result<Status, String>,
}

/// Returns all queues of the namespace, in order of their identifiers.
pub fn rows(namespace: &Namespace) -> failure::Result<Vec<Row>> {
    let entries = sysv::list(namespace);
    let entries = entries.map_err(|error| Failure::new(Code::Failed, error.explain()))?;
    Ok(entries
        .into_iter()
        .map(|entry| row(namespace, entry))
        .collect())
}

fn row(namespace: &Namespace, entry: Entry) -> Row {
    // If the status can't be read, the row shows the attributes of the listing: the caller has no permission for the queue, or the queue was just
    // removed.
    let status = status(namespace, entry.id);
    Row {
        entry: status.as_ref().map_or(entry, |status| status.entry),
        status: status.map_err(why),
    }
}

fn status(namespace: &Namespace, id: i32) -> Result<Status, ControlError> {
    let mut options = OpenOptions::new();
    options.namespace(namespace).open_id(id)?.status()
}

fn why(error: ControlError) -> String {
    match error {
        ControlError::PermissionDenied | ControlError::Open(OpenError::PermissionDenied) => {
            "permission denied".to_owned()
        }
        error => error.explain(),
    }
}

pub fn table(rows: &[Row]) -> Table<11> {
    let owners = Owners::new();
    let mut table = Table::new([
        ("KEY", Side::Left),
        ("ID", Side::Right),
        ("MESSAGES", Side::Right),
        ("BYTES", Side::Right),
        ("QBYTES", Side::Right),
        ("MODE", Side::Left),
        ("OWNER", Side::Left),
        ("WAIT-SEND", Side::Right),
        ("WAIT-RECV", Side::Right),
        ("ACTIVITY", Side::Left),
        ("", Side::Left),
    ]);
    rows.iter().for_each(|row| table.push(cells(row, &owners)));
    table
}

fn cells(row: &Row, owners: &Owners) -> [String; 11] {
    let Row { entry, status } = row;
    let unknown = || "-".to_owned();
    let count = |count: u64| match entry.readable {
        true => count.to_string(),
        false => unknown(),
    };
    let waiting = |count: fn(&Status) -> usize| {
        let status = status.as_ref();
        status.map_or_else(|_| unknown(), |status| count(status).to_string())
    };
    [
        format!("{:#010x}", entry.key),
        entry.id.to_string(),
        count(entry.messages),
        count(entry.bytes),
        count(entry.qbytes),
        format!("{:04o}", entry.mode),
        owners.name(entry.uid),
        waiting(|status| status.blocked_senders),
        waiting(|status| status.blocked_receivers),
        match entry.readable {
            true => time::ago(entry.last_send.max(entry.last_receive)),
            false => unknown(),
        },
        remarks(row),
    ]
}

/// Returns the text of the last column: the number of leased messages and `corrupted`, or the reason why the status is unknown.
fn remarks(row: &Row) -> String {
    let status = match &row.status {
        Ok(status) => status,
        Err(why) => return why.clone(),
    };
    let leased = (status.leased != 0).then(|| format!("{} leased", status.leased));
    let damaged = status.damaged.then(|| "corrupted".to_owned());
    let remarks: Vec<String> = [leased, damaged].into_iter().flatten().collect();
    remarks.join(", ")
}

pub fn json(rows: &[Row]) -> Vec<SysvQueue> {
    let one = |row: &Row| SysvQueue::new(&row.entry, row.status.as_ref().ok());
    rows.iter().map(one).collect()
}
