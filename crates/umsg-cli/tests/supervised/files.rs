//! Tests /dev/mqueue, the limits in /proc/sys and /proc/sysvipc/msg, as a static program sees them.

use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;

use umsg_testkit::artefacts::{drop_in, workshop};
use umsg_testkit::compile::Compile;
use umsg_testkit::run::{on_the_path, skip};

use super::{SOURCES, Site, finish, run};
use crate::support::compiler::Workshop;
use crate::support::relays::leave_ipc_namespace;
use crate::support::{NOBODY, Outcome, give_to};

/// The program of these tests, linked statically and dynamically, compiled once.
fn programs() -> [PathBuf; 2] {
    static ONCE: std::sync::OnceLock<[PathBuf; 2]> = std::sync::OnceLock::new();
    let compile = |kind: &str| {
        let output = workshop("umsg-files").join(format!("files{kind}"));
        let source = PathBuf::from(SOURCES).join("files.c");
        let compile = Compile::new(&source, &output).args([kind]);
        compile.try_run().expect("files.c does not compile")
    };
    ONCE.get_or_init(|| [compile("-static"), compile("-pie")])
        .clone()
}

/// Runs the steps in a static program and, with the drop-in, in a dynamic one. Both programs must print the expected text.
#[track_caller]
fn both(steps: &[&str], expected: &str) {
    for program in programs() {
        let site = Site::new();
        let outcome = run(&site, &[], &program, steps);
        assert_eq!(outcome.text(), expected, "{}", program.display());
    }
}

#[test]
fn a_limit_is_read_and_written() {
    const DEFAULT: &str = "/proc/sys/fs/mqueue/msg_default";
    const LONGEST: &str = "/proc/sys/kernel/msgmax";
    let steps = [
        "read", DEFAULT, "write", DEFAULT, "7\n", "read", DEFAULT, "default", "/q", "update",
        DEFAULT, "23", "read", DEFAULT, "write", LONGEST, "0x1000", "read", LONGEST,
    ];
    both(&steps, "10\n2\n7\n7 8192\n7 23\n23\n6\n4096\n");
    // The files of the limits exist, so O_EXCL fails. A write of a text that is not a number has no effect.
    let site = Site::new();
    let [program, _] = programs();
    let steps = ["create", LONGEST, "write", LONGEST, "many", "read", LONGEST];
    let outcome = run(&site, &[], &program, &steps);
    assert_eq!(outcome.text(), "EEXIST\n4\n8192\n");
    let limits = site.umsg(&["limits", "--json"]).json();
    assert_eq!(limits["msgmax"], 8192);
}

/// When the supervisor reads the number in the limit's file, it no longer knows the position at which the program wrote.
#[test]
fn a_number_over_a_part_of_the_old_one_is_the_number_that_was_written() {
    const DEFAULT: &str = "/proc/sys/fs/mqueue/msg_default";
    let steps = [
        "overwrite",
        DEFAULT,
        "5",
        "read",
        DEFAULT,
        "overwrite",
        DEFAULT,
        "20",
        "read",
        DEFAULT,
        "overwrite",
        DEFAULT,
        "3",
        "read",
        DEFAULT,
        "update",
        DEFAULT,
        "30",
        "append",
        DEFAULT,
        "7",
        "read",
        DEFAULT,
    ];
    both(&steps, "1\n5\n2\n20\n1\n3\n3 30\n1\n30\n");
}

#[test]
fn a_value_of_which_the_end_is_not_known_is_refused() {
    const DEFAULT: &str = "/proc/sys/fs/mqueue/msg_default";
    let site = Site::new();
    let [program, _] = programs();
    let steps = ["overwrite", DEFAULT, "000000000007", "read", DEFAULT];
    assert_eq!(run(&site, &[], &program, &steps).text(), "12\n10\n");
}

#[test]
fn a_written_limit_counts_for_all_processes() {
    const NEXT: &str = "/proc/sys/kernel/msg_next_id";
    let site = Site::new();
    let [program, _] = programs();
    let steps = [
        "write",
        "/proc/sys/kernel/msgmnb",
        "4321",
        "write",
        NEXT,
        "32770",
        "identifier",
    ];
    assert_eq!(run(&site, &[], &program, &steps).text(), "4\n5\n32770\n");
    let start = std::time::Instant::now();
    while site.umsg(&["limits", "--json"]).json()["msgmnb"] != 4321 {
        let patience = std::time::Duration::from_secs(60);
        assert!(start.elapsed() < patience, "the limit is not set");
    }
}

