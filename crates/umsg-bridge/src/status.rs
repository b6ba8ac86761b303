//! The state of each bridge: a JSON file in the state directory, which `umsg bridge status` and `umsg metrics` read.

use crate::log::{self, Level};
use serde::{Deserialize, Serialize};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};
use umsg::Namespace;

/// The end of the name of a state file.
pub const ENDING: &str = ".state.json";

/// The state of a bridge. All counts start at 0 with the process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct State {
    /// The bridge's name.
    pub name: String,
    /// `export` or `import`.
    pub direction: String,
    /// The local end.
    pub queue: String,
    /// The stream.
    pub stream: String,
    /// The process id of the bridge.
    pub pid: u32,
    /// The state in words: `running`, `waiting for the server`, `the local queue is full` ...
    pub state: String,
    /// The last error; empty if the bridge has recovered since.
    pub error: String,
    /// True while the bridge is connected to a server.
    pub connected: bool,
    /// The number of messages that reached the destination.
    pub messages: u64,
    /// The number of bytes of the messages that reached the destination.
    pub bytes: u64,
    /// The number of repeated messages that were recognised: by JetStream for an export, by the window for an import.
    pub duplicates: u64,
    /// The number of repeated attempts to publish a message, to pull messages, or to start the bridge.
    pub retries: u64,
    /// The number of rejections of messages that the destination can never take. Each attempt is counted.
    pub rejected: u64,
    /// The number of messages that were moved to the dead-letter queue.
    pub dead_lettered: u64,
    /// The number of messages whose time to live ended before they reached the destination.
    pub expired: u64,
    /// The number of messages between source and destination: leased by an export, or in a durable queue.
    pub in_flight: u64,
    /// The number of messages that wait at the source. For an export: those of the local queue that no process has leased. For an import: those of
    /// the stream that its consumer has not acknowledged, without those that are in a durable queue.
    pub backlog: u64,
    /// The time of the last update, in milliseconds since 1970.
    pub updated_ms: u64,
}

/// The state of a bridge and its file. The bridge's thread changes the state. The main thread checks that the bridge's thread still works.
#[derive(Clone, Debug)]
pub struct Board(Arc<Mutex<Inner>>);

#[derive(Debug)]
struct Inner {
    state: State,
    path: PathBuf,
    written: Option<Instant>,
    /// The time of the last report of the bridge's thread.
    heard: Instant,
    /// True while the bridge's thread is blocked.
    is_blocked: bool,
    /// True once this process owns the bridge's name. Until then, another process may write the file.
    is_public: bool,
}

/// The interval of writes while the state does not change.
const PERIOD: Duration = Duration::from_millis(500);

/// The time without a report after which a bridge is shown as blocked. The bridge's thread reports each second.
const SILENCE: Duration = Duration::from_secs(4);

impl Board {
    /// Makes the state of a new bridge.
    #[must_use]
    pub fn new(state: State, directory: &Path) -> Board {
        let path = directory.join(format!("{}{ENDING}", state.name));
        Board(Arc::new(Mutex::new(Inner {
            state,
            path,
            written: None,
            heard: Instant::now(),
            is_blocked: false,
            is_public: false,
        })))
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        // The lock is never poisoned: no code panics while it has the lock.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes the file, and lets later changes write the file, too.
    pub fn publish(&self) {
        let mut inner = self.inner();
        inner.is_public = true;
        inner.hear();
        inner.write();
    }

    /// Changes the counts by the given function.
    pub fn count(&self, change: impl FnOnce(&mut State)) {
        let mut inner = self.inner();
        change(&mut inner.state);
        inner.hear();
        inner.write_if_due();
    }

    /// Changes the state in words, and the error, and logs the change.
    pub fn become_(&self, words: &str, error: Option<String>) {
        let mut inner = self.inner();
        inner.hear();
        let error = error.unwrap_or_default();
        if inner.state.state == words && inner.state.error == error {
            return inner.write_if_due();
        }
        let level = match error.is_empty() {
            true => Level::Info,
            false => Level::Error,
        };
        log::event(level, &inner.state.name, words, &[("error", &error)]);
        inner.state.state = words.to_owned();
        inner.state.error = error;
        inner.write();
    }

    /// Returns a copy of the state.
    #[must_use]
    pub fn get(&self) -> State {
        self.inner().state.clone()
    }

    /// Writes the state, unless the last write is recent.
    pub fn refresh(&self) {
        let mut inner = self.inner();
        inner.hear();
        inner.write_if_due();
    }

    /// Returns whether the bridge's thread is blocked.
    #[must_use]
    pub fn is_silent(&self) -> bool {
        self.inner().heard.elapsed() >= SILENCE
    }

    /// Shows the bridge as blocked if its thread has not reported for `SILENCE`. The main thread calls this function.
    pub fn look(&self) {
        let mut inner = self.inner();
        if !inner.is_public || inner.heard.elapsed() < SILENCE {
            return;
        }
        if !inner.is_blocked {
            let why = inner.why_blocked();
            log::failure(&inner.state.name, BLOCKED, &why);
        }
        inner.is_blocked = true;
        inner.write();
    }
}

/// The state of a bridge whose thread is blocked, in words.
const BLOCKED: &str = "blocked";

impl Inner {
    /// Notes a report of the bridge's thread.
    fn hear(&mut self) {
        self.heard = Instant::now();
        if std::mem::take(&mut self.is_blocked) {
            let waited: [(&str, &dyn std::fmt::Display); 0] = [];
            log::event(Level::Info, &self.state.name, "goes on", &waited);
            self.write();
        }
    }

