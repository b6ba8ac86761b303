//! Tests queues in other places: another namespace, the kernel, and another user's directory.

mod support;

use std::ffi::CString;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use support::compiler::Workshop;
use support::{NOBODY, Site, end, finish, give_to, set_mode, start};
use umsg_testkit::artefacts::drop_in;
use umsg_testkit::needs_root;

/// A POSIX queue of the kernel, which is removed at the end of the test. None if the kernel refuses it.
struct KernelQueue(CString);

impl KernelQueue {
    fn new(name: &str) -> Option<KernelQueue> {
        let name = CString::new(name).unwrap();
        let flags = libc::O_CREAT | libc::O_RDONLY | libc::O_CLOEXEC;
        // SAFETY: the name ends with NUL, and no attributes are given.
        let queue = unsafe { libc::syscall(libc::SYS_mq_open, name.as_ptr(), flags, 0o600, 0) };
        (queue >= 0).then_some(KernelQueue(name))
    }
}

impl Drop for KernelQueue {
    fn drop(&mut self) {
        // SAFETY: the name ends with NUL.
        unsafe { libc::syscall(libc::SYS_mq_unlink, self.0.as_ptr()) };
    }
}

/// Returns a directory that is already a namespace.
fn used() -> Site {
    let site = Site::new();
    site.umsg(&["create", "/used"]).text();
    site
}

#[test]
fn a_missing_queue_is_told_with_the_directory() {
    let site = used();
    let dir = site.path().display();
    let told = format!("umsg: /none: no queue has this name in {dir}; `umsg ls` lists the queues");
    for command in [
        &["recv", "/none"][..],
        &["rm", "/none"],
        &["doctor", "/none"],
        &["who", "/none"],
    ] {
        site.umsg(command).fails(1, &[&told]);
    }
    let told = format!("umsg: key:0x7a3: no queue has this key in {dir}; `umsg ls`");
    site.umsg(&["stat", "0x7a3"]).fails(1, &[&told]);
    site.umsg(&["who", "key:0x7a3"]).fails(1, &[&told]);
}

#[test]
fn a_queue_in_another_namespace_is_pointed_at() {
    let (here, there) = (used(), used());
    let dir = there.path().to_str().unwrap();
    there.umsg(&["create", "/there"]).text();
    there.umsg(&["create", "key:0x7a4"]).text();
    let elsewhere = |queue: &str| {
        let mut command = there.command(&["stat", queue, "--dir", here.path().to_str().unwrap()]);
        finish(&mut command, b"").fails(
            1,
            &[&format!(
                "; {dir} has such a queue; to use that queue, give --dir {dir}"
            )],
        );
    };
    elsewhere("/there");
    elsewhere("0x7a4");
}

#[test]
fn a_queue_of_the_kernel_is_pointed_at() {
    let site = used();
    let name = format!("umsg-cli-test-{}", std::process::id());
    let Some(queue) = KernelQueue::new(&name) else {
        return eprintln!("the kernel has no POSIX queues here");
    };
    site.umsg(&["recv", &name])
        .fails(1, &["the kernel has such a queue", "without `umsg run`"]);
    drop(queue);
    site.umsg(&["recv", &name])
        .fails(1, &["`umsg ls` lists the queues"]);
}

#[test]
fn who_and_doctor_point_at_a_queue_of_the_same_name_in_another_place() {
    let (here, there) = (used(), used());
    let dir = there.path().to_str().unwrap();
    let name = format!("/umsg-cli-both-{}", std::process::id());
    here.umsg(&["create", &name]).text();
    let ask = |command: &str, json: &[&str]| {
        let arguments = [
            &[command, &name, "--dir", here.path().to_str().unwrap()],
            json,
        ]
        .concat();
        let outcome = finish(&mut there.command(&arguments), b"");
        assert_eq!(outcome.code, Some(0), "{outcome:?}");
        outcome
    };
    let nowhere = ask("who", &["--json"]).json();
    assert_eq!(nowhere["also_in"], serde_json::json!([]));
    assert_eq!(ask("who", &[]).errors, "");

    there.umsg(&["create", &name]).text();
    let told = format!("{dir} has a queue of this name, too");
    assert!(ask("who", &[]).errors.contains(&told));
    assert!(
        ask("doctor", &[])
            .text()
            .contains(&format!("elsewhere     {told}"))
    );
    let doctor = ask("doctor", &["--json"]).json();
    assert_eq!(doctor["queues"][0]["also_in"], serde_json::json!([dir]));
    there.umsg(&["rm", &name]).text();

    let Some(_queue) = KernelQueue::new(&name[1..]) else {
        return eprintln!("the kernel has no POSIX queues here");
    };
    assert!(
        ask("who", &[])
            .errors
            .contains("the kernel has a queue of this name, too")
    );
    assert_eq!(
        ask("who", &["--json"]).json()["also_in"],
        serde_json::json!(["kernel"])
    );
}

