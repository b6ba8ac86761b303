//! Tests a client that does not connect again, and a client whose events are lost: the bridge must not spin, and must not show a wrong state.

mod support;

use std::cell::Cell;
use std::time::Duration;
use support::*;
use tokio::sync::watch;
use tokio::task::LocalSet;
use umsg_bridge::config::{Bridge, Config, Direction};
use umsg_bridge::connect::{self, Link};
use umsg_bridge::status::{Board, State};
use umsg_bridge::supervise::Scene;
use umsg_bridge::{export, import};

/// Runs a future on its own thread, so that a future that spins fails the test, too: a timer of the same thread could not end it.
fn on_a_thread(work: impl AsyncFnOnce() + Send + 'static) {
    let (tell, told) = std::sync::mpsc::channel();
    let thread = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        LocalSet::new().block_on(&runtime, work());
        tell.send(()).unwrap();
    });
    match told.recv_timeout(LONG) {
        Ok(()) => thread.join().unwrap(),
        Err(std::sync::mpsc::RecvTimeoutError::Disconnected) => thread.join().unwrap(),
        Err(std::sync::mpsc::RecvTimeoutError::Timeout) => panic!("the bridge does not end"),
    }
}

/// Parses a configuration. Returns the settings of the server, and the first bridge.
fn parsed(server: &Server, bridges: &str) -> (umsg_bridge::config::Server, Bridge) {
    let text = format!("[server]\nurl = {:?}\n{bridges}", server.url());
    let config = Config::parse(&text).unwrap();
    let bridge = config.one_way().remove(0);
    (config.server, bridge)
}

#[test]
fn a_bridge_whose_client_has_ended_fails_so_that_the_next_attempt_has_a_new_one() {
    let Some(program) = nats_server() else { return };
    for text in [EXPORT, IMPORT] {
        let server = Server::start(&program, "");
        let machine = Machine::new();
        let _queues = ["/out", "/in"].map(|name| machine.queue(name, 10, 16));
        let (namespace, directory) = (machine.namespace.clone(), machine.home.path().to_owned());
        let (settings, bridge) = parsed(&server, text);
        on_a_thread(async move || {
            let (_tell, stop) = watch::channel(false);
            let scene = Scene {
                namespace,
                link: connect::connect(&settings, "test").await.unwrap(),
                directory: directory.clone(),
                host: "host".to_owned(),
                domain: None,
                timeout: LONG,
                stop,
            };
            let board = Board::new(State::default(), &directory);
            let drained = Cell::new(false);
            let drain = async {
                while board.get().state != "running" {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
                drained.set(true);
                scene.link.client.drain().await.unwrap();
                std::future::pending::<()>().await;
            };
            let run = async {
                match bridge.direction {
                    Direction::Export => export::run(&bridge, &scene, &board).await,
                    _ => import::run(&bridge, &scene, &board).await,
                }
            };
            let ended = tokio::select! {
                ended = run => ended,
                () = drain => Ok(()),
            };
            let why = ended.unwrap_err();
            assert!(
                drained.get() && why.contains("connection has ended"),
                "{why}"
            );
            assert!(!scene.link.is_alive() && !scene.link.holds());
            // After the client's end, a wait for a connection fails at once.
            scene.link.wait_shown(&board).await.unwrap_err();
        });
    }
}

#[test]
fn connections_are_seen_without_their_events() {
    let Some(program) = nats_server() else { return };
    let mut server = Server::start(&program, "");
    let url = server.url();
    on_a_thread(async move || {
        let options = async_nats::ConnectOptions::new().retry_on_initial_connect();
        let client = options.connect(url).await.unwrap();
        // The channel gets no event, as if the client dropped all its events.
        let (_tell, events) = watch::channel(0);
        let mut link = Link::new(client, events);
        link.wait().await.unwrap();
        assert!(link.holds());
        let first = link.connections();
        server.kill();
        link.changed(first).await.unwrap();
        assert!(!link.holds());
        server.restart();
        link.wait().await.unwrap();
        assert!(link.connections() > first);
    });
}
