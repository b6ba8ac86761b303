//! All bridges of a process: each runs in a task of one thread, begins again after a failure, and ends or changes with the configuration.

use crate::backoff::Backoff;
use crate::config::{Bridge, Config, Direction};
use crate::connect::{self, Link};
use crate::log::{self, Level};
use crate::status::{self, Board, State};
use crate::{export, import, service};
use std::path::PathBuf;
use std::time::{Duration, Instant};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio::task::{JoinHandle, LocalSet, spawn_local};
use umsg::Namespace;

/// The longest pause between two attempts of a bridge.
const LONGEST: Duration = Duration::from_secs(2);

/// The surroundings of a bridge.
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

/// A bridge that runs.
struct Running {
    bridge: Bridge,
    stop: watch::Sender<bool>,
    task: JoinHandle<()>,
}

/// Returns the host's name.
#[must_use]
pub fn host() -> String {
    rustix::system::uname()
        .nodename()
        .to_string_lossy()
        .into_owned()
}

/// Runs all bridges until SIGINT or SIGTERM. `read` reads the configuration, at the beginning and at SIGHUP.
///
/// # Errors
/// The error is a sentence: the configuration is wrong, or the system refuses a call.
pub fn run(namespace: &Namespace, read: &dyn Fn() -> Result<Config, String>) -> Result<(), String> {
    let config = read()?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let runtime = runtime.map_err(|error| format!("the runtime can't be made: {error}"))?;
    LocalSet::new().block_on(&runtime, serve(namespace, config, read))
}

async fn serve(
    namespace: &Namespace,
    mut config: Config,
    read: &dyn Fn() -> Result<Config, String>,
) -> Result<(), String> {
    let mut process = Process::begin(namespace, &config).await?;
    process.apply(&config);
    let listen = |kind| signal(kind).map_err(|error| format!("signals: {error}"));
    let mut hangup = listen(SignalKind::hangup())?;
    let mut interrupt = listen(SignalKind::interrupt())?;
    let mut terminate = listen(SignalKind::terminate())?;
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
                    Err(error) => log::event(Level::Error, "-", "the old configuration stays", &[("error", &error)]),
                }
                service::tell(&format!("READY=1\nSTATUS={} bridges", process.running.len()));
            }
            _ = interrupt.recv() => break,
            _ = terminate.recv() => break,
        }
    }
    service::tell("STOPPING=1");
    process.end().await;
    Ok(())
}

/// Applies the new configuration. An error leaves everything as it was.
async fn reload(
    process: &mut Process,
    namespace: &Namespace,
    old: &Config,
    read: &dyn Fn() -> Result<Config, String>,
) -> Result<Config, String> {
    let new = read()?;
    if new.server != old.server || new.state_dir != old.state_dir {
        let next = Process::begin(namespace, &new).await?;
        std::mem::replace(process, next).end().await;
    }
    process.apply(&new);
    let count = process.running.len();
    log::event(Level::Info, "-", "reloaded", &[("bridges", &count)]);
    Ok(new)
}

struct Process {
    scene: Scene,
    running: Vec<Running>,
}

impl Process {
    async fn begin(namespace: &Namespace, config: &Config) -> Result<Process, String> {
        let directory = status::directory(config.state_dir.as_deref(), namespace)?;
        let host = host();
        let link = connect::connect(&config.server, &format!("umsg-bridge {host}")).await?;
        let scene = Scene {
            namespace: namespace.clone(),
            link,
            directory,
            host,
            domain: config.server.domain.clone(),
            timeout: config.server.timeout.0,
            stop: watch::channel(false).1,
        };
        Ok(Process {
            scene,
            running: Vec::new(),
        })
    }

    /// Ends the bridges that are no longer declared or are declared differently, and starts the new ones.
    fn apply(&mut self, config: &Config) {
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
            // A changed bridge begins when the old one has ended: both use one window.
            let before = ending.iter().position(|old| old.bridge.name == bridge.name);
            let before = before.map(|at| ending.swap_remove(at).task);
            self.running.push(self.start(bridge, before));
        }
        // The file of the state is removed: the state of a bridge that is no longer declared would look like the state of a dead bridge.
        for old in ending {
            let file = format!("{}{}", old.bridge.name, status::ENDING);
            let path = self.scene.directory.join(file);
            spawn_local(async move {
                let _ = old.task.await;
                let _ = std::fs::remove_file(path);
            });
        }
    }

    fn start(&self, bridge: Bridge, before: Option<JoinHandle<()>>) -> Running {
        let (stop, stopped) = watch::channel(false);
        let scene = Scene {
            stop: stopped,
            ..self.scene.clone()
        };
        let own = bridge.clone();
        let task = spawn_local(async move {
            if let Some(before) = before {
                let _ = before.await;
            }
            keep(&own, &scene).await;
        });
        Running { bridge, stop, task }
    }

    async fn end(self) {
        for running in &self.running {
            let _ = running.stop.send(true);
        }
        for running in self.running {
            let _ = running.task.await;
        }
        // Sends the acknowledgements that are still in the client's buffers.
        let _ = tokio::time::timeout(Duration::from_secs(1), self.scene.link.client.flush()).await;
    }
}

/// Runs a bridge, and begins again after each failure.
async fn keep(bridge: &Bridge, scene: &Scene) {
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
    let board = Board::new(state, &scene.directory);
    let mut backoff = Backoff::default();
    let mut stop = scene.stop.clone();
    while !*stop.borrow() {
        let began = Instant::now();
        let ended = tokio::select! {
            ended = once(bridge, scene, &board) => ended,
            _ = stopped_and_settled(scene) => break,
        };
        let Err(why) = ended else { break };
        // A failure at the first message of each attempt must not repeat without a pause.
        if board.get().state == "running" && began.elapsed() > LONGEST {
            backoff.reset();
        }
        board.become_("waiting for another attempt", Some(why));
        board.count(|state| state.retries += 1);
        // The pause is shortened at random once more: with one limit, many bridges would try again at the same moment.
        let pause = backoff.pause().min(LONGEST);
        let pause = pause.mul_f64(0.5 + fastrand::f64() / 2.0);
        let _ = tokio::time::timeout(pause, stop.wait_for(|stop| *stop)).await;
    }
    board.become_("stopped", None);
}

/// Returns some seconds after the request to stop: for a bridge that does not end by itself, for example because it waits for the server.
async fn stopped_and_settled(scene: &Scene) {
    let mut stop = scene.stop.clone();
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
