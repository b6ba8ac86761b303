//! Kills bridges, server, producers and consumers at random while messages flow. `UMSG_BRIDGE_SECONDS` sets the time.

mod support;

use std::collections::HashMap;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use support::*;
use umsg::Namespace;
use umsg::posix::{OpenOptions, Queue, ReceiveError};

/// The environment variable that starts this program as a producer, which sends until it is killed, and prints the number of each sent message.
const PRODUCER: &str = "UMSG_BRIDGE_TEST_PRODUCER";

fn open(namespace: &Namespace, name: &str) -> Queue {
    let mut options = OpenOptions::new();
    options
        .read(true)
        .write(true)
        .namespace(namespace)
        .open(name)
        .unwrap()
}

/// A random number generator (xorshift): the same seed gives the same deaths.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % sides
    }
}

#[test]
fn producer() {
    let Ok(number) = std::env::var(PRODUCER) else {
        return;
    };
    let number: u64 = number.parse().unwrap();
    let queue = open(&Namespace::resolve().unwrap(), "/out");
    for n in 0_u64.. {
        let message = [number.to_le_bytes(), n.to_le_bytes()].concat();
        queue.send(&message, (n % 3) as u32).unwrap();
        // The line is written after the send has returned, so each printed message must arrive.
        println!("sent {number} {n}");
        std::thread::sleep(Duration::from_micros(300));
    }
}

/// A producer, and the numbers that it has sent.
struct Producer {
    process: Process,
    lines: std::thread::JoinHandle<Vec<(u64, u64)>>,
}

impl Producer {
    fn start(machine: &Machine, number: u64) -> Producer {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "producer", "--nocapture", "--test-threads=1"]);
        command
            .env("UMSG_DIR", machine.home.path())
            .env(PRODUCER, number.to_string());
        let mut process = Process::start(command.stdout(Stdio::piped()).stderr(Stdio::null()));
        let stdout = BufReader::new(process.0.stdout.take().unwrap());
        // The thread ends when the process closes the pipe at its end.
        let lines = std::thread::spawn(move || {
            let numbers = stdout.lines().map_while(Result::ok).filter_map(|line| {
                let mut words = line.split("sent ").nth(1)?.split(' ');
                Some((words.next()?.parse().ok()?, words.next()?.parse().ok()?))
            });
            numbers.collect()
        });
        Producer { process, lines }
    }

    fn end(mut self) -> Vec<(u64, u64)> {
        self.process.kill();
        self.lines.join().unwrap()
    }
}

#[test]
fn nothing_is_lost_or_repeated_while_everything_dies() {
    violence(EXPORT, IMPORT);
}

#[test]
fn nothing_is_lost_or_repeated_in_a_full_work_queue_while_everything_dies() {
    // A work queue removes acknowledged messages, so a killed server forgets their ids. The window of the import must recognise the repeats.
    let limited = |text: &str| {
        let limits = "storage = \"file\", retention = \"work-queue\", max_messages = 100";
        text.replace("storage = \"file\"", limits)
    };
    violence(&limited(EXPORT), &limited(IMPORT));
}

fn violence(export: &str, import: &str) {
    let Some(program) = nats_server() else { return };
    let seconds = std::env::var("UMSG_BRIDGE_SECONDS").map_or(12, |text| text.parse().unwrap());
    let seed = std::time::SystemTime::UNIX_EPOCH
        .elapsed()
        .unwrap()
        .as_nanos() as u64
        | 1;
    println!("seed {seed}");
    let mut dice = Dice(seed);
    let mut server = Server::start(&program, "");
    let (mut here, mut there) = (Machine::new(), Machine::new());
    let (_out, into) = (here.queue("/out", 2000, 16), there.queue("/in", 500, 16));
    here.declare(&server.url(), export);
    there.declare(&server.url(), import);
    here.start();
    there.start();
    let mut promised = Vec::new();
    let mut producers: Vec<Producer> = (0..2).map(|n| Producer::start(&here, n)).collect();
    let mut number = 2;
    let mut counts: HashMap<(u64, u64), u32> = HashMap::new();
    let mut deaths = [0; 5];
    // Receives all messages of the queue, and returns their number.
    let receive = |counts: &mut HashMap<(u64, u64), u32>| {
        let mut received = 0;
        loop {
            match into.try_receive_vec() {
                Ok(message) => {
                    let (producer, n) = message.data.split_at(8);
                    let word = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().unwrap());
                    *counts.entry((word(producer), word(n))).or_insert(0) += 1;
                    received += 1;
                }
                Err(ReceiveError::Empty) => return received,
                Err(error) => panic!("{error}"),
            }
        }
    };
    let begin = Instant::now();
    while begin.elapsed() < Duration::from_secs(seconds) {
        let until = Instant::now() + Duration::from_millis(100 + dice.roll(500));
        // The receiver sometimes pauses, so that the queue becomes full.
        let pauses = dice.roll(4) == 0;
        while Instant::now() < until {
            if !pauses {
                receive(&mut counts);
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        let victim = dice.roll(5) as usize;
        deaths[victim] += 1;
        match victim {
            0 => {
                here.kill();
                here.start();
            }
            1 => {
                there.kill();
                there.start();
            }
            2 => server.restart(),
            3 => {
                let at = dice.roll(producers.len() as u64) as usize;
                promised.extend(producers.swap_remove(at).end());
                producers.push(Producer::start(&here, number));
                number += 1;
            }
            _ => {
                // A stopped server acts like a cut network: no byte passes for a while.
                server.stop(true);
                std::thread::sleep(Duration::from_millis(dice.roll(700)));
                server.stop(false);
            }
        }
    }
    for producer in producers {
        promised.extend(producer.end());
    }
    let missing = |counts: &HashMap<(u64, u64), u32>| {
        promised
            .iter()
            .filter(|one| !counts.contains_key(one))
            .count()
    };
    // The stream may contain many messages. The test waits as long as messages continue to arrive.
    let mut arrived = Instant::now();
    loop {
        if receive(&mut counts) > 0 {
            arrived = Instant::now();
        } else if arrived.elapsed() > Duration::from_millis(500) {
            let missing = missing(&counts);
            if missing == 0 {
                break;
            }
            assert!(
                arrived.elapsed() < LONG,
                "seed {seed}: {missing} of {} messages are missing\n{}\n{}",
                promised.len(),
                here.logged(),
                there.logged()
            );
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    // The pause is longer than `ack_wait`, 1 s, after which redeliveries come.
    let until = Instant::now() + Duration::from_millis(2500);
    while Instant::now() < until {
        receive(&mut counts);
        std::thread::sleep(Duration::from_millis(20));
    }
    let twice: Vec<_> = counts.iter().filter(|(_, count)| **count > 1).collect();
    let recognised: Vec<_> = [&here, &there]
        .iter()
        .flat_map(|machine| machine.states())
        .map(|state| state.duplicates)
        .collect();
    println!(
        "{} messages sent, {} arrived; killed: exporter {}, importer {}, server {}, producers {}; cut {}; recognised since the last start: {recognised:?}",
        promised.len(),
        counts.len(),
        deaths[0],
        deaths[1],
        deaths[2],
        deaths[3],
        deaths[4]
    );
    assert!(promised.len() > 100, "producers have worked");
    assert!(
        twice.is_empty(),
        "seed {seed}: {twice:?}\n{}\n{}",
        here.logged(),
        there.logged()
    );
}
