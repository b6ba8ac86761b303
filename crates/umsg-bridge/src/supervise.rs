//! All bridges of a process. Each bridge has its own thread and connection, starts again after a failure, and ends or changes with the configuration.
//!
//! If a process is stopped while it owns the lock of a queue, only the threads of that queue's bridges block. The main thread uses no queue: it shows
//! such bridges as blocked, reads the configuration again, and ends the process.

use crate::backoff::Backoff;
use crate::config::{Bridge, Config, Direction, Server};
use crate::connect::{self, Link};
use crate::failure::Failure;
use crate::log::{self, Level};
use crate::status::{self, Board, State};
use crate::{export, import, local, name, service};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::oneshot::{self, error::TryRecvError};
use tokio::sync::watch;
use tokio::task::LocalSet;
use umsg::Namespace;

/// The maximum pause between two attempts of a bridge.
const LONGEST: Duration = Duration::from_secs(2);
/// The maximum time that a bridge may take to end.
const END: Duration = Duration::from_secs(8);
/// The interval at which the main thread checks the bridges' threads.
const LOOK: Duration = Duration::from_secs(1);
/// The interval at which the messages that wait in a local queue are counted. The state's file is written at most half a second after each count.
const COUNT: Duration = Duration::from_millis(500);
/// The number of attempts after which a bridge makes a new connection: the client leaks a little memory for each request without an answer.
const RENEW: u32 = 500;

/// The environment of a bridge.
#[derive(Clone, Debug)]
pub struct Scene {
    /// The namespace of the local queues.
    pub namespace: Namespace,
    /// The connection.
    pub link: Link,
    /// The state directory.
    pub directory: PathBuf,
    /// The host's name.
    pub host: String,
    /// The JetStream domain.
    pub domain: Option<String>,
    /// The time that a publish or a request waits for its answer.
    pub timeout: Duration,
    /// True once the bridge has to end.
    pub stop: watch::Receiver<bool>,
}

impl Scene {
    /// Returns whether the bridge has to end.
    #[must_use]
    pub fn is_over(&self) -> bool {
        is_over(&self.stop)
    }
}

/// Returns whether a bridge has to end. A dropped sender means that the process ends.
fn is_over(stop: &watch::Receiver<bool>) -> bool {
    *stop.borrow() || stop.has_changed().is_err()
}

/// The arguments of a bridge's thread.
struct Start {
    bridge: Bridge,
    server: Server,
    namespace: Namespace,
    directory: PathBuf,
    board: Board,
    stop: watch::Receiver<bool>,
    /// Gets a new value when the secrets have changed.
    secrets: watch::Receiver<u64>,
}

/// A channel that reports the end of a bridge's thread: the thread drops the sender of the channel when it ends.
type Ended = oneshot::Receiver<()>;

/// A bridge that runs.
struct Running {
    bridge: Bridge,
    board: Board,
    stop: watch::Sender<bool>,
    ended: Ended,
}

/// Returns the host's name.
#[must_use]
pub fn host() -> String {
    rustix::system::uname()
        .nodename()
        .to_string_lossy()
        .into_owned()
}

/// Runs all bridges until SIGINT or SIGTERM. `read` reads the configuration at the start and at each SIGHUP.
///
/// # Errors
/// The error says that the configuration is wrong, or that the system refuses a call.
pub fn run(
    namespace: &Namespace,
    read: &dyn Fn() -> Result<Config, String>,
) -> Result<(), Failure> {
    log::report_panics();
    let config = read().map_err(Failure::Configuration)?;
    let runtime = runtime().map_err(Failure::System)?;
    let served = runtime.block_on(serve(namespace, config, read));
    served.map_err(Failure::System)
}

fn runtime() -> Result<tokio::runtime::Runtime, String> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| format!("the runtime can't be made: {error}"))
}

async fn serve(
    namespace: &Namespace,
    mut config: Config,
    read: &dyn Fn() -> Result<Config, String>,
) -> Result<(), String> {
    // The signal handlers are installed before the first bridge starts: otherwise a signal during the start would end the process without an orderly
    // end.
    let listen = |kind| signal(kind).map_err(|error| format!("signals: {error}"));
    let mut hangup = listen(SignalKind::hangup())?;
    let mut interrupt = listen(SignalKind::interrupt())?;
    let mut terminate = listen(SignalKind::terminate())?;
    let mut process = Process::begin(namespace, &config)?;
    process.apply(&config)?;
    let mut look = tokio::time::interval(LOOK);
    service::tell(&format!(
        "READY=1\nSTATUS={} bridges",
        process.running.len()
    ));
    loop {
        tokio::select! {
            _ = hangup.recv() => {
                service::tell_reloading();
                match reload(&mut process, namespace, &config, read).await {
                    Ok(new) => config = new,
                    Err(error) => log::failure("-", "the old configuration stays", &error),
                }
                service::tell(&format!("READY=1\nSTATUS={} bridges", process.running.len()));
            }
            _ = interrupt.recv() => break,
            _ = terminate.recv() => break,
            _ = look.tick() => process.look(),
        }
    }
    service::tell("STOPPING=1");
    process.end().await;
    Ok(())
}