#[test]
fn a_waiter_that_was_killed_is_shown_as_dead() {
    let site = used();
    let mut waiting = start(&mut site.command(&["recv", "/used"]));
    site.wait_for("/used", "blocked_receivers", 1);
    waiting.kill().unwrap();
    waiting.wait().unwrap();
    let shown = site.umsg(&["who", "/used"]);
    assert!(shown.text().contains("dead: "), "{shown:?}");
    let shown = site.umsg(&["who", "/used", "--json"]).json();
    assert_eq!(shown["processes"][0]["dead"], true);
}

#[test]
fn a_program_on_the_drop_in_learns_of_a_queue_of_the_kernel_on_request() {
    const SOURCE: &str = r#"
        #include <mqueue.h>
        #include <fcntl.h>
        int main(int argc, char **argv) { return mq_open(argv[1], O_RDONLY) != (mqd_t)-1; }"#;
    let (site, workshop) = (used(), Workshop::new());
    let name = format!("umsg-cli-debug-{}", std::process::id());
    let Some(queue) = KernelQueue::new(&name) else {
        return eprintln!("the kernel has no POSIX queues here");
    };
    let program = workshop.compile("opener", SOURCE, &["-lrt"]);
    let arguments = ["run", "--", program.to_str().unwrap(), &format!("/{name}")];
    let run = || {
        let mut command = site.command(&arguments);
        command
            .env("UMSG_PRELOAD", drop_in())
            .env("UMSG_DEBUG", "1");
        finish(&mut command, b"")
    };
    let told = "the kernel has a queue of this name";
    let outcome = run();
    assert!(
        outcome.code == Some(0) && outcome.errors.contains(told),
        "{outcome:?}"
    );
    let searched = format!("(in {})", site.path().display());
    let first = outcome.errors.lines().next().unwrap_or_default();
    assert!(first.ends_with(&searched), "{outcome:?}");
    drop(queue);
    let outcome = run();
    assert!(
        outcome.code == Some(0) && !outcome.errors.contains(told),
        "{outcome:?}"
    );
}

#[test]
fn a_system_v_queue_of_the_kernel_is_pointed_at() {
    let site = used();
    let key = 0x7500_0000 | (std::process::id() & 0xff_ffff);
    // SAFETY: the call has no pointers.
    let id = unsafe {
        libc::syscall(
            libc::SYS_msgget,
            key,
            libc::IPC_CREAT | libc::IPC_EXCL | 0o600,
        )
    };
    if id < 0 {
        return eprintln!("the kernel has no System V queues here");
    }
    let outcome = site.umsg(&["recv", &format!("{key:#x}")]);
    // SAFETY: IPC_RMID takes no buffer.
    unsafe { libc::syscall(libc::SYS_msgctl, id, libc::IPC_RMID, 0) };
    outcome.fails(1, &["no queue has this key", "the kernel has such a queue"]);
}

/// Returns a private namespace of another user, with a queue.
fn of_nobody() -> Site {
    let site = Site::new();
    give_to(site.path(), NOBODY);
    set_mode(site.path(), 0o700);
    site.umsg_as_nobody(&["create", "/theirs"]).unwrap().text();
    site.umsg_as_nobody(&["send", "/theirs", "hello"])
        .unwrap()
        .text();
    site
}

#[test]
fn root_looks_at_a_namespace_of_another_user() {
    needs_root!();
    let site = of_nobody();
    assert_eq!(site.umsg(&["ls", "--quiet"]).text(), "/theirs\n");
    assert!(site.umsg(&["peek", "/theirs"]).text().ends_with("hello\n"));
    assert_eq!(
        site.umsg(&["stat", "/theirs", "--json"]).json()["uid"],
        NOBODY
    );
    site.umsg(&["doctor", "--all"]).text();
    site.umsg(&["who", "/theirs"]).text();
}

