//! Kills the bridge at each of its named steps: no message is lost, and a message is repeated only where the table of crash points says so.
#![cfg(feature = "crash-points")]

mod support;

use std::collections::BTreeMap;
use support::*;
use umsg_bridge::crash::POINTS;

/// Sends messages through a pair of bridges, one of which dies at the point, and returns how often each message arrived.
fn deaths(point: &str, from: &str, to: &str) -> Option<BTreeMap<u32, u32>> {
    let program = nats_server()?;
    let server = Server::start(&program, "");
    let (mut here, mut there) = (Machine::new(), Machine::new());
    let (out, into) = (here.queue("/out", 100, 16), there.queue("/in", 100, 16));
    here.declare(
        &server.url(),
        &EXPORT.replace("\"/out\"", &format!("{from:?}")),
    );
    there.declare(
        &server.url(),
        &IMPORT.replace("\"/in\"", &format!("{to:?}")),
    );
    let side = match point.starts_with("IMPORT") {
        true => &mut there,
        false => &mut here,
    };
    // The bridge dies at the third message, so that there are messages before and after the death.
    side.start_with(Some(&format!("{point}:3")));
    match point.starts_with("IMPORT") {
        true => here.start(),
        false => there.start(),
    }
    for n in 0..8_u32 {
        out.send(&n.to_le_bytes(), 0).unwrap();
    }
    let side = match point.starts_with("IMPORT") {
        true => &mut there,
        false => &mut here,
    };
    let status = side.bridge.as_mut().unwrap().wait();
    assert!(status.code().is_none(), "{point}: the bridge is killed");
    side.start();
    let mut seen = BTreeMap::new();
    let mut record = || {
        while let Ok(message) = into.try_receive_vec() {
            *seen
                .entry(u32::from_le_bytes(message.data.try_into().unwrap()))
                .or_insert(0) += 1;
        }
        seen.len()
    };
    wait_for(
        point,
        || record() == 8,
        || format!("{}\n{}", here.logged(), there.logged()),
    );
    wait_for(
        &format!("end of {point}"),
        || {
            let now = out.attributes();
            now.messages + now.leased == 0
        },
        || format!("{}\n{}", here.logged(), there.logged()),
    );
    // The pause is longer than `ack_wait`, 1 s, after which redeliveries come.
    std::thread::sleep(std::time::Duration::from_millis(2200));
    record();
    Some(seen)
}

#[test]
fn a_death_at_each_step_between_posix_queues_neither_loses_nor_repeats_a_message() {
    let of_posix = |name: &&&str| !name.starts_with("SPOOL") && **name != "EXPORT_DEAD";
    let names: Vec<&str> = POINTS.iter().map(|(_, name, _)| *name).collect();
    std::thread::scope(|scope| {
        for name in names.iter().filter(of_posix) {
            scope.spawn(move || {
                let Some(seen) = deaths(name, "/out", "/in") else {
                    return;
                };
                assert!(seen.values().all(|count| *count == 1), "{name}: {seen:?}");
            });
        }
    });
}

/// Declares both bridges on one machine, with a crash point for the process.
fn armed(point: &str, server: &Server, bridges: &str) -> Machine {
    let mut machine = Machine::new();
    machine.declare(&server.url(), bridges);
    machine.start_with(Some(point));
    machine
}

/// Waits for the death of the bridge, and starts the bridge again.
fn revive(machine: &mut Machine) {
    let status = machine.bridge.as_mut().unwrap().wait();
    assert!(status.code().is_none(), "the bridge is killed");
    machine.start();
}