/// Applies the new configuration. After an error, all bridges continue unchanged.
async fn reload(
    process: &mut Process,
    namespace: &Namespace,
    old: &Config,
    read: &dyn Fn() -> Result<Config, String>,
) -> Result<Config, String> {
    let new = read()?;
    let secrets = connect::fingerprint(&new.server)?;
    if new.server != old.server || new.state_dir != old.state_dir {
        let next = Process::begin(namespace, &new)?;
        std::mem::replace(process, next).end().await;
    } else if process
        .secrets
        .send_if_modified(|now| std::mem::replace(now, secrets) != secrets)
    {
        log::event(Level::Info, "-", "secrets have changed", &[]);
    }
    process.apply(&new)?;
    let count = process.running.len();
    log::event(Level::Info, "-", "reloaded", &[("bridges", &count)]);
    Ok(new)
}

struct Process {
    namespace: Namespace,
    server: Server,
    directory: PathBuf,
    secrets: watch::Sender<u64>,
    running: Vec<Running>,
}

impl Process {
    fn begin(namespace: &Namespace, config: &Config) -> Result<Process, String> {
        let secrets = connect::fingerprint(&config.server)?;
        Ok(Process {
            namespace: namespace.clone(),
            server: config.server.clone(),
            directory: status::directory(config.state_dir.as_deref(), namespace)?,
            secrets: watch::channel(secrets).0,
            running: Vec::new(),
        })
    }

    /// Ends the bridges that are no longer declared or are declared differently, and starts the new bridges.
    fn apply(&mut self, config: &Config) -> Result<(), String> {
        let wanted = config.one_way();
        let (stay, end) = std::mem::take(&mut self.running)
            .into_iter()
            .partition(|running| wanted.contains(&running.bridge));
        self.running = stay;
        let mut ending: Vec<Running> = end;
        for running in &ending {
            let _ = running.stop.send(true);
        }
        for bridge in wanted {
            if self.running.iter().any(|running| running.bridge == bridge) {
                continue;
            }
            // A changed bridge starts after the end of the old one, because both use one window.
            let before = ending.iter().position(|old| old.bridge.name == bridge.name);
            let before = before.map(|at| ending.swap_remove(at).ended);
            let started = self.start(bridge, before)?;
            self.running.push(started);
        }
        // The state file is removed. Otherwise, a bridge that is no longer declared would look like a dead bridge.
        for old in ending {
            let file = format!("{}{}", old.bridge.name, status::ENDING);
            let path = self.directory.join(file);
            tokio::spawn(async move {
                let _ = old.ended.await;
                let _ = std::fs::remove_file(path);
            });
        }
        Ok(())
    }

    fn start(&self, bridge: Bridge, before: Option<Ended>) -> Result<Running, String> {
        let (stop, stopped) = watch::channel(false);
        let (end, ended) = oneshot::channel::<()>();
        let board = board(&bridge, &self.directory);
        let start = Start {
            bridge: bridge.clone(),
            server: self.server.clone(),
            namespace: self.namespace.clone(),
            directory: self.directory.clone(),
            board: board.clone(),
            stop: stopped,
            secrets: self.secrets.subscribe(),
        };
        // The thread is named after the bridge, because the report of a panic shows the thread's name.
        let thread = std::thread::Builder::new().name(bridge.name.clone());
        let work = move || {
            // `end` is dropped at the end of the thread, even after a panic.
            let _end = end;
            if let Err(why) = live(start, before) {
                log::failure("-", "a bridge can't run", &why);
            }
        };
        let spawned = thread.spawn(work);
        spawned.map_err(|error| {
            format!(
                "bridge {:?}: the bridge's thread can't be started: {error}",
                bridge.name
            )
        })?;
        Ok(Running {
            bridge,
            board,
            stop,
            ended,
        })
    }

    /// Shows which bridges have blocked threads.
    fn look(&self) {
        for running in &self.running {
            running.board.look();
        }
    }