#[test]
fn root_changes_a_namespace_of_another_user_as_its_owner_only() {
    needs_root!();
    let site = of_nobody();
    let told = "give --as-owner to act as that user";
    for command in [
        &["send", "/theirs", "x"][..],
        &["recv", "/theirs"],
        &["rm", "/theirs"],
        &["doctor", "/theirs", "--repair"],
        &["create", "/new"],
    ] {
        site.umsg(command)
            .fails(1, &["belongs to user 65534", told]);
    }
    site.umsg(&["create", "/new", "--as-owner"]).text();
    assert_eq!(site.umsg(&["stat", "/new", "--json"]).json()["uid"], NOBODY);
    assert_eq!(
        site.umsg(&["recv", "/theirs", "--as-owner"]).text(),
        "hello\n"
    );
    let as_whom = [
        "recv",
        "/new",
        "--as-owner",
        "--exec",
        "sh",
        "-c",
        "id -u; id -G; cat",
    ];
    site.umsg(&["send", "/new", "x", "--as-owner"]).text();
    let output = String::from_utf8(site.umsg(&as_whom).output).unwrap();
    let lines: Vec<&str> = output.lines().collect();
    assert_eq!((lines[0], lines[2]), ("65534", "x"));
    assert!(!lines[1].split(' ').any(|group| group == "0"), "{output}");
    site.umsg(&["rm", "/theirs", "/new", "--as-owner"]).text();
    site.umsg(&["run", "--as-owner", "--", "true"])
        .fails(2, &["runuser"]);
    // A user other than root gets no further rights by `--as-owner`.
    let roots = Site::new();
    set_mode(roots.path(), 0o755);
    roots.umsg(&["create", "/roots"]).text();
    roots
        .umsg_as_nobody(&["recv", "/roots", "--as-owner"])
        .unwrap()
        .fails(1, &["permission denied"]);
}

#[test]
fn the_identity_is_taken_before_the_directory_is_trusted() {
    needs_root!();
    // In a namespace of another user, symlinks to root's files replace the namespace's files.
    let site = of_nobody();
    let roots = Site::new();
    set_mode(roots.path(), 0o700);
    roots.umsg(&["create", "/secret"]).text();
    roots.umsg(&["send", "/secret", "root's"]).text();
    std::fs::remove_dir_all(site.path().join("mq")).unwrap();
    std::os::unix::fs::symlink(roots.path().join("mq"), site.path().join("mq")).unwrap();
    for command in [
        &["peek", "/secret"][..],
        &["stat", "/secret"],
        &["rm", "/secret", "--as-owner"],
    ] {
        let outcome = site.umsg(command);
        assert_eq!(outcome.code, Some(1), "{outcome:?}");
        assert!(
            !outcome.errors.contains("root's") && outcome.output.is_empty(),
            "{outcome:?}"
        );
    }
    assert_eq!(roots.umsg(&["recv", "/secret"]).text(), "root's\n");
}

#[test]
fn who_shows_waits_holds_and_descriptors() {
    let site = Site::new();
    site.umsg(&["create", "/q"]).text();
    assert_eq!(
        site.umsg(&["who", "/q", "--json"]).json()["processes"],
        serde_json::json!([])
    );
    let waiting = start(&mut site.command(&["recv", "/q", "--timeout", "100"]));
    site.wait_for("/q", "blocked_receivers", 1);
    let shown = site.umsg(&["who", "/q"]);
    let line = shown.text().lines().nth(1).unwrap().to_owned();
    let pid = waiting.id().to_string();
    assert!(line.trim_start().starts_with(&pid), "{line}");
    assert!(
        line.contains("mapped") && line.contains("to receive for "),
        "{line}"
    );
    assert!(line.contains("recv /q --timeout 100"), "{line}");
    let entry = &site.umsg(&["ps", "/q", "--json"]).json()["processes"][0];
    assert_eq!(
        (&entry["receiving"], &entry["sending"]),
        (&1.into(), &0.into())
    );
    assert!(entry["waiting_seconds"].as_f64() > Some(0.0), "{entry}");
    site.umsg(&["send", "/q", "x"]).text();
    end(waiting).text();
    // The worker holds a lease. It also has a descriptor of the queue's file open, as programs under `umsg run` do.
    site.umsg(&["send", "/q", "y"]).text();
    let mut worker = Command::new("bash");
    let umsg = env!("CARGO_BIN_EXE_umsg");
    let script = format!(
        "exec 9<>\"$UMSG_DIR/mq/q\"; exec {umsg} recv /q --exec sh -c 'exec sleep 100' 9>&-"
    );
    worker.args(["-c", &script]).env("UMSG_DIR", site.path());
    let mut worker = start(&mut worker);
    site.wait_for("/q", "leased", 1);
    let entry = &site.umsg(&["who", "/q", "--json"]).json()["processes"][0];
    assert_eq!(
        (&entry["pid"], &entry["leased"]),
        (&worker.id().into(), &1.into())
    );
    worker.kill().unwrap();
    worker.wait().unwrap();
}