#[test]
fn a_death_between_a_queue_of_the_kernel_and_the_spool_loses_one_message_at_most() {
    use nix::mqueue::{MQ_OFlag, MqAttr, mq_close, mq_open, mq_send, mq_unlink};

    let Some(program) = nats_server() else { return };
    let server = Server::start(&program, "");
    for (point, lost) in [("SPOOL_TAKEN", Some(2)), ("SPOOL_STORED", None)] {
        let name = format!("/umsg-bridge-{}-{point}", std::process::id());
        let flags = MQ_OFlag::O_CREAT | MQ_OFlag::O_WRONLY;
        let attributes = MqAttr::new(0, 10, 16, 0);
        let source = mq_open(
            &*name,
            flags,
            nix::sys::stat::Mode::S_IRWXU,
            Some(&attributes),
        )
        .unwrap();
        let stream = format!("stream = \"{point}\"\nsubject = \"{point}\"");
        let export = EXPORT.replace("\"/out\"", &format!("\"kernel:{name}\""));
        let export = export.replace("stream = \"S\"\nsubject = \"s\"", &stream);
        let mut machine = armed(&format!("{point}:3"), &server, &export);
        for n in 0..8_u32 {
            mq_send(&source, &n.to_le_bytes(), 0).unwrap();
        }
        revive(&mut machine);
        let wanted: Vec<u32> = (0..8).filter(|n| Some(*n) != lost).collect();
        let mut seen = Vec::new();
        let url = server.url();
        wait_for(
            point,
            || {
                seen = with_client(&url, async |js| {
                    let mut seen = Vec::new();
                    let Ok(stream) = js.get_stream(point).await else {
                        return seen;
                    };
                    for sequence in 1..=stream.cached_info().state.messages {
                        let message = stream.get_raw_message(sequence).await.unwrap();
                        seen.push(u32::from_le_bytes(message.payload[..].try_into().unwrap()));
                    }
                    seen
                });
                seen.len() >= wanted.len()
            },
            || machine.logged(),
        );
        mq_unlink(&*name).unwrap();
        mq_close(source).unwrap();
        assert_eq!(seen, wanted, "{point}");
    }
}

#[test]
fn a_death_behind_a_placement_repeats_one_message_of_a_system_v_queue_at_most() {
    use umsg::sysv::{OpenOptions, Want};

    let Some(program) = nats_server() else { return };
    let server = Server::start(&program, "");
    let import = IMPORT.replace("\"/in\"", "\"key:9\"");
    let mut machine = armed("IMPORT_PLACED:3", &server, &(EXPORT.to_owned() + &import));
    let into = OpenOptions::new()
        .create(true)
        .namespace(&machine.namespace)
        .open(9)
        .unwrap();
    let out = machine.queue("/out", 100, 16);
    for n in 0..8_u32 {
        out.send(&n.to_le_bytes(), 0).unwrap();
    }
    revive(&mut machine);
    let mut counts = BTreeMap::new();
    for _ in 0..9 {
        let message = into.receive_vec_timeout(Want::Any, LONG).unwrap();
        *counts.entry(message.data[0]).or_insert(0) += 1;
    }
    assert_eq!((counts.len(), counts[&2]), (8, 2), "{counts:?}");
}

#[test]
fn a_death_beside_a_dead_letter_keeps_the_message() {
    let Some(program) = nats_server() else { return };
    let server = Server::start(&program, "max_payload: 1024");
    let settings = "on_reject = \"dead-letter\"\ndead_letter = \"/failed\"\nname =";
    let mut machine = armed("EXPORT_DEAD", &server, &EXPORT.replace("name =", settings));
    let out = machine.queue("/out", 10, 4096);
    out.send(&[7; 2000], 5).unwrap();
    revive(&mut machine);
    let failed = machine.queue("/failed", 10, 4096);
    for _ in 0..2 {
        assert_eq!(failed.receive_vec_timeout(LONG).unwrap().data, [7; 2000]);
    }
    wait_for(
        "end",
        || out.attributes().leased + out.attributes().messages == 0,
        || machine.logged(),
    );
}

#[test]
fn a_panic_is_an_event_of_its_bridge_and_ends_the_process() {
    let Some(program) = nats_server() else { return };
    let server = Server::start(&program, "");
    let mut machine = Machine::new();
    let out = machine.queue("/out", 100, 16);
    machine.declare(&server.url(), EXPORT);
    let log = std::fs::File::create(machine.home.path().join("bridge.log")).unwrap();
    let mut command = machine.command();
    command.arg("--config").arg(machine.config()).stderr(log);
    command.env("UMSG_BRIDGE_CRASH", "EXPORT_STORED");
    command.env("UMSG_CRASH_PANICS", "1");
    machine.bridge = Some(Process::start(&mut command));
    out.send(b"one", 0).unwrap();
    let status = machine.bridge.as_mut().unwrap().wait();
    assert_eq!(status.code(), None, "a signal ends the process");
    let log = machine.logged();
    assert!(
        log.contains("level=error bridge=out event=\"panic: the process ends\" at=crates/umsg-carry/src/crash.rs"),
        "{log}"
    );
    // The message is in the stream, and also back in the queue, because the dead bridge's lease has ended.
    machine.start();
    wait_for(
        "end",
        || out.attributes().leased + out.attributes().messages == 0,
        || machine.logged(),
    );
}
