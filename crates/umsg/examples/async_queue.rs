//! A service in tokio for clients in other processes, which do not use tokio. All requests come through one queue. Each request has the
//! name of the queue for its answer. Tasks answer the requests, while a clock ticks in the same runtime.

use std::sync::Arc;
use std::time::Duration;
use tokio::time::{interval, timeout};
use umsg::Namespace;
use umsg::aio::posix;
use umsg::posix::{OpenOptions, Queue};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

const CLIENTS: usize = 3;
const REQUESTS: usize = 100;
const TASKS: usize = 4;

fn open(namespace: &Namespace, name: &str) -> Result<Queue> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true);
    options.max_messages(8).message_size(64);
    Ok(options.namespace(namespace).open(name)?)
}

/// Asks for squares, one after another; blocks while it waits.
fn client(directory: &str, number: usize) -> Result<()> {
    let namespace = Namespace::at(directory)?;
    let requests = open(&namespace, "/requests")?;
    let name = format!("/answers-{number}");
    let answers = open(&namespace, &name)?;
    for n in 0..REQUESTS {
        requests.send(format!("{name} {n}").as_bytes(), 0)?;
        let answer = String::from_utf8(answers.receive_vec()?.data)?;
        assert_eq!(answer.parse::<usize>()?, n * n);
    }
    Ok(())
}

/// Answers requests until none has come for a while.
async fn answer(namespace: Namespace, requests: Arc<posix::Queue>) -> Result<usize> {
    let mut answered = 0;
    while let Ok(request) = timeout(Duration::from_secs(1), requests.receive_vec()).await {
        let request = String::from_utf8(request?.data)?;
        let (name, n) = request
            .split_once(' ')
            .ok_or("a request without a number")?;
        let n: usize = n.parse()?;
        let answers = posix::Queue::new(open(&namespace, name)?)?;
        answers.send((n * n).to_string().as_bytes(), 0).await?;
        answered += 1;
    }
    Ok(answered)
}

async fn serve(namespace: Namespace) -> Result<usize> {
    let requests = Arc::new(posix::Queue::new(open(&namespace, "/requests")?)?);
    let tasks: Vec<_> = (0..TASKS)
        .map(|_| tokio::spawn(answer(namespace.clone(), Arc::clone(&requests))))
        .collect();
    let clock = tokio::spawn(async {
        let mut clock = interval(Duration::from_millis(100));
        loop {
            clock.tick().await;
        }
    });
    let mut answered = 0;
    for task in tasks {
        answered += task.await??;
    }
    clock.abort();
    Ok(answered)
}

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().collect();
    if let [_, directory, number] = &arguments[..] {
        return client(directory, number.parse()?);
    }
    let directory = std::env::temp_dir().join(format!("umsg-async-queue-{}", std::process::id()));
    std::os::unix::fs::DirBuilderExt::mode(&mut std::fs::DirBuilder::new(), 0o700)
        .create(&directory)?;
    let namespace = Namespace::at(&directory)?;
    let clients = (0..CLIENTS).map(|number| {
        let mut client = std::process::Command::new(&arguments[0]);
        client.arg(&directory).arg(number.to_string()).spawn()
    });
    let clients = clients.collect::<std::io::Result<Vec<_>>>()?;
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let answered = runtime.enable_all().build()?.block_on(serve(namespace))?;
    for mut client in clients {
        assert!(client.wait()?.success());
    }
    println!("{answered} requests of {CLIENTS} processes answered by {TASKS} tasks on one thread");
    assert_eq!(answered, CLIENTS * REQUESTS);
    std::fs::remove_dir_all(&directory)?;
    Ok(())
}
