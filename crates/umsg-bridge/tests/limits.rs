//! Tests streams at their limits: messages that the stream refuses stay in the local queue.

mod support;

use async_nats::jetstream::stream::{Config, DiscardPolicy, RetentionPolicy};
use std::collections::BTreeMap;
use support::*;
use umsg::posix::Queue;

const MESSAGES: u32 = 12;

/// Makes the stream, and starts an export with messages in its queue.
fn begin(server: &Server, config: Config) -> (Machine, Queue) {
    with_client(&server.url(), async |js| {
        let config = Config {
            name: "S".to_owned(),
            subjects: vec!["s".to_owned()],
            ..config
        };
        js.create_stream(config).await.unwrap();
    });
    let mut machine = Machine::new();
    let out = machine.queue("/out", 100, 16);
    machine.declare(&server.url(), EXPORT);
    machine.start();
    for n in 0..MESSAGES {
        out.send(&n.to_le_bytes(), 0).unwrap();
    }
    (machine, out)
}

/// Takes all messages out of the stream, and counts how often each message came.
fn empty(server: &Server, seen: &mut BTreeMap<u32, u32>) {
    with_client(&server.url(), async |js| {
        let stream = js.get_stream("S").await.unwrap();
        let state = &stream.cached_info().state;
        if state.messages == 0 {
            return;
        }
        for sequence in state.first_sequence..=state.last_sequence {
            let message = stream.get_raw_message(sequence).await.unwrap();
            let n = u32::from_le_bytes(message.payload[..].try_into().unwrap());
            *seen.entry(n).or_insert(0) += 1;
        }
        let last = state.last_sequence;
        stream.purge().sequence(last + 1).await.unwrap();
    });
}

fn stored(server: &Server) -> u64 {
    with_client(&server.url(), async |js| {
        let stream = js.get_stream("S").await.unwrap();
        stream.cached_info().state.messages
    })
}

#[test]
fn a_stream_that_refuses_new_messages_leaves_them_in_the_local_queue() {
    let Some(program) = nats_server() else { return };
    let limits = [
        Config {
            max_messages: 5,
            ..Config::default()
        },
        Config {
            max_messages_per_subject: 5,
            discard_new_per_subject: true,
            ..Config::default()
        },
        Config {
            max_bytes: 1500,
            ..Config::default()
        },
    ];
    for limit in limits {
        let server = Server::start(&program, "");
        let config = Config {
            discard: DiscardPolicy::New,
            ..limit
        };
        let (machine, out) = begin(&server, config);
        machine.await_error(&["`stream`", "maximum", "exceeded"]);
        let held = || {
            let now = out.attributes();
            (now.messages + now.leased) as u64
        };
        wait_for(
            "full stream",
            || held() + stored(&server) == u64::from(MESSAGES) && held() > 0,
            || format!("{} {}\n{}", held(), stored(&server), machine.logged()),
        );
        let mut seen = BTreeMap::new();
        wait_for(
            "messages",
            || {
                empty(&server, &mut seen);
                seen.len() == MESSAGES as usize && held() == 0
            },
            || machine.logged(),
        );
        empty(&server, &mut seen);
        assert!(seen.values().all(|count| *count == 1), "{seen:?}");
        wait_for(
            "recovery",
            || machine.states()[0].error.is_empty(),
            || format!("{:?}", machine.states()),
        );
    }
}

#[test]
fn a_stream_that_drops_old_messages_stops_no_export() {
    let Some(program) = nats_server() else { return };
    let server = Server::start(&program, "");
    let config = Config {
        max_messages: 5,
        discard: DiscardPolicy::Old,
        ..Config::default()
    };
    let (machine, out) = begin(&server, config);
    wait_for(
        "export",
        || out.attributes().messages + out.attributes().leased == 0,
        || machine.logged(),
    );
    let mut seen = BTreeMap::new();
    empty(&server, &mut seen);
    let newest = (MESSAGES - 5..MESSAGES).map(|n| (n, 1)).collect();
    assert_eq!(seen, newest);
}

#[test]
fn back_pressure_passes_a_full_stream_to_the_sender() {
    let Some(program) = nats_server() else { return };
    let server = Server::start(&program, "");
    let config = Config {
        max_messages: 4,
        retention: RetentionPolicy::WorkQueue,
        discard: DiscardPolicy::New,
        ..Config::default()
    };
    let (here, out) = begin(&server, config);
    let mut there = Machine::new();
    let into = there.queue("/in", 2, 16);
    there.declare(&server.url(), IMPORT);
    there.start();
    let held = || {
        let now = out.attributes();
        now.messages + now.leased
    };
    // Two messages are in the queue of the import, and four in the stream. The queue of the export has the rest.
    wait_for(
        "full path",
        || into.attributes().messages == 2 && held() == MESSAGES as usize - 6,
        || format!("{}\n{}\n{}", held(), here.logged(), there.logged()),
    );
    here.await_error(&["maximum messages exceeded"]);
    let mut seen = Vec::new();
    while seen.len() < MESSAGES as usize {
        let message = into.receive_vec_timeout(LONG).unwrap();
        seen.push(u32::from_le_bytes(message.data.try_into().unwrap()));
    }
    seen.sort_unstable();
    assert_eq!(seen, (0..MESSAGES).collect::<Vec<_>>());
    wait_for(
        "end",
        || held() + into.attributes().messages == 0 && stored(&server) == 0,
        || format!("{}\n{}", here.logged(), there.logged()),
    );
}
