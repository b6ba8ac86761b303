//! Tests a bridge as a service: signals, states, a service manager, secrets, and errors that name the setting.

mod support;

use std::os::unix::net::UnixDatagram;
use std::time::Duration;
use support::*;

#[test]
fn sighup_changes_bridges_and_a_bad_file_changes_nothing() {
    let Some(program) = nats_server() else { return };
    let server = Server::start(&program, "");
    let mut machine = Machine::new();
    let (out, more) = (
        machine.queue("/out", 100, 16),
        machine.queue("/more", 100, 16),
    );
    machine.declare(&server.url(), EXPORT);
    let path = machine.home.path().join("notify");
    let manager = UnixDatagram::bind(&path).unwrap();
    manager.set_read_timeout(Some(LONG)).unwrap();
    let told = || {
        let mut text = [0; 200];
        let len = manager.recv(&mut text).unwrap();
        String::from_utf8_lossy(&text[..len]).into_owned()
    };
    let log = std::fs::File::create(machine.home.path().join("bridge.log")).unwrap();
    let mut command = machine.command();
    command
        .arg("-c")
        .arg(machine.config())
        .stderr(log)
        .env("NOTIFY_SOCKET", &path);
    machine.bridge = Some(Process::start(&mut command));
    assert_eq!(told(), "READY=1\nSTATUS=1 bridges");
    let hangup = |machine: &Machine| {
        machine.bridge.as_ref().unwrap().signal(libc::SIGHUP);
        assert!(told().starts_with("RELOADING=1\nMONOTONIC_USEC="));
        told()
    };
    machine.declare(&server.url(), "[[bridge]]\nname = 5\n");
    assert_eq!(hangup(&machine), "READY=1\nSTATUS=1 bridges");
    machine.await_log("the old configuration stays");
    let second = EXPORT
        .replace("\"out\"", "\"more\"")
        .replace("/out", "/more");
    machine.declare(&server.url(), &(EXPORT.to_owned() + &second));
    assert_eq!(hangup(&machine), "READY=1\nSTATUS=2 bridges");
    out.send(b"one", 0).unwrap();
    more.send(b"other", 0).unwrap();
    let gone = || out.attributes().messages + more.attributes().messages == 0;
    wait_for(
        "export",
        || gone() && more.attributes().leased == 0,
        || machine.logged(),
    );
    machine.bridge.as_ref().unwrap().signal(libc::SIGTERM);
    assert_eq!(machine.bridge.as_mut().unwrap().wait().code(), Some(0));
    assert_eq!(told(), "STOPPING=1");
    assert!(
        machine
            .states()
            .iter()
            .all(|state| state.state == "stopped")
    );
}

#[test]
fn a_signal_to_end_is_heard_as_soon_as_a_bridge_runs() {
    let mut machine = Machine::new();
    // The start of so many bridges takes some time. The bridges wait for their queue.
    let bridges = (0..200).map(|n| {
        let name = format!("name = \"out{n}\"");
        EXPORT.replace("name = \"out\"", &name)
    });
    machine.declare("nats://127.0.0.1:1", &bridges.collect::<String>());
    machine.start();
    let begin = std::time::Instant::now();
    // Without the handlers, the test could also pass by chance: if the bridge installed them between the first state and the signal.
    while machine.states().is_empty() {
        assert!(begin.elapsed() < LONG, "{}", machine.logged());
    }
    let bridge = machine.bridge.as_mut().unwrap();
    bridge.signal(libc::SIGTERM);
    assert_eq!(bridge.wait().code(), Some(0), "{}", machine.logged());
}

#[test]
fn without_a_server_the_queue_fills_and_the_state_says_so() {
    let Some(program) = nats_server() else { return };
    let mut server = Server::start(&program, "");
    let mut machine = Machine::new();
    let out = machine.queue("/out", 100, 16);
    machine.declare(&server.url(), EXPORT);
    machine.start();
    machine.await_log("running");
    server.kill();
    for _ in 0..50 {
        out.send(b"kept", 0).unwrap();
    }
    let states = || machine.states();
    wait_for(
        "state",
        || states()[0].state.starts_with("waiting for the server"),
        || format!("{:?}", states()),
    );
    let status = || output(machine.command().arg("status")).0;
    wait_for(
        "status",
        || status().contains("waiting for the server"),
        status,
    );
    let held = out.attributes();
    assert_eq!(held.messages + held.leased, 50);
    server.restart();
    wait_for(
        "export",
        || out.attributes().messages + out.attributes().leased == 0,
        || machine.logged(),
    );
}

