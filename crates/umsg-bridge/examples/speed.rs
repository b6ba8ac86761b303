//! Compares the speed of the bridge with the speed of its client library, async-nats, with the same server, window and messages.
//!
//! To run the example: `UMSG_TEST_NATS=/usr/sbin/nats-server cargo run --release -p umsg-bridge --example speed [MESSAGES] [ROUNDS]`
//!
//! Each round measures the client and the bridge in turn. The figures are medians. The streams are in the server's memory.

use async_nats::jetstream::consumer::pull;
use async_nats::jetstream::message::PublishMessage;
use async_nats::jetstream::{self, Context, stream};
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use std::collections::BTreeMap;
use std::error::Error;
use std::future::IntoFuture;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use umsg::Namespace;
use umsg::posix::{OpenOptions, Queue};

const WINDOW: usize = 512;
const BYTES: usize = 64;
type Outcome<T> = Result<T, Box<dyn Error>>;

/// A process that is killed when the guard is dropped.
struct Guard(Child);

impl Drop for Guard {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn main() -> Outcome<()> {
    let arguments: Vec<String> = std::env::args().collect();
    if let [_, word, directory] = &*arguments
        && word == "receive"
    {
        return receive(directory);
    }
    let mut numbers = std::env::args().skip(1).map(|text| text.parse::<u64>());
    let messages = numbers.next().transpose()?.unwrap_or(100_000);
    let rounds = numbers.next().transpose()?.unwrap_or(5);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let bench = Bench::new(messages)?;
    let mut figures: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    for round in 0..rounds {
        let mut note = |name, figure| figures.entry(name).or_default().push(figure);
        let (client, bridge) = runtime.block_on(bench.export(round))?;
        note("1 publish, async-nats, messages/s", client);
        note("2 export, bridge, messages/s", bridge);
        let (client, bridge) = runtime.block_on(bench.import(round))?;
        note("3 consume, async-nats, messages/s", client);
        note("4 import, bridge, messages/s", bridge);
        let [client, apart, bridge] = runtime.block_on(bench.latency(round))?;
        note("5 publish to consume, one process, us", client);
        note("6 publish to consume, two connections, us", apart);
        note("7 local to local over two bridges, us", bridge);
        let [alone, local, export] = bench.senders(round)?;
        note("8 one paced send, no receiver waits, ns", alone);
        note("9 one paced send, a local receiver waits, ns", local);
        note("A one paced send, beside an export, ns", export);
    }
    for (name, mut values) in figures {
        values.sort_by(f64::total_cmp);
        let median = values[values.len() / 2];
        println!(
            "{name:45} {median:12.0}   (of {rounds}: {:.0} to {:.0})",
            values[0],
            values[values.len() - 1]
        );
    }
    Ok(())
}

struct Bench {
    messages: u64,
    url: String,
    home: tempfile::TempDir,
    namespace: Namespace,
    _server: Guard,
}

impl Bench {
    fn new(messages: u64) -> Outcome<Bench> {
        let program = std::env::var_os("UMSG_TEST_NATS").unwrap_or("nats-server".into());
        let home = tempfile::tempdir_in("/dev/shm")?;
        let port = std::net::TcpListener::bind(("127.0.0.1", 0))?
            .local_addr()?
            .port();
        let mut server = Command::new(program);
        server
            .args(["-a", "127.0.0.1", "-js", "-p", &port.to_string(), "-sd"])
            .arg(home.path().join("js"));
        server.stdout(Stdio::null()).stderr(Stdio::null());
        let server = Guard(
            server
                .spawn()
                .map_err(|error| format!("nats-server: {error}; set UMSG_TEST_NATS to it"))?,
        );
        while std::net::TcpStream::connect(("127.0.0.1", port)).is_err() {
            std::thread::sleep(Duration::from_millis(10));
        }
        let directory = home.path().join("queues");
        std::os::unix::fs::DirBuilderExt::mode(&mut std::fs::DirBuilder::new(), 0o700)
            .create(&directory)?;
        Ok(Bench {
            messages,
            url: format!("nats://127.0.0.1:{port}"),
            namespace: Namespace::at(directory)?,
            home,
            _server: server,
        })
    }

