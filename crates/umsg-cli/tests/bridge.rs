//! Tests `umsg bridge`, which executes another program, and the metrics of bridges.

mod support;

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::time::SystemTime;
use support::Site;

#[test]
fn the_program_gets_all_arguments_and_the_directory() {
    let site = Site::new();
    let program = site.path().join("program");
    std::fs::write(&program, "#!/bin/sh\necho \"$UMSG_DIR: $*\"\nexit 3\n").unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o700)).unwrap();
    let mut command = site.command(&[
        "bridge", "--export", "/q", "--stream", "S", "check", "--help",
    ]);
    command.env("UMSG_BRIDGE", &program);
    let output = command.output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let wanted = format!(
        "{}: --export /q --stream S check --help\n",
        site.path().display()
    );
    assert_eq!((text, output.status.code()), (wanted, Some(3)));
}

#[test]
fn a_missing_program_is_named() {
    let site = Site::new();
    let mut command = site.command(&["bridge", "status"]);
    command.env("UMSG_BRIDGE", "/nonexistent/umsg-bridge");
    let output = command.output().unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(text.contains("/nonexistent/umsg-bridge"), "{text}");
    assert_eq!(output.status.code(), Some(127));
}

#[test]
fn metrics_show_the_states_of_bridges() {
    let site = Site::new();
    site.umsg(&["create", "/q"]).text();
    let before = site.umsg(&["metrics"]);
    assert!(!before.text().contains("umsg_bridge"), "{}", before.text());
    let own = std::fs::metadata(site.path()).unwrap().uid();
    let [directory, planted] = [own, own + 1].map(|user| {
        let directory = site.path().join(format!("bridge.{user}"));
        std::fs::create_dir(&directory).unwrap();
        directory
    });
    let now = SystemTime::UNIX_EPOCH.elapsed().unwrap().as_millis();
    let state_in = |directory: &std::path::Path, name: &str, updated: u128| {
        let text = format!(
            "{{\"name\":{name:?},\"direction\":\"export\",\"queue\":\"/q\",\"stream\":\"S\",\"connected\":true,\"messages\":7,\"updated_ms\":{updated}}}"
        );
        std::fs::write(directory.join(format!("{name}.state.json")), text).unwrap();
    };
    let state = |name: &str, updated| state_in(&directory, name, updated);
    state("dead", now - 60_000);
    state("live", now);
    // The name of this directory has another user id than the directory's owner.
    state_in(&planted, "planted", now);
    // Files that another user plants do not stop the scrape.
    umsg_testkit::run::succeed(
        std::process::Command::new("mkfifo").arg(directory.join("fifo.state.json")),
    );
    std::fs::write(directory.join("bad.state.json"), "[").unwrap();
    let metrics = site.umsg(&["metrics"]);
    assert!(!metrics.text().contains("planted"), "{}", metrics.text());
    let labels = |name: &str| {
        format!("{{bridge=\"{name}\",direction=\"export\",queue=\"/q\",stream=\"S\"}}")
    };
    for line in [
        format!("umsg_bridge_up{} 1", labels("live")),
        format!("umsg_bridge_up{} 0", labels("dead")),
        format!("umsg_bridge_carried_messages_total{} 7", labels("live")),
    ] {
        assert!(metrics.text().contains(&line), "{line}: {}", metrics.text());
    }
}
