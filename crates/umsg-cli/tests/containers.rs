//! Tests umsg in containers: in a single one; in several with a shared namespace, with different users and PID namespaces; and with the files of
//! `examples/containers`. The test makes the containers itself, so it needs no container engine: see [`engine`].
#![allow(
    dead_code,
    reason = "the lists and filters are those of the library's tests, of which these use some"
)]

#[path = "containers/engine.rs"]
mod engine;
#[path = "containers/files.rs"]
mod files;
#[path = "../../umsg/tests/sandbox/containers.rs"]
mod profiles;
#[path = "../../umsg/tests/support/seccomp.rs"]
mod seccomp;
mod support;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use engine::{Container, Image, PATIENCE};
use files::{Compose, Pod};
use support::compiler::Workshop;
use support::{give_to, set_mode};
use tempfile::TempDir;

const ANN: u32 = 1001;
const BERT: u32 = 1002;
/// The path of the volume in the containers, as in the files of `examples/containers`.
const RUN: &str = "/run/umsg";

/// Returns a directory in memory that containers share, with the mode that Kubernetes gives to a volume.
fn volume() -> TempDir {
    let mut directory = tempfile::Builder::new();
    let directory = directory
        .prefix("umsg-cli-test-")
        .tempdir_in("/dev/shm")
        .unwrap();
    set_mode(directory.path(), 0o777);
    directory
}

/// Returns a shared namespace, set up by root in a container without capabilities.
fn shared(image: &Image) -> TempDir {
    let volume = volume();
    let setup = Container::new(0, &["umsg", "setup", "--dir", RUN]);
    setup.volume(volume.path(), RUN).start(image).succeed();
    volume
}

/// Returns the image of the Dockerfile.
fn image() -> Image {
    let mut image = Image::new();
    for (instruction, rest) in files::dockerfile() {
        match (instruction.as_str(), rest.as_str()) {
            // `Image` already has the files in /usr/local. The drop-in needs no loader cache, because `umsg run` names the drop-in's path.
            ("FROM", "debian:bookworm-slim") | ("COPY", ". /usr/local/") | ("RUN", "ldconfig") => {}
            ("ENV", rest) => {
                let (name, value) = rest.split_once('=').unwrap();
                image.environment.push((name.to_owned(), value.to_owned()));
            }
            // The instruction is ignored, because each container of the test gets its user from the test.
            ("USER", "1000:1000") => {}
            _ => panic!("not known: {instruction} {rest}"),
        }
    }
    image
}

/// Returns a command of a user in a container with the volume.
fn command(user: u32, volume: &Path, command: &str) -> Container {
    Container::new(user, &["sh", "-c", command]).volume(volume, RUN)
}