/// The program inherits the descriptor of the limit's file from a shell, which the drop-in serves.
#[test]
fn a_static_program_writes_to_an_inherited_limit() {
    let Some(busybox) = on_the_path("busybox") else {
        skip("busybox is not installed: no static echo");
        return;
    };
    let site = Site::new();
    let line = format!(
        "{} echo 6 >/proc/sys/fs/mqueue/msg_default",
        busybox.display()
    );
    let mut command = site.command(&["run", "--", "sh", "-c", &line]);
    let outcome = finish(command.env("UMSG_PRELOAD", drop_in()), b"");
    assert_eq!(outcome.text(), "");
    let start = std::time::Instant::now();
    while site.umsg(&["limits", "--json"]).json()["default_messages"] != 6 {
        let patience = std::time::Duration::from_secs(60);
        assert!(start.elapsed() < patience, "the limit is not set");
    }
}

#[test]
fn a_queue_below_dev_mqueue_is_opened_shown_and_removed() {
    let line = "QSIZE:5          NOTIFY:0     SIGNO:0     NOTIFY_PID:0     \n";
    let steps = [
        "make",
        "/q",
        "read",
        "/dev/mqueue/q",
        "stat",
        "/dev/mqueue/q",
        "statx",
        "/dev/mqueue/q",
        "access",
        "/dev/mqueue/q",
        "4",
        "access",
        "/dev/mqueue/none",
        "0",
        "scribble",
        "/dev/mqueue/q",
        "chmod",
        "/dev/mqueue/q",
        "604",
        "stat",
        "/dev/mqueue//q",
        "rename",
        "/dev/mqueue/q",
        "/dev/mqueue/p",
        "rename",
        "/dev/mqueue/q",
        "/dev/mqueue/q",
        "rmdir",
        "/dev/mqueue/q",
        "create",
        "/dev/mqueue/r",
        "create",
        "/dev/mqueue/r",
        "list",
        "/dev/mqueue",
        "list",
        "/dev/mqueue/q",
        "unlink",
        "/dev/mqueue/r",
        "unlink",
        "/dev/mqueue/r",
        "unlink",
        "/dev/mqueue",
        "rmdir",
        "/dev/mqueue",
        "receive",
        "/dev/mqueue/q",
        "watch",
        "/dev/mqueue/q",
        "read",
        "/dev/mqueue/q",
    ];
    let expected = format!(
        "0\n{line}100640 80\n100640 80 0\n0\nENOENT\n1\n0\n100604 80\nEPERM\n0\nENOTDIR\n0\nEEXIST\n\
         q r 4\nENOTDIR\n0\nENOENT\nEISDIR\nEBUSY\n5\n0\n0\n1\nENOENT\n"
    );
    both(&steps, &expected);
    both(
        &["make", "/q", "within", "q", "within", "q"],
        "0\n100640 80\n0\nENOENT\nENOENT\n",
    );
}

/// The mode of a new queue does not restrict its creator, even if the creator is not root.
#[test]
fn a_user_creates_a_queue_that_no_one_may_write() {
    umsg_testkit::needs_root!();
    let (site, workshop) = (Site::new(), Workshop::new());
    give_to(site.path(), NOBODY);
    let [program, _] = programs();
    let program = workshop.copy(program, "files");
    let library = workshop.copy(drop_in(), "libumsg_preload.so");
    let arguments = [
        "run",
        "--",
        program.to_str().unwrap(),
        "protect",
        "/dev/mqueue/q",
        "stat",
        "/dev/mqueue/q",
    ];
    let variables = [("UMSG_PRELOAD", library.to_str().unwrap())];
    let outcome = site.umsg_as_nobody_with(&arguments, &variables).unwrap();
    assert_eq!(outcome.text(), "0\n100400 80\n");
}

/// The test calls openat2(2) with RESOLVE_BENEATH, with RESOLVE_IN_ROOT, and with a structure that is too small.
#[test]
fn an_absolute_path_that_is_confined_is_the_kernels() {
    const QUEUE: &str = "/dev/mqueue/umsg-confined";
    let [program, _] = programs();
    let steps = [
        "openat2", QUEUE, "24", "0x08", "openat2", QUEUE, "24", "0x10", "openat2", QUEUE, "16", "0",
    ];
    let kernels = finish(std::process::Command::new(&program).args(steps), b"");
    let site = Site::new();
    site.umsg(&["create", "/umsg-confined"]).text();
    assert_eq!(run(&site, &[], &program, &steps).text(), kernels.text());
    let free = ["openat2", QUEUE, "24", "0"];
    assert_eq!(run(&site, &[], &program, &free).text(), "0\n");
}