#[test]
fn wrong_users_and_missing_rights_are_named_and_secrets_are_not() {
    let Some(program) = nats_server() else { return };
    let users = "authorization { users: [ { user: ann, password: \"hunter2\", permissions: { publish: [\"$JS.API.>\", \"$JS.ACK.>\"], subscribe: [\"_INBOX.>\"] } } ] }";
    let server = Server::start(&program, users);
    let mut machine = Machine::new();
    let out = machine.queue("/out", 100, 16);
    let secret = machine.home.path().join("password");
    let declare = |password: &str| {
        std::fs::write(&secret, password).unwrap();
        let text = format!(
            "[server]\nurl = {:?}\ntimeout = \"1s\"\nuser = \"ann\"\npassword_file = {secret:?}\n{EXPORT}",
            server.url()
        );
        std::fs::write(machine.config(), text).unwrap();
    };
    declare("wrong-secret");
    let (text, code) = output(
        machine
            .command()
            .arg("check")
            .arg("-c")
            .arg(machine.config()),
    );
    assert!(
        text.contains("authorization violation") && text.contains("`password_file`"),
        "{text}"
    );
    assert!(!text.contains("wrong-secret"), "{text}");
    assert_eq!(code, Some(1));
    declare("hunter2");
    machine.start();
    machine.await_log("running");
    out.send(b"not allowed", 0).unwrap();
    machine.await_log("Permissions Violation for Publish");
    let held = out.attributes();
    assert_eq!(held.messages + held.leased, 1, "the message waits");
    let arguments = std::fs::read(format!(
        "/proc/{}/cmdline",
        machine.bridge.as_ref().unwrap().0.id()
    ))
    .unwrap();
    for shown in [
        machine.logged(),
        String::from_utf8_lossy(&arguments).into_owned(),
        format!("{:?}", machine.states()),
    ] {
        assert!(!shown.contains("hunter2"), "{shown}");
    }
}

#[test]
fn a_missing_stream_or_queue_is_named_and_a_check_makes_nothing() {
    let Some(program) = nats_server() else { return };
    let server = Server::start(&program, "");
    let machine = Machine::new();
    let text = EXPORT.replace("create_stream = { storage = \"file\" }", "");
    machine.declare(&server.url(), &text);
    let (text, code) = output(
        machine
            .command()
            .arg("check")
            .arg("-c")
            .arg(machine.config()),
    );
    assert!(
        text.contains(
            "out: leases messages of /out, publishes them to the subject s of the stream S"
        ),
        "{text}"
    );
    assert!(
        text.contains("`stream`: the server has no stream S"),
        "{text}"
    );
    assert!(
        text.contains("`queue` /out") && text.contains("create_queue"),
        "{text}"
    );
    assert_eq!(code, Some(1));
    let (text, code) =
        output(
            machine
                .command()
                .args(["check", "--offline", "--import", "/q", "--stream", "S"]),
        );
    assert!(
        text.contains("one machine gets each message") && code == Some(0),
        "{text}"
    );
    let (text, code) = output(machine.command().args(["--import", "/q"]));
    assert!(text.contains("--stream") && code == Some(2), "{text}");
}

#[test]
fn a_check_refuses_a_subject_that_the_stream_does_not_have() {
    let Some(program) = nats_server() else { return };
    let server = Server::start(&program, "");
    let machine = Machine::new();
    machine.queue("/out", 10, 16);
    let check = |bridge: &str| {
        machine.declare(&server.url(), bridge);
        let mut command = machine.command();
        output(command.arg("check").arg("-c").arg(machine.config()))
    };
    // The stream is missing, so the check compares the subjects of the stream that the bridge would make.
    let made = EXPORT.replace("{ storage", "{ subjects = [\"t\"], storage");
    let (text, code) = check(&made);
    let fault = "`subject`: the stream S has no subject that covers \"s\"";
    assert!(text.contains(fault) && code == Some(1), "{text}");
    assert_eq!(check(EXPORT).1, Some(0));
    with_client(&server.url(), async |js| {
        let config = async_nats::jetstream::stream::Config {
            name: "S".to_owned(),
            subjects: vec!["s.p.*".to_owned()],
            ..Default::default()
        };
        js.create_stream(config).await.unwrap();
    });
    // With and without `create_stream`, the check compares the subjects of the existing stream.
    let without = EXPORT.replace("create_stream = { storage = \"file\" }", "");
    for bridge in [EXPORT, &without] {
        let (text, code) = check(bridge);
        assert!(text.contains(fault) && code == Some(1), "{text}");
        let by_priority = bridge.replace("subject =", "subject_by = \"priority\"\nsubject =");
        let (text, code) = check(&by_priority);
        assert_eq!(code, Some(0), "{text}");
    }
}