    fn why_blocked(&self) -> String {
        format!(
            "`queue` {}: the bridge has made no progress for seconds. Continue or end a stopped process that uses the queue, or check the file system",
            self.state.queue
        )
    }

    fn write_if_due(&mut self) {
        if self
            .written
            .is_none_or(|written| written.elapsed() >= PERIOD)
        {
            self.write();
        }
    }

    /// Writes the state. If the write fails, the bridge continues, but `umsg bridge status` does not show the new state.
    fn write(&mut self) {
        if !self.is_public {
            return;
        }
        self.written = Some(Instant::now());
        let now = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
        self.state.updated_ms = now.as_millis() as u64;
        let mut shown = self.state.clone();
        if self.is_blocked {
            shown.state = BLOCKED.to_owned();
            shown.error = self.why_blocked();
        }
        let text = serde_json::to_vec(&shown).unwrap_or_default();
        let beside = self.path.with_extension("new");
        let _ = std::fs::write(&beside, text).and_then(|()| std::fs::rename(&beside, &self.path));
    }
}

/// Returns the state directory of a configuration, and makes the directory if it is missing.
///
/// # Errors
/// The error is a sentence that names the setting.
pub fn directory(chosen: Option<&Path>, namespace: &Namespace) -> Result<PathBuf, String> {
    let path = default_directory(chosen, namespace);
    let made = std::os::unix::fs::DirBuilderExt::mode(&mut std::fs::DirBuilder::new(), 0o700)
        .create(&path);
    match made {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            Err(format!("`state_dir` {}: {error}", path.display()))
        }
        _ => own(&path),
    }
}

/// Fails unless the directory belongs to this user: otherwise another user could choose the contents of the windows.
fn own(path: &Path) -> Result<PathBuf, String> {
    use std::os::unix::fs::MetadataExt;
    let refuse = |why: &str| Err(format!("`state_dir` {}: {why}", path.display()));
    match std::fs::symlink_metadata(path) {
        Ok(file) if !file.is_dir() => refuse("not a directory"),
        Ok(file) if file.uid() != rustix::process::geteuid().as_raw() => {
            refuse("the directory belongs to another user")
        }
        Ok(_) => Ok(path.to_owned()),
        Err(error) => refuse(&error.to_string()),
    }
}

/// Returns the state directory of a configuration.
#[must_use]
pub fn default_directory(chosen: Option<&Path>, namespace: &Namespace) -> PathBuf {
    let own = || {
        namespace
            .path()
            .join(format!("bridge.{}", rustix::process::geteuid().as_raw()))
    };
    chosen.map_or_else(own, Path::to_owned)
}

/// Reads all states of a directory, sorted by name.
#[must_use]
pub fn read(directory: &Path) -> Vec<State> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let mut states: Vec<State> = entries
        .filter(|entry| entry.file_name().to_string_lossy().ends_with(ENDING))
        .filter_map(|entry| serde_json::from_slice(&std::fs::read(entry.path()).ok()?).ok())
        .collect();
    states.sort_by(|one, other| one.name.cmp(&other.name));
    states
}

/// The maximum age of a fresh state: a bridge writes its state at least each second.
const FRESH: Duration = Duration::from_secs(5);

impl State {
    /// Returns whether a process keeps this state up to date.
    #[must_use]
    pub fn is_fresh(&self) -> bool {
        let now = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
        now.saturating_sub(Duration::from_millis(self.updated_ms)) < FRESH
    }
}