    fn queue(&self, name: &str) -> Outcome<Queue> {
        let _ = umsg::posix::unlink_in(&self.namespace, name);
        let mut options = OpenOptions::new();
        options
            .read(true)
            .write(true)
            .create(true)
            .namespace(&self.namespace);
        options
            .max_messages(self.messages as u32)
            .message_size(BYTES as u32);
        Ok(options.open(name)?)
    }

    fn fill(&self, queue: &Queue) -> Outcome<()> {
        for n in 0..self.messages {
            let mut message = [0; BYTES];
            message[..8].copy_from_slice(&n.to_le_bytes());
            queue.send(&message, 0)?;
        }
        Ok(())
    }

    fn bridge(&self, arguments: &[&str]) -> Outcome<Guard> {
        // This program is `target/PROFILE/examples/speed`; the bridge is in `target/PROFILE`.
        let own = std::env::current_exe()?;
        let program: PathBuf = own
            .ancestors()
            .nth(2)
            .unwrap_or(Path::new("/"))
            .join("umsg-bridge");
        let mut bridge = Command::new(&program);
        bridge
            .args(arguments)
            .args(["--server", &self.url])
            .env("UMSG_DIR", self.namespace.path());
        let log = std::fs::File::create(self.home.path().join("log"))?;
        bridge.stderr(log).stdin(Stdio::null());
        let started = bridge
            .spawn()
            .map_err(|error| format!("{}: {error}", program.display()))?;
        Ok(Guard(started))
    }

    async fn stream(&self, name: &str) -> Outcome<Context> {
        let context = jetstream::ContextBuilder::new()
            .max_ack_inflight(2 * WINDOW)
            .build(async_nats::connect(&self.url).await?);
        context
            .create_stream(stream::Config {
                name: name.to_owned(),
                subjects: vec![name.to_lowercase()],
                storage: stream::StorageType::Memory,
                ..stream::Config::default()
            })
            .await?;
        Ok(context)
    }

    /// Publishes with the headers of the bridge that JetStream needs, and with a window of unacknowledged messages.
    async fn publish(&self, context: &Context, subject: &str) -> Outcome<f64> {
        let begin = Instant::now();
        let mut acks = FuturesUnordered::new();
        for n in 0..self.messages {
            while acks.len() >= WINDOW {
                let _: jetstream::publish::PublishAck =
                    acks.next().await.ok_or("an acknowledgement")??;
            }
            let message = PublishMessage::build()
                .payload(vec![7; BYTES].into())
                .message_id(format!("{subject}-{n}"));
            acks.push(
                context
                    .send_publish(subject.to_owned(), message)
                    .await?
                    .into_future(),
            );
        }
        while let Some(ack) = acks.next().await {
            ack?;
        }
        Ok(self.messages as f64 / begin.elapsed().as_secs_f64())
    }

    async fn export(&self, round: u64) -> Outcome<(f64, f64)> {
        let context = self.stream(&format!("A{round}")).await?;
        let client = self.publish(&context, &format!("a{round}")).await?;
        context.delete_stream(format!("A{round}")).await?;
        let (name, subject) = (format!("B{round}"), format!("b{round}"));
        self.stream(&name).await?;
        let queue = self.queue("/out")?;
        self.fill(&queue)?;
        let _bridge =
            self.bridge(&["--export", "/out", "--stream", &name, "--subject", &subject])?;
        let rate = self
            .rate(|| {
                self.messages
                    - queue.attributes().messages as u64
                    - queue.attributes().leased as u64
            })
            .await?;
        context.delete_stream(name).await?;
        Ok((client, rate))
    }