#[test]
fn a_check_names_a_missing_server_and_a_missing_queue_once() {
    let machine = Machine::new();
    let bridge = EXPORT.replace("create_stream = { storage = \"file\" }", "");
    let port = reserve_port();
    let url = format!("nats://127.0.0.1:{}", port.number);
    machine.declare(&url, &bridge);
    let mut command = machine.command();
    let (text, code) = output(command.arg("check").arg("-c").arg(machine.config()));
    assert_eq!(code, Some(1), "{text}");
    let fault = |setting: &str| text.lines().find(|line| line.contains(setting)).unwrap();
    for (fault, once) in [
        (fault("umsg bridge: server: `url`"), ["IO error", "`url`"]),
        (fault("`queue` /out"), ["reate the queue", "/out"]),
    ] {
        for once in once {
            assert_eq!(fault.matches(once).count(), 1, "{fault}");
        }
    }
}

#[test]
fn a_check_without_a_server_refuses_a_queue_that_can_not_be_made() {
    let machine = Machine::new();
    let create = "create_queue = { max_messages = 0 }\n";
    machine.declare("nats://127.0.0.1:1", &(EXPORT.to_owned() + create));
    let mut command = machine.command();
    command.args(["check", "--offline", "-c"]);
    let (text, code) = output(command.arg(machine.config()));
    let fault = "`max_messages` must be 1 to 1048576, not 0";
    assert!(text.contains(fault) && code == Some(2), "{text}");
}

#[test]
fn a_queue_that_is_made_again_is_found() {
    let Some(program) = nats_server() else { return };
    let server = Server::start(&program, "");
    let mut machine = Machine::new();
    let out = machine.queue("/out", 100, 16);
    machine.declare(&server.url(), EXPORT);
    machine.start();
    out.send(b"one", 0).unwrap();
    wait_for(
        "export",
        || out.attributes().messages + out.attributes().leased == 0,
        || machine.logged(),
    );
    umsg::posix::unlink_in(&machine.namespace, "/out").unwrap();
    machine.await_log("the queue was removed or replaced");
    std::thread::sleep(Duration::from_millis(50));
    let out = machine.queue("/out", 100, 16);
    out.send(b"two", 0).unwrap();
    wait_for(
        "export",
        || out.attributes().messages + out.attributes().leased == 0,
        || machine.logged(),
    );
}

#[test]
fn a_wrong_password_is_in_the_state_and_a_new_one_needs_no_new_start() {
    let Some(program) = nats_server() else { return };
    let users = "authorization { users: [ { user: ann, password: \"hunter2\" } ] }";
    let server = Server::start(&program, users);
    let mut machine = Machine::new();
    let out = machine.queue("/out", 100, 16);
    let secret = machine.home.path().join("password");
    std::fs::write(&secret, "wrong-secret").unwrap();
    let settings = format!(
        "url = {:?}\nuser = \"ann\"\npassword_file = {secret:?}",
        server.url()
    );
    machine.declare_server(&settings, EXPORT);
    machine.start();
    machine.await_error(&["`password_file`", "authorization violation"]);
    let (text, code) = output(machine.command().arg("status"));
    assert!(text.contains("`password_file`"), "{text}");
    assert_eq!(code, Some(1));
    out.send(b"waits", 0).unwrap();
    std::fs::write(&secret, "hunter2").unwrap();
    wait_for(
        "export",
        || out.attributes().messages + out.attributes().leased == 0,
        || machine.logged(),
    );
    machine.expect_no_secret(&["hunter2", "wrong-secret"]);
}

#[test]
fn sighup_connects_again_with_a_changed_secret() {
    let Some(program) = nats_server() else { return };
    let [one, other] = [0, 1].map(|_| nkeys::KeyPair::new_user());
    let users = format!(
        "authorization {{ users: [ {{ nkey: {} }}, {{ nkey: {} }} ] }}",
        one.public_key(),
        other.public_key()
    );
    let server = Server::start(&program, &users);
    let mut machine = Machine::new();
    let out = machine.queue("/out", 100, 16);
    let secret = machine.home.path().join("seed");
    std::fs::write(&secret, one.seed().unwrap()).unwrap();
    let settings = format!("url = {:?}\nnkey_file = {secret:?}", server.url());
    machine.declare_server(&settings, EXPORT);
    machine.start();
    machine.await_log("running");
    let connections = || machine.logged().matches("is=connected").count();
    let hangup = || machine.bridge.as_ref().unwrap().signal(libc::SIGHUP);
    hangup();
    machine.await_log("reloaded");
    assert_eq!(connections(), 1, "nothing has changed");
    // An invalid secrets file leaves the bridge unchanged.
    std::fs::write(&secret, "no seed").unwrap();
    hangup();
    machine.await_log("the old configuration stays");
    assert_eq!(connections(), 1);
    std::fs::write(&secret, other.seed().unwrap()).unwrap();
    hangup();
    wait_for("new connection", || connections() == 2, || machine.logged());
    out.send(b"the other user", 0).unwrap();
    wait_for(
        "export",
        || out.attributes().messages + out.attributes().leased == 0,
        || machine.logged(),
    );
    machine.expect_no_secret(&[&one.seed().unwrap(), &other.seed().unwrap()]);
}