/// Repeats a command, each time in a new container, until it succeeds.
fn wait_for(container: &Container, image: &Image) {
    let end = Instant::now() + PATIENCE;
    while !container.run(image).status.success() {
        assert!(Instant::now() < end, "{container:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn the_containers_of_the_test_are_like_those_of_engines() {
    umsg_testkit::needs_root!();
    let image = Image::new();
    let script = "
        echo process $$, user $(id -u)
        grep -E '^(CapBnd|CapEff|NoNewPrivs|Seccomp):' /proc/self/status
        touch /x /usr/x /run/x 2> /dev/null; ls -d /x /usr/x /run/x 2> /dev/null
        unshare --user true 2> /dev/null || echo unshare is refused
        df --output=size -k /dev/shm | tail -n 1
        ls /dev/shm | wc -l; ls /proc/sys/fs/mqueue | wc -l";
    for (user, container) in [
        (ANN, Container::new(ANN, &[])),
        (0, Container::new(ANN, &[]).rootless()),
    ] {
        let mut container = container;
        container.command = ["sh", "-c", script].map(String::from).to_vec();
        let said = container.start(&image).finish();
        let said = String::from_utf8(said.stdout).unwrap();
        let lines: Vec<&str> = said.lines().map(str::trim).collect();
        let none = "0000000000000000";
        assert_eq!(lines[0], format!("process 1, user {user}"), "{said}");
        assert_eq!(lines[1], format!("CapEff:\t{none}"), "{said}");
        assert_eq!(lines[2], format!("CapBnd:\t{none}"), "{said}");
        assert_eq!(
            lines[3..],
            [
                "NoNewPrivs:\t1",
                "Seccomp:\t2",
                "unshare is refused",
                "65536",
                "0",
                "5"
            ],
            "{said}"
        );
    }
}

#[test]
fn a_container_with_a_read_only_root_has_queues_of_its_own() {
    umsg_testkit::needs_root!();
    let image = Image::new();
    add_client(&image);
    let script = "
        set -e
        umsg create /q && umsg send /q hello && umsg recv /q
        umsg run -- client post /from-c hello && umsg recv /from-c
        umsg run -- client typed
        umsg ls --json | grep -o /dev/shm/umsg-[0-9]* && umsg doctor --all > /dev/null
        ! touch /x 2> /dev/null";
    for user in [0, ANN] {
        let container = Container::new(user, &["sh", "-c", script]);
        let expected = format!("hello\nhello\ntyped\n/dev/shm/umsg-{user}\n");
        assert_eq!(container.start(&image).succeed(), expected);
        let usual = container.clone().with_capabilities();
        assert_eq!(usual.start(&image).succeed(), expected);
        assert_eq!(
            container.rootless().start(&image).succeed(),
            expected.replace("1001", "0")
        );
    }
}

#[test]
fn the_services_of_the_compose_file_exchange_all_messages() {
    umsg_testkit::needs_root!();
    let (image, compose) = (image(), Compose::read());
    let names = compose.volumes.keys();
    let volumes: BTreeMap<String, TempDir> = names.map(|name| (name.clone(), volume())).collect();
    let places = volumes.iter();
    let places = places.map(|(name, volume)| (name.clone(), volume.path().to_owned()));
    let places: BTreeMap<String, PathBuf> = places.collect();
    let healthy: &dyn Fn(&str) = &|name| wait_for(&compose.services[name].check(&places), &image);
    let mut running = BTreeMap::new();
    let (setup, others): (Vec<_>, Vec<_>) = compose
        .services
        .iter()
        .partition(|(_, service)| service.depends_on.is_empty());
    for (name, service) in setup {
        running.insert(name, service.container(&places).start(&image));
    }
    for (name, service) in others {
        for (before, condition) in &service.depends_on {
            assert_eq!(condition.condition, "service_healthy");
            healthy(before);
        }
        running.insert(name, service.container(&places).start(&image));
    }
    let mut succeed = |name: &str| running.remove(&name.to_owned()).unwrap().succeed();
    assert_eq!(succeed("producer"), "");
    assert_eq!(succeed("worker"), "1000\n");
}

fn run_pod(name: &str) {
    let (image, pod, volume) = (image(), Pod::read(name), volume());
    let (first, others) = pod.containers(volume.path());
    for container in first {
        container.start(&image).succeed();
    }
    let start = |(name, container): (String, Container)| (name, container.start(&image));
    let running: Vec<_> = others.into_iter().map(start).collect();
    let ends = running
        .into_iter()
        .map(|(name, container)| (name, container.succeed()));
    let expected = [("producer", ""), ("worker", "1000\n")];
    let expected = expected.map(|(name, output)| (name.to_owned(), output.to_owned()));
    assert_eq!(ends.collect::<Vec<_>>(), expected);
}

#[test]
fn the_containers_of_the_pod_exchange_all_messages() {
    umsg_testkit::needs_root!();
    run_pod("pod.yaml");
}

#[test]
fn the_containers_of_the_restricted_pod_exchange_all_messages() {
    umsg_testkit::needs_root!();
    run_pod("pod-restricted.yaml");
}

#[test]
fn a_volume_that_every_user_may_change_is_refused_until_it_is_set_up() {
    umsg_testkit::needs_root!();
    let (image, volume) = (image(), volume());
    let create = command(ANN, volume.path(), "umsg create /q");
    let refused = create.run(&image);
    let errors = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(1), "{errors}");
    assert!(errors.contains("chmod +t /run/umsg"), "{errors}");
    command(0, volume.path(), "umsg setup --dir /run/umsg")
        .start(&image)
        .succeed();
    create.start(&image).succeed();
}

/// Adds a C program that uses queues only by Linux's own calls, and does not know umsg.
fn add_client(image: &Image) {
    let workshop = Workshop::new();
    let program = workshop.compile("client", include_str!("containers/client.c"), &["-lrt"]);
    image.add(&program, "bin");
}

#[test]
fn containers_of_several_users_wake_and_notify_each_other() {
    umsg_testkit::needs_root!();
    let image = image();
    add_client(&image);
    let volume = shared(&image);
    let ann = |line: &str| command(ANN, volume.path(), line);
    let bert = |line: &str| command(BERT, volume.path(), line);
    ann("umsg create /jobs --mode 0666 && umsg create key:7 --mode 0666")
        .start(&image)
        .succeed();

    let waiting = bert("umsg recv /jobs --timeout 60").start(&image);
    wait_for(&ann("umsg stat /jobs | grep -q ' 1 receiving'"), &image);
    ann("umsg send /jobs 'wake up'").start(&image).succeed();
    assert_eq!(waiting.succeed(), "wake up\n");

    let polling = bert("umsg run -- client polled /jobs").start(&image);
    std::thread::sleep(Duration::from_millis(200));
    ann("umsg run -- client post /jobs 'look up'")
        .start(&image)
        .succeed();
    assert_eq!(polling.succeed(), "look up\n");

    let registered = bert("umsg run -- client notified /jobs").start(&image);
    wait_for(
        &ann("umsg stat /jobs | grep 'notifies' | grep -vq 'no process'"),
        &image,
    );
    ann("umsg run -- client post /jobs news")
        .start(&image)
        .succeed();
    assert_eq!(registered.succeed(), "notified\n");

    ann("umsg send key:7 'of type 2' --type 2")
        .start(&image)
        .succeed();
    let received = bert("umsg recv key:7 --type 2").start(&image).succeed();
    assert_eq!(received, "of type 2\n");
}

#[test]
fn a_killed_container_returns_its_messages_and_blocks_no_other() {
    umsg_testkit::needs_root!();
    let image = image();
    let volume = shared(&image);
    let ann = |line: &str| command(ANN, volume.path(), line);
    let bert = |line: &str| command(BERT, volume.path(), line);
    ann("umsg create /jobs --mode 0666 && umsg send /jobs first")
        .start(&image)
        .succeed();
    let holder = bert("exec umsg recv /jobs --exec sleep 100").start(&image);
    wait_for(&ann("umsg stat /jobs | grep -q ' 1 leased'"), &image);
    // `umsg who` must not take the holder for the process of this container that has the same process id.
    let who = ann("umsg who /jobs").start(&image).succeed();
    let line = who.lines().nth(1).unwrap();
    let words: Vec<&str> = line.split_whitespace().collect();
    assert_eq!(
        words,
        [
            "1",
            "?",
            "?",
            "-",
            "1",
            "leased",
            "in",
            "another",
            "PID",
            "namespace"
        ]
    );
    let doctor = ann("umsg doctor /jobs").start(&image).succeed();
    assert!(
        doctor.contains("process 1 of another PID namespace"),
        "{doctor}"
    );
    let doctor = command(BERT, volume.path(), "umsg doctor /jobs --json")
        .start(&image)
        .succeed();
    assert!(doctor.contains(r#""elsewhere":true"#), "{doctor}");
    // The message is not redelivered while its holder lives.
    let other = ann("umsg recv /jobs --timeout 0.3").run(&image);
    assert_eq!(other.status.code(), Some(3));
    holder.kill();
    assert_eq!(
        ann("umsg recv /jobs --timeout 60").start(&image).succeed(),
        "first\n"
    );

    let sender = ann("seq 100000 | umsg send /jobs --lines && umsg close /jobs").start(&image);
    let steady = bert("umsg recv /jobs --follow --ahead | wc -l").start(&image);
    let mut kills = 0;
    while kills < 20 {
        let victim = bert("umsg recv /jobs --follow --ahead > /dev/null").start(&image);
        std::thread::sleep(Duration::from_millis(10 + kills * 7 % 40));
        victim.kill();
        kills += 1;
    }
    sender.succeed();
    let received: u32 = steady.succeed().trim().parse().unwrap();
    assert!(received > 0);
    ann("umsg doctor --all").start(&image).succeed();
}

/// Checks that containers with a volume at `place`, and without UMSG_DIR, use the namespace that root sets up there. Without that setup, they use the
/// namespace of their user there.
fn share_at(place: &str, setup: bool) {
    let (image, volume) = (Image::new(), volume());
    set_mode(volume.path(), 0o1777);
    let container = |user: u32, line: &str| {
        let container = Container::new(user, &["sh", "-c", line]);
        container.volume(volume.path(), place).start(&image)
    };
    if setup {
        container(0, "umsg setup").succeed();
    }
    let receiver = if setup { BERT } else { ANN };
    container(ANN, "umsg create /q --mode 0666 && umsg send /q hello").succeed();
    assert_eq!(
        container(receiver, "umsg recv /q --timeout 60").succeed(),
        "hello\n"
    );
}

#[test]
fn containers_that_share_dev_shm_share_queues_without_a_setting() {
    umsg_testkit::needs_root!();
    share_at("/dev/shm", false);
    share_at("/dev/shm", true);
    share_at("/dev/shm/umsg", true);
}

#[test]
fn rootless_containers_of_one_user_share_a_directory_of_that_user() {
    umsg_testkit::needs_root!();
    let (image, volume) = (image(), volume());
    give_to(volume.path(), ANN);
    set_mode(volume.path(), 0o700);
    let rootless = |line: &str| command(ANN, volume.path(), line).rootless();
    rootless("umsg create /jobs && umsg send /jobs first")
        .start(&image)
        .succeed();
    let holder = rootless("umsg recv /jobs --exec sleep 100").start(&image);
    wait_for(&rootless("umsg stat /jobs | grep -q ' 1 leased'"), &image);
    holder.kill();
    let received = rootless("umsg recv /jobs --timeout 60").start(&image);
    assert_eq!(received.succeed(), "first\n");
    // The user outside of the user namespaces shares the queues, too.
    command(ANN, volume.path(), "umsg send /jobs second")
        .start(&image)
        .succeed();
    let received = rootless("umsg recv /jobs --timeout 60").start(&image);
    assert_eq!(received.succeed(), "second\n");
}

#[test]
fn a_directory_whose_owner_has_no_id_in_the_container_is_refused() {
    umsg_testkit::needs_root!();
    let image = image();
    let volume = shared(&image);
    let rootless = command(ANN, volume.path(), "umsg create /q")
        .rootless()
        .run(&image);
    let errors = String::from_utf8_lossy(&rootless.stderr).into_owned();
    assert_eq!(rootless.status.code(), Some(1), "{errors}");
    assert!(errors.contains("user namespace"), "{errors}");
}