#[test]
fn the_options_leave_files_to_the_kernel() {
    let site = Site::new();
    site.umsg(&["limits", "--default-messages", "77"]).text();
    let [program, _] = programs();
    let steps = [
        "make",
        "/q",
        "list",
        "/dev/mqueue",
        "read",
        "/proc/sys/fs/mqueue/msg_default",
    ];
    let shown = |options: &[&str]| run(&site, options, &program, &steps);
    assert_eq!(shown(&[]).text(), "0\nq 3\n77\n");
    site.umsg(&["rm", "/q"]).text();
    let has_none = |outcome: &Outcome| !outcome.text().contains("q 3");
    let outcome = shown(&["--dev-mqueue=off"]);
    assert!(
        has_none(&outcome) && outcome.text().ends_with("77\n"),
        "{outcome:?}"
    );
    site.umsg(&["rm", "/q"]).text();
    let outcome = shown(&["--supervised-files=off"]);
    assert!(
        has_none(&outcome) && !outcome.text().contains("77"),
        "{outcome:?}"
    );
}

/// Moves to a new user namespace, in which the user's queues have 0 bytes. The kernel counts the bytes of all queues of a user, and other tests have
/// queues.
fn leave_user_namespace() -> std::io::Result<()> {
    // SAFETY: the call takes an integer.
    match unsafe { libc::unshare(libc::CLONE_NEWUSER) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    }
}

/// The kernel checks the RLIMIT_MSGQUEUE of the program. The supervisor must also check that limit, and not its own.
#[test]
fn the_limit_of_bytes_is_that_of_the_program() {
    umsg_testkit::needs_root!();
    leave_ipc_namespace();
    let [program, _] = programs();
    let steps = [
        "rlimit",
        "1000",
        "make",
        "/umsg-files",
        "rlimit",
        "100",
        "make",
        "/umsg-more",
    ];
    let mut on_the_kernel = std::process::Command::new(&program);
    // SAFETY: the function only makes system calls.
    unsafe { on_the_kernel.args(steps).pre_exec(leave_user_namespace) };
    let kernels = finish(&mut on_the_kernel, b"");
    let _ = umsg_carry::kernel::posix::unlink(b"/umsg-files");
    let site = Site::new();
    site.umsg(&["limits", "--rlimit-msgqueue", "true"]).text();
    let outcome = run(&site, &[], &program, &steps);
    assert_eq!(outcome.text(), kernels.text());
    assert_eq!(outcome.text(), "0\n0\n0\nEMFILE\n");
}

#[test]
fn programs_of_busybox_use_the_files() {
    let Some(busybox) = on_the_path("busybox") else {
        skip("busybox is not installed: its programs are not supervised");
        return;
    };
    let site = Site::new();
    site.umsg(&["create", "/x", "--mode", "640"]).text();
    let shell = |line: &str| run(&site, &[], &busybox, &["sh", "-c", line]);
    let limit = "/proc/sys/fs/mqueue/msg_max";
    let most = site.umsg(&["limits", "--json"]).json()["max_messages"].to_string();
    assert_eq!(shell(&format!("cat {limit}")).text(), format!("{most}\n"));
    assert_eq!(
        shell(&format!("echo 99 >{limit}; cat {limit}")).text(),
        "99\n"
    );
    let line = "sysctl -w kernel.msgmnb=5000 >/dev/null; sysctl kernel.msgmnb";
    assert_eq!(shell(line).text(), "kernel.msgmnb = 5000\n");
    assert_eq!(shell("ls /dev/mqueue").text(), "x\n");
    let shown = shell("ls -l /dev/mqueue/x");
    assert!(shown.text().starts_with("-rw-r-----"), "{shown:?}");
    assert_eq!(
        shell("find /dev/mqueue").text(),
        "/dev/mqueue\n/dev/mqueue/x\n"
    );
    assert_eq!(shell("rm /dev/mqueue/x; ls /dev/mqueue").text(), "");
    site.umsg(&["create", "0x77"]).text();
    assert!(shell("ipcs -q").text().contains("0x00000077"));
    assert!(shell("cat /proc/sysvipc/msg").text().lines().count() == 2);
}