#[test]
fn a_stream_that_acknowledges_nothing_is_refused() {
    let Some(program) = nats_server() else { return };
    let server = Server::start(&program, "");
    with_client(&server.url(), async |js| {
        let config = async_nats::jetstream::stream::Config {
            name: "S".to_owned(),
            subjects: vec!["s".to_owned()],
            no_ack: true,
            ..Default::default()
        };
        js.create_stream(config).await.unwrap();
    });
    let mut machine = Machine::new();
    let out = machine.queue("/out", 100, 16);
    machine.declare(&server.url(), EXPORT);
    let (text, code) = output(
        machine
            .command()
            .arg("check")
            .arg("-c")
            .arg(machine.config()),
    );
    assert!(text.contains("no_ack") && code == Some(1), "{text}");
    out.send(b"waits", 0).unwrap();
    machine.start();
    machine.await_error(&["`stream` S", "no_ack"]);
    let held = out.attributes();
    assert_eq!((held.messages, held.leased), (1, 0), "the message waits");
}

#[test]
fn a_name_belongs_to_one_process_whatever_its_state_directory() {
    let Some(program) = nats_server() else { return };
    let server = Server::start(&program, "");
    let mut machine = Machine::new();
    let out = machine.queue("/out", 100, 16);
    machine.declare(&server.url(), EXPORT);
    machine.start();
    machine.await_log("running");
    let states = tempfile::tempdir().unwrap();
    let config = states.path().join("second.toml");
    let text = std::fs::read_to_string(machine.config()).unwrap();
    let text = format!("state_dir = {:?}\n{text}", states.path());
    std::fs::write(&config, text).unwrap();
    let log = states.path().join("log");
    let mut command = machine.command();
    command.arg("--config").arg(&config);
    command.stderr(std::fs::File::create(&log).unwrap());
    let mut second = Process::start(&mut command);
    let logged = || std::fs::read_to_string(&log).unwrap();
    let waits = "another process runs a bridge named \\\"out\\\"";
    wait_for("refusal", || logged().contains(waits), logged);
    assert!(!logged().contains("running"), "{}", logged());
    machine.kill();
    wait_for("turn", || logged().contains("running"), logged);
    out.send(b"one", 0).unwrap();
    wait_for(
        "export",
        || out.attributes().messages + out.attributes().leased == 0,
        logged,
    );
    second.kill();
}

#[test]
fn the_exit_code_tells_the_service_manager_whether_another_start_can_help() {
    let machine = Machine::new();
    let run = || output(machine.command().arg("--config").arg(machine.config()));
    machine.declare("nats://127.0.0.1:1", "[[bridge]]\nname = 5\n");
    let (text, code) = run();
    assert!(text.contains("bridge.toml") && code == Some(2), "{text}");
    let (text, code) = output(machine.command().args(["--config", "/nonexistent"]));
    assert!(text.contains("/nonexistent") && code == Some(2), "{text}");
    // The bridge must wait, because another program may write the secret later.
    machine.declare_server("token_file = \"/nonexistent\"", EXPORT);
    let (text, code) = run();
    assert!(text.contains("`token_file`") && code == Some(1), "{text}");
    let text = format!("state_dir = {:?}\n{EXPORT}", machine.config());
    std::fs::write(machine.config(), text).unwrap();
    let (text, code) = run();
    assert!(text.contains("`state_dir`") && code == Some(1), "{text}");
    let unit = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../packaging/systemd/umsg-bridge.service"
    );
    let unit = std::fs::read_to_string(unit).unwrap();
    for line in [
        "Restart=always",
        "RestartPreventExitStatus=2",
        "StartLimitIntervalSec=0",
    ] {
        assert!(unit.lines().any(|other| other == line), "{line}");
    }
}

#[test]
fn a_status_without_bridges_is_a_failure() {
    let machine = Machine::new();
    let (text, code) = output(machine.command().arg("status"));
    assert!(text.contains("runs no bridge") && code == Some(1), "{text}");
    let (text, code) = output(machine.command().args(["status", "--json"]));
    assert!(text.starts_with("[]\n") && code == Some(1), "{text}");
}