    /// Ends all bridges. A thread that is blocked by the lock of a queue ends with the process.
    async fn end(mut self) {
        for running in &self.running {
            let _ = running.stop.send(true);
        }
        let begin = Instant::now();
        let lives =
            |running: &mut Running| matches!(running.ended.try_recv(), Err(TryRecvError::Empty));
        while begin.elapsed() < END {
            self.running.retain_mut(lives);
            if self.running.iter().all(|running| running.board.is_silent()) {
                break;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

fn board(bridge: &Bridge, directory: &Path) -> Board {
    let direction = match bridge.direction {
        Direction::Export => "export",
        _ => "import",
    };
    let state = State {
        name: bridge.name.clone(),
        direction: direction.to_owned(),
        queue: bridge.queue.to_string(),
        stream: bridge.stream.clone(),
        pid: std::process::id(),
        ..State::default()
    };
    Board::new(state, directory)
}

/// The main function of a bridge's thread.
fn live(start: Start, before: Option<Ended>) -> Result<(), String> {
    let runtime = runtime()?;
    let life = async move {
        if let Some(before) = before {
            let _ = before.await;
        }
        let Some(_names) = own_name(&start).await else {
            return;
        };
        tokio::select! {
            () = keep(&start) => {}
            () = show_waiting(&start) => {}
        }
    };
    LocalSet::new().block_on(&runtime, life);
    Ok(())
}

/// Waits until no other process runs a bridge of this name. None: this bridge must end.
async fn own_name(start: &Start) -> Option<Vec<std::fs::File>> {
    let mut stop = start.stop.clone();
    let mut last = String::new();
    loop {
        match name::own(&start.namespace, &start.directory, &start.bridge.name) {
            Ok(names) => {
                start.board.publish();
                return Some(names);
            }
            Err(why) if why != last => {
                log::failure(&start.bridge.name, "waiting for its name", &why);
                last = why;
            }
            Err(_) => {}
        }
        let stopped = tokio::time::timeout(LONGEST, stop.wait_for(|stop| *stop)).await;
        if stopped.is_ok() {
            return None;
        }
    }
}

/// Shows on the board how many messages wait in the queue of an export, also while the export waits for a server or for another attempt. Never
/// returns.
async fn show_waiting(start: &Start) {
    if start.bridge.direction != Direction::Export {
        // Only the server knows the messages that wait for an import, so the import asks.
        return std::future::pending().await;
    }
    loop {
        if let Some(waiting) = local::waiting(&start.namespace, &start.bridge) {
            start.board.count(|state| state.backlog = waiting);
        }
        tokio::time::sleep(COUNT).await;
    }
}

/// Runs a bridge, and starts it again after each failure.
async fn keep(start: &Start) {
    let Start { bridge, board, .. } = start;
    let mut backoff = Backoff::default();
    let mut stop = start.stop.clone();
    let mut secrets = start.secrets.clone();
    let mut scene: Option<Scene> = None;
    let mut attempts = 0;
    while !is_over(&stop) {
        let began = Instant::now();
        attempts += 1;
        let ended = match connected(start, scene.take(), attempts).await {
            Ok(with) => {
                let with = scene.insert(with);
                tokio::select! {
                    ended = once(bridge, with, board) => ended,
                    () = renew_secrets(&mut secrets, with) => Ok(()),
                    () = stopped_and_settled(&stop) => break,
                }
            }
            Err(why) => Err(why),
        };
        let Err(why) = ended else { break };
        // The back-off is reset only after a longer run: a failure at the first message of each attempt must not repeat without a pause.
        if board.get().state == "running" && began.elapsed() > LONGEST {
            backoff.reset();
        }
        board.become_("waiting for another attempt", Some(why));
        board.count(|state| {
            state.retries += 1;
            if bridge.direction == Direction::Export {
                // The leases have ended. The messages of a durable import are still in its queue.
                state.in_flight = 0;
            }
        });
        // The pause is shortened at random once more: otherwise all bridges at the limit would try again at the same moment.
        let pause = backoff.pause().min(LONGEST);
        let pause = pause.mul_f64(0.5 + fastrand::f64() / 2.0);
        let _ = tokio::time::timeout(pause, stop.wait_for(|stop| *stop)).await;
    }
    if let Some(scene) = scene {
        // Sends the acknowledgements that are still in the client's buffers.
        let _ = tokio::time::timeout(Duration::from_secs(1), scene.link.client.flush()).await;
    }
    board.become_("stopped", None);
}

/// Returns the connection of the last attempt, or a new one.
async fn connected(start: &Start, last: Option<Scene>, attempts: u32) -> Result<Scene, String> {
    if let Some(scene) = last
        && !attempts.is_multiple_of(RENEW)
        && scene.link.is_alive()
    {
        return Ok(scene);
    }
    let host = host();
    let name = format!("umsg-bridge {host} {}", start.bridge.name);
    Ok(Scene {
        namespace: start.namespace.clone(),
        link: connect::connect(&start.server, &name).await?,
        directory: start.directory.clone(),
        host,
        domain: start.server.domain.clone(),
        timeout: start.server.timeout.0,
        stop: start.stop.clone(),
    })
}

/// Connects again whenever the secrets have changed. Each new connection reads the secrets. Never returns.
async fn renew_secrets(secrets: &mut watch::Receiver<u64>, scene: &Scene) {
    while secrets.changed().await.is_ok() {
        let _ = scene.link.client.force_reconnect().await;
    }
    std::future::pending().await
}

/// Returns some seconds after the request to stop. The caller then ends a bridge that did not stop by itself, for example because it waits for the
/// server.
async fn stopped_and_settled(stop: &watch::Receiver<bool>) {
    let mut stop = stop.clone();
    let _ = stop.wait_for(|stop| *stop).await;
    tokio::time::sleep(Duration::from_secs(6)).await;
}

async fn once(bridge: &Bridge, scene: &Scene, board: &Board) -> Result<(), String> {
    let refresh = async {
        loop {
            tokio::time::sleep(Duration::from_millis(700)).await;
            board.refresh();
        }
    };
    tokio::select! {
        ended = async {
            match bridge.direction {
                Direction::Export => export::run(bridge, scene, board).await,
                _ => import::run(bridge, scene, board).await,
            }
        } => ended,
        () = refresh => Ok(()),
    }
}
