//! The metrics of bridges. Each `umsg bridge` writes the states of its bridges into files of the namespace, and this module reads the files.

use std::fmt;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, SystemTime};

use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Unit;
use rustix::fs::{Mode, OFlags};
use serde::Deserialize;

use super::families::Value;
use super::text::encode;

/// The state of a bridge, with the fields that metrics need.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Bridge {
    name: String,
    direction: String,
    queue: String,
    stream: String,
    error: String,
    connected: bool,
    messages: u64,
    bytes: u64,
    duplicates: u64,
    retries: u64,
    rejected: u64,
    dead_lettered: u64,
    expired: u64,
    in_flight: u64,
    backlog: u64,
    updated_ms: u64,
}

/// The age up to which a state is current: a bridge writes its state at least once a second.
const FRESH: Duration = Duration::from_secs(5);

/// The maximum number of states that are read. The limits of number and length are needed because other users may write such files.
const MOST: usize = 1000;
const LONGEST: u64 = 64 * 1024;

/// Reads the states of the bridges of a namespace: the files `bridge.UID/NAME.state.json`. Directories of other users that may not be read are
/// skipped. A directory and its files are read only if they belong to the user in the directory's name, because any user may create files of this
/// name.
pub fn read(namespace: &Path) -> Vec<Bridge> {
    let entries = |path: &Path| std::fs::read_dir(path).into_iter().flatten().flatten();
    let owned = |entry: &std::fs::DirEntry| {
        let name = entry.file_name();
        let owner = name.to_str()?.strip_prefix("bridge.")?.parse().ok()?;
        let file = std::fs::symlink_metadata(entry.path()).ok()?;
        (file.is_dir() && file.uid() == owner).then(|| (entry.path(), owner))
    };
    let mut bridges: Vec<Bridge> = entries(namespace)
        .filter_map(|entry| owned(&entry))
        .flat_map(|(path, owner)| entries(&path).map(move |entry| (entry, owner)))
        .filter(|(entry, _)| {
            let name = entry.file_name();
            name.to_string_lossy().ends_with(".state.json")
        })
        .take(MOST)
        .filter_map(|(entry, owner)| serde_json::from_slice(&contents(&entry.path(), owner)?).ok())
        .collect();
    bridges.sort_by(|one, other| one.name.cmp(&other.name));
    bridges
}

/// Reads a regular file of this owner. Returns None for a FIFO, a link or a file of another owner.
fn contents(path: &Path, owner: u32) -> Option<Vec<u8>> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = std::fs::File::from(rustix::fs::open(path, flags, Mode::empty()).ok()?);
    let about = file.metadata().ok()?;
    if !about.is_file() || about.uid() != owner {
        return None;
    }
    let mut bytes = Vec::new();
    file.take(LONGEST).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}

impl Bridge {
    /// Returns whether a running process keeps this state up to date.
    fn runs(&self) -> bool {
        let now = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
        now.saturating_sub(Duration::from_millis(self.updated_ms)) < FRESH
    }
}

type Of = fn(&Bridge) -> u64;

/// The metrics of each bridge.
const FAMILIES: &[(&str, Option<&str>, MetricType, &str, Of)] = &[
    (
        "umsg_bridge_up",
        None,
        MetricType::Gauge,
        "1 if the bridge runs, has a connection, and has no error",
        |of| (of.runs() && of.connected && of.error.is_empty()).into(),
    ),
    (
        "umsg_bridge_waiting_messages",
        None,
        MetricType::Gauge,
        "Messages that wait at the source: of an export, those of the local queue that no process has leased; of an import, those of the stream that its consumer has not acknowledged, without those that are in a durable queue",
        |of| of.backlog,
    ),
    (
        "umsg_bridge_in_flight_messages",
        None,
        MetricType::Gauge,
        "Messages that are on their way",
        |of| of.in_flight,
    ),
    (
        "umsg_bridge_carried_messages",
        None,
        MetricType::Counter,
        "Messages that reached the other side",
        |of| of.messages,
    ),
    (
        "umsg_bridge_carried",
        Some("bytes"),
        MetricType::Counter,
        "Bytes of the messages that reached the other side",
        |of| of.bytes,
    ),
    (
        "umsg_bridge_repeated_messages",
        None,
        MetricType::Counter,
        "Repeated messages that were recognised and not delivered again",
        |of| of.duplicates,
    ),
    (
        "umsg_bridge_retries",
        None,
        MetricType::Counter,
        "Attempts that were repeated",
        |of| of.retries,
    ),
    (
        "umsg_bridge_rejections",
        None,
        MetricType::Counter,
        "Times that the destination refused a message for good",
        |of| of.rejected,
    ),
    (
        "umsg_bridge_dead_lettered_messages",
        None,
        MetricType::Counter,
        "Messages that the bridge moved to the dead-letter queue",
        |of| of.dead_lettered,
    ),
    (
        "umsg_bridge_expired_messages",
        None,
        MetricType::Counter,
        "Messages whose time to live ended on the way",
        |of| of.expired,
    ),
];

/// Encodes the metrics of all bridges. Writes no metric if the namespace has no bridge.
pub fn encode_all(bridges: &[Bridge], encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    if bridges.is_empty() {
        return Ok(());
    }
    for (name, unit, kind, help, of) in FAMILIES {
        let unit = unit.map(|unit| Unit::Other(unit.to_owned()));
        let mut metric = encoder.encode_descriptor(name, help, unit.as_ref(), *kind)?;
        for bridge in bridges {
            let labels = [
                ("bridge", &*bridge.name),
                ("direction", &*bridge.direction),
                ("queue", &*bridge.queue),
                ("stream", &*bridge.stream),
            ];
            encode(&mut metric, *kind, &labels, &Value::Whole(of(bridge)))?;
        }
    }
    Ok(())
}