    /// Measures from the first hundredth of the messages to the last message, so that the start of the process is not measured.
    async fn rate(&self, done: impl Fn() -> u64) -> Outcome<f64> {
        let first = self.messages / 100;
        while done() < first {
            tokio::time::sleep(Duration::from_micros(200)).await;
        }
        let (begin, already) = (Instant::now(), done());
        while done() < self.messages {
            tokio::time::sleep(Duration::from_micros(200)).await;
        }
        Ok((self.messages - already) as f64 / begin.elapsed().as_secs_f64())
    }

    async fn import(&self, round: u64) -> Outcome<(f64, f64)> {
        let name = format!("C{round}");
        let context = self.stream(&name).await?;
        self.publish(&context, &name.to_lowercase()).await?;
        let stream = context.get_stream(&name).await?;
        let consumer = stream
            .create_consumer(pull::Config {
                durable_name: Some("client".to_owned()),
                max_ack_pending: 16 * WINDOW as i64,
                ..pull::Config::default()
            })
            .await?;
        let begin = Instant::now();
        let mut seen = 0;
        while seen < self.messages {
            let mut batch = consumer
                .batch()
                .max_messages(WINDOW)
                .expires(Duration::from_secs(2))
                .messages()
                .await?;
            // A batch that the stream can't fill would end two seconds later, so the loop stops at the last message.
            while seen < self.messages
                && let Some(message) = batch.next().await
            {
                let message = message.map_err(|error| error.to_string())?;
                message.ack().await.map_err(|error| error.to_string())?;
                seen += 1;
            }
        }
        let client = self.messages as f64 / begin.elapsed().as_secs_f64();
        let queue = self.queue("/in")?;
        let _bridge = self.bridge(&["--import", "/in", "--stream", &name])?;
        let rate = self.rate(|| queue.attributes().messages as u64).await?;
        context.delete_stream(name).await?;
        Ok((client, rate))
    }

    async fn latency(&self, round: u64) -> Outcome<[f64; 3]> {
        let (name, subject) = (format!("D{round}"), format!("d{round}"));
        let context = self.stream(&name).await?;
        let stream = context.get_stream(&name).await?;
        let config = pull::Config {
            durable_name: Some("client".to_owned()),
            ..pull::Config::default()
        };
        let consumer = stream.create_consumer(config).await?;
        let mut messages = consumer.messages().await?;
        let mut client = Vec::new();
        for _ in 0..300 {
            tokio::time::sleep(Duration::from_millis(2)).await;
            let begin = Instant::now();
            context
                .publish(subject.clone(), vec![7; BYTES].into())
                .await?;
            let message = messages.next().await.ok_or("a message")??;
            message.ack().await.map_err(|error| error.to_string())?;
            client.push(begin.elapsed().as_secs_f64() * 1e6);
        }
        drop(messages);
        stream.delete_consumer("client").await?;
        let apart = self.apart(&context, &name).await?;
        // The purge removes the client's messages, so that the bridges get new messages only.
        stream.purge().await?;
        let (out, into) = (self.queue("/out")?, self.queue("/in")?);
        let _export = self.bridge(&[
            "--name",
            "a",
            "--export",
            "/out",
            "--stream",
            &name,
            "--subject",
            &subject,
        ])?;
        let _import = self.bridge(&["--name", "b", "--import", "/in", "--stream", &name])?;
        out.send(&[7; BYTES], 0)?;
        into.receive_vec_timeout(Duration::from_secs(10))?;
        let mut bridge = Vec::new();
        for _ in 0..300 {
            std::thread::sleep(Duration::from_millis(2));
            let begin = Instant::now();
            out.send(&[7; BYTES], 0)?;
            into.receive_vec_timeout(Duration::from_secs(10))?;
            bridge.push(begin.elapsed().as_secs_f64() * 1e6);
        }
        context.delete_stream(name).await?;
        Ok([median(client), apart, median(bridge)])
    }