#[test]
fn a_wait_is_one_call_whose_whole_time_is_shown() {
    let site = Site::new();
    site.umsg(&["create", "/full", "--max-messages", "1"])
        .text();
    site.umsg(&["send", "/full", "x"]).text();
    site.umsg(&["create", "key:0x11"]).text();
    let calls = [
        ("/empty", &["recv", "/empty"][..], "receiv"),
        (
            "key:0x11",
            &["recv", "key:0x11", "--timeout", "100"],
            "receiv",
        ),
        ("/full", &["send", "/full", "y"], "send"),
    ];
    site.umsg(&["create", "/empty"]).text();
    let waiting = calls.map(|(_, arguments, _)| start(&mut site.command(arguments)));
    for (name, _, what) in calls {
        site.wait_for(name, &format!("blocked_{what}ers"), 1);
    }
    // A command could divide its wait into calls of 1 s, 2 s and so on. Then the call in progress after 2.6 s would have waited less than 2.6 s.
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_millis(2_600) {
        thread::sleep(Duration::from_millis(50));
    }
    for (name, _, what) in calls {
        let entry = &site.umsg(&["who", name, "--json"]).json()["processes"][0];
        assert!(entry["waiting_seconds"].as_f64() >= Some(2.6), "{entry}");
        let stat = site.umsg(&["stat", name, "--json"]).json();
        let [of_senders, of_receivers] =
            ["sends_blocked", "receives_blocked"].map(|field| stat["statistics"][field].clone());
        let expected = if what == "send" { (1, 0) } else { (0, 1) };
        assert_eq!(
            (of_senders, of_receivers),
            (expected.0.into(), expected.1.into())
        );
    }
    for mut waiter in waiting {
        waiter.kill().unwrap();
        waiter.wait().unwrap();
    }
}

#[test]
fn who_shows_the_producers_that_keep_a_stream_open() {
    let site = Site::new();
    for name in ["/q", "key:0x11"] {
        site.umsg(&["create", name, "--close-with-last-producer"])
            .text();
        let producer = start(&mut site.command(&["send", name, "--lines", "--producer"]));
        site.wait_for(name, "producers", 1);
        let entry = &site.umsg(&["who", name, "--json"]).json()["processes"][0];
        assert_eq!(
            (&entry["pid"], &entry["producer"]),
            (&producer.id().into(), &true.into())
        );
        assert!(site.umsg(&["who", name]).text().contains("  producer  "));
        let doctor = site.umsg(&["doctor", name, "--json"]).json();
        assert!(doctor.to_string().contains("\"producers\":[{"), "{doctor}");
        end(producer).text();
        assert_eq!(
            site.umsg(&["who", name, "--json"]).json()["processes"],
            serde_json::json!([])
        );
    }
}

#[test]
fn who_knows_rings_keys_and_senders() {
    let site = Site::new();
    site.umsg(&["create", "key:0x11", "--qbytes", "4"]).text();
    site.umsg(&["send", "0x11", "full"]).text();
    let sender = start(&mut site.command(&["send", "0x11", "more"]));
    site.wait_for("0x11", "blocked_senders", 1);
    let entry = &site.umsg(&["who", "0x11", "--json"]).json()["processes"][0];
    assert_eq!(
        (&entry["pid"], &entry["sending"]),
        (&sender.id().into(), &1.into())
    );
    assert_eq!(entry["mapped"], true);
    site.umsg(&["recv", "0x11"]).text();
    end(sender).text();
    site.umsg(&["who", "ring:/none"])
        .fails(1, &["ring:/none: "]);
}

#[test]
fn names_of_other_tools_are_understood() {
    let site = Site::new();
    site.umsg(&[
        "create",
        "/q",
        "--message-size",
        "1KiB",
        "--max-messages",
        "1Ki",
    ])
    .text();
    assert_eq!(site.umsg(&["list", "--quiet"]).text(), "/q\n");
    assert_eq!(
        site.umsg(&["status", "/q", "--json"]).json()["max_messages"],
        1024
    );
    site.umsg(&["send", "/q", "x"]).text();
    assert_eq!(site.umsg(&["receive", "/q"]).text(), "x\n");
    site.umsg(&["delete", "/q"]).text();
    let outcome = site.umsg(&["pek", "/q"]);
    assert_eq!(outcome.code, Some(2));
    assert!(outcome.errors.contains("'peek'"), "{outcome:?}");
}

#[test]
fn a_directory_is_offered_only_where_there_are_queues() {
    let site = Site::new();
    for command in ["man", "completions"] {
        assert!(
            !site.umsg(&[command, "--help"]).text().contains("--dir"),
            "{command}"
        );
    }
    assert!(site.umsg(&["recv", "--help"]).text().contains("--dir"));
}
