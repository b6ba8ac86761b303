//! Tests bridges whose network is cut and restored. The network is a link between two network namespaces.

mod support;

use std::process::Command;
use std::time::Duration;
use support::*;

/// The address of the server, at the other end of the link.
const SERVER: &str = "10.77.0.2";
/// The variable that tells this program that it already runs in its own network namespace.
const INSIDE: &str = "UMSG_BRIDGE_TEST_NETWORK";

fn run(line: &str) -> bool {
    let mut words = line.split(' ');
    let mut command = Command::new(words.next().unwrap());
    let output = command.args(words).output();
    output.is_ok_and(|output| {
        eprint!("{}", String::from_utf8_lossy(&output.stderr));
        output.status.success()
    })
}

fn must(line: &str) {
    assert!(run(line), "{line}");
}

/// A second network namespace, which ends with the guard, and the link to it.
struct Network {
    holder: Process,
}

impl Network {
    /// Makes the link. The calling process has a network namespace of its own.
    fn new() -> Network {
        let mut command = Command::new("unshare");
        command.args(["--net", "--", "sleep", "1000000"]);
        let holder = Process::start(&mut command);
        let pid = holder.0.id();
        let own = std::fs::read_link("/proc/self/ns/net").unwrap();
        let other = || std::fs::read_link(format!("/proc/{pid}/ns/net"));
        wait_for(
            "network namespace",
            || other().is_ok_and(|other| other != own),
            || format!("{:?}", other()),
        );
        let network = Network { holder };
        let inside = network.enter().join(" ");
        must("ip link set lo up");
        must(&format!(
            "ip link add va type veth peer name vb netns {pid}"
        ));
        must("ip addr add 10.77.0.1/24 dev va");
        must(&format!("{inside} ip addr add {SERVER}/24 dev vb"));
        must(&format!("{inside} ip link set vb up"));
        network.cut(false);
        network
    }

    /// The start of a command that runs in the second network namespace.
    fn enter(&self) -> Vec<String> {
        let pid = self.holder.0.id().to_string();
        ["nsenter", "--net", "--target", &pid]
            .map(str::to_owned)
            .to_vec()
    }

    fn cut(&self, is_cut: bool) {
        let state = if is_cut { "down" } else { "up" };
        must(&format!("ip link set va {state}"));
    }
}

/// Runs the test of this name again in a new network namespace, and returns true in that run. If the process may not make a namespace, prints a
/// message.
fn inside(test: &str) -> bool {
    if std::env::var_os(INSIDE).is_some() {
        return true;
    }
    let kinds: [&[&str]; 2] = [&["--net"], &["--user", "--map-root-user", "--net"]];
    let unshare = |kind: &[&str]| {
        let mut command = Command::new("unshare");
        command.args(kind).arg("--");
        command
    };
    let can = |kind: &&&[&str]| {
        let mut command = unshare(kind);
        let link = [
            "ip", "link", "add", "va", "type", "veth", "peer", "name", "vb",
        ];
        let output = command.args(link).output();
        output.is_ok_and(|output| output.status.success())
    };
    let Some(kind) = kinds.iter().find(can) else {
        eprintln!(
            "skipped: no right to make a network namespace, or no `ip` (apt-get install iproute2)"
        );
        return false;
    };
    let mut command = unshare(kind);
    command.arg(std::env::current_exe().unwrap());
    command.args(["--exact", test, "--nocapture", "--test-threads=1"]);
    let mut process = Process::start(command.env(INSIDE, "1"));
    let begin = std::time::Instant::now();
    let status = loop {
        if let Some(status) = process.0.try_wait().unwrap() {
            break status;
        }
        assert!(begin.elapsed() < 3 * LONG, "the test does not end");
        std::thread::sleep(Duration::from_millis(10));
    };
    assert!(status.success());
    false
}

#[test]
fn each_priority_keeps_its_order_and_nothing_is_lost_while_the_network_is_cut() {
    let Some(program) = nats_server() else { return };
    if !inside("each_priority_keeps_its_order_and_nothing_is_lost_while_the_network_is_cut") {
        return;
    }
    let network = Network::new();
    let place = Place {
        program,
        address: SERVER.to_owned(),
        enter: network.enter(),
    };
    let server = Server::start_at(place, "");
    let (mut here, mut there) = (Machine::new(), Machine::new());
    // The small queues are full at times.
    let (out, into) = (here.queue("/out", 300, 16), there.queue("/in", 50, 16));
    here.declare(&server.url(), EXPORT);
    // With an `ack_wait` of 120 s, the server redelivers no message during this test.
    there.declare(&server.url(), &IMPORT.replace("\"1s\"", "\"120s\""));
    here.start();
    there.start();
    const MESSAGES: u32 = 3000;
    let mut seen: [Vec<u32>; 3] = Default::default();
    let receive = |seen: &mut [Vec<u32>; 3]| {
        while let Ok(message) = into.try_receive_vec() {
            let n = u32::from_le_bytes(message.data.try_into().unwrap());
            seen[message.priority as usize].push(n);
        }
    };
    for n in 0..MESSAGES {
        if n % 1000 == 500 {
            network.cut(true);
            std::thread::sleep(Duration::from_millis(400));
            network.cut(false);
        }
        while out.try_send(&n.to_le_bytes(), n % 3).is_err() {
            receive(&mut seen);
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    wait_for(
        "messages",
        || {
            receive(&mut seen);
            seen.iter().map(Vec::len).sum::<usize>() >= MESSAGES as usize
        },
        || format!("{}\n{}", here.logged(), there.logged()),
    );
    for (priority, numbers) in seen.iter().enumerate() {
        let wanted: Vec<u32> = (0..MESSAGES)
            .filter(|n| *n as usize % 3 == priority)
            .collect();
        assert!(*numbers == wanted, "priority {priority}: {numbers:?}");
    }
}