    /// Measures the client, with a consumer that has its own thread and its own connection, as on another machine.
    async fn apart(&self, context: &Context, name: &str) -> Outcome<f64> {
        let (tell, told) = std::sync::mpsc::channel();
        let (url, stream) = (self.url.clone(), name.to_owned());
        let consumer = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .map_err(|error| error.to_string())?;
            runtime
                .block_on(consume(&url, &stream, &tell))
                .map_err(|error| error.to_string())
        });
        told.recv()?;
        let mut times = Vec::new();
        for _ in 0..300 {
            std::thread::sleep(Duration::from_millis(2));
            let begin = Instant::now();
            context
                .publish(name.to_lowercase(), vec![7; BYTES].into())
                .await?;
            // The loop uses `try_recv` with sleeps, because `recv` would block this thread, in which the client's task writes to the socket.
            let arrived = loop {
                match told.try_recv() {
                    Ok(arrived) => break arrived,
                    Err(_) => tokio::time::sleep(Duration::from_millis(1)).await,
                }
            };
            times.push((arrived - begin).as_secs_f64() * 1e6);
        }
        consumer.join().map_err(|_| "the consumer has failed")??;
        Ok(median(times))
    }

    /// Measures the time of a send at 2,000 messages a second: to a queue without a waiting receiver, to a queue with a local receiver, and to an
    /// exported queue.
    fn senders(&self, round: u64) -> Outcome<[f64; 3]> {
        let times = |queue: &Queue, drain: bool| -> Outcome<f64> {
            let mut times = Vec::new();
            for _ in 0..2000 {
                std::thread::sleep(Duration::from_micros(450));
                let begin = Instant::now();
                queue.send(&[7; BYTES], 0)?;
                times.push(begin.elapsed().as_nanos() as f64);
                if drain {
                    queue.try_receive_vec()?;
                }
            }
            Ok(median(times))
        };
        let alone = times(&self.queue("/alone")?, true)?;
        let beside = self.queue("/beside")?;
        let receiver = Command::new(std::env::current_exe()?)
            .arg("receive")
            .arg(self.namespace.path())
            .spawn()?;
        let receiver = Guard(receiver);
        std::thread::sleep(Duration::from_millis(300));
        let local = times(&beside, false)?;
        drop(receiver);
        let name = format!("E{round}");
        let queue = self.queue("/out")?;
        let _bridge = self.bridge(&[
            "--export",
            "/out",
            "--stream",
            &name,
            "--subject",
            &name.to_lowercase(),
            "--create-stream",
        ])?;
        std::thread::sleep(Duration::from_millis(300));
        Ok([alone, local, times(&queue, false)?])
    }
}

/// Consumes 300 messages, and reports the time of each arrival. A first report says that the consumer is ready.
async fn consume(url: &str, stream: &str, tell: &std::sync::mpsc::Sender<Instant>) -> Outcome<()> {
    let context = jetstream::new(async_nats::connect(url).await?);
    let stream = context.get_stream(stream).await?;
    let config = pull::Config {
        durable_name: Some("apart".to_owned()),
        deliver_policy: jetstream::consumer::DeliverPolicy::New,
        ..pull::Config::default()
    };
    let mut messages = stream.create_consumer(config).await?.messages().await?;
    tell.send(Instant::now())?;
    for _ in 0..300 {
        let message = messages.next().await.ok_or("a message")??;
        tell.send(Instant::now())?;
        message.ack().await.map_err(|error| error.to_string())?;
    }
    Ok(())
}

/// Receives for ever, as a local program does.
fn receive(directory: &str) -> Outcome<()> {
    let namespace = Namespace::at(directory)?;
    let mut options = OpenOptions::new();
    let queue = options.read(true).namespace(&namespace).open("/beside")?;
    loop {
        queue.receive_vec()?;
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
