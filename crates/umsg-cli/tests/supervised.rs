//! Tests programs into which no library can be loaded, and system calls by the CPU's instruction: `umsg run` supervises these programs.
//!
//! The programs are those of the drop-in's tests. They are linked statically, or compiled so that they make system calls with the CPU's instruction
//! instead of libc's syscall(2). The expected results hold on the kernel's queues and on umsg's queues.

#[path = "supervised/children.rs"]
mod children;
#[path = "supervised/deaths.rs"]
mod deaths;
#[path = "supervised/files.rs"]
mod files;
#[path = "supervised/namespaces.rs"]
mod namespaces;
mod support;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};

use support::compiler::Workshop;
use support::patients::Killed;
use support::{NOBODY, Outcome, Site, finish, give_to, start};
use umsg_testkit::artefacts::{drop_in, workshop};
use umsg_testkit::programs;
use umsg_testkit::run::{on_the_path, skip};

const RAW: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/supervised/raw.h");
const GAPS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/supervised/gaps.h");
const SOURCES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/supervised");

/// Runs a program on the site's queues, with options of `umsg run`.
fn run(site: &Site, options: &[&str], program: &Path, arguments: &[&str]) -> Outcome {
    finish(&mut command(site, options, program, arguments), b"")
}

fn command(site: &Site, options: &[&str], program: &Path, arguments: &[&str]) -> Command {
    let mut command = site.command(&["run"]);
    command.args(options).arg("--").arg(program).args(arguments);
    command.env("UMSG_PRELOAD", drop_in());
    command
}

/// Compiles a program of the drop-in's test cases, once.
fn cases(name: &str, kind: &str, arguments: &[&str]) -> PathBuf {
    static ONE_AT_A_TIME: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());
    let mut done = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let output = format!("{name}-{kind}");
    if let Some(path) = done.iter().find(|path| path.ends_with(&output)) {
        return path.clone();
    }
    let workshop = workshop("umsg-supervised");
    let compiler = Command::new("cc");
    let compiled = programs::of_drop_in(compiler, name, &workshop, &output, arguments).run();
    done.push(compiled.clone());
    compiled
}

fn holds(program: &Path, options: &[&str], case: &str) {
    if Path::new("/proc/sys/fs/mqueue").exists() {
        let kernels = finish(Command::new(program).arg(case), b"");
        assert_eq!(kernels.code, Some(0), "on the kernel's queues: {kernels:?}");
    }
    let site = Site::new();
    let outcome = run(&site, options, program, &[case]);
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
}

/// A test for each case, in a static program.
macro_rules! static_cases {
    ($module:ident: $($case:ident),* $(,)?) => {
        mod $module {
            $( #[test] fn $case() {
                let program = super::cases(stringify!($module), "static", &["-static", "-include", super::GAPS]);
                super::holds(&program, &[], stringify!($case));
            } )*
        }
    };
}

static_cases! { messages:
    the_highest_priority_comes_first_and_equals_in_order,
    errors_come_in_the_kernels_order,
    bad_addresses_are_efault_and_a_receive_consumes_the_message,
    a_message_of_no_bytes_needs_no_address,
    a_buffer_said_to_be_huge_is_fine,
    a_blocked_receiver_gets_what_another_process_sends,
    a_blocked_sender_goes_on_when_there_is_room,
    a_handler_without_sa_restart_ends_a_blocked_call_with_eintr,
    under_sa_restart_a_blocked_call_goes_on,
    a_signal_handler_may_send,
}

static_cases! { sysv:
    messages_are_picked_by_type,
    errors_come_in_the_kernels_order,
    bad_addresses_are_efault_and_a_receive_consumes_the_message,
    a_text_on_another_page_than_its_type_is_copied_or_efault,
    a_buffer_said_to_be_huge_is_fine,
    keys_lead_to_queues,
    a_blocked_receiver_gets_what_another_process_sends,
    a_blocked_sender_goes_on_when_there_is_room,
    who_waits_in_a_removed_queue_is_told_so,
    a_handler_ends_a_blocked_call,
    a_handler_with_sa_restart_ends_a_blocked_call,
    a_signal_handler_may_send_and_receive,
    a_child_of_vfork_may_send,
    the_last_sender_and_receiver_are_named,
    each_queue_in_a_row_is_new_and_has_another_identifier,
    who_waits_in_one_of_many_queues_in_a_row_is_told_of_its_removal,
}

static_cases! { processes:
    a_forked_child_shares_the_descriptor,
    a_grandchild_of_a_bare_fork_shares_the_descriptor,
    exec_drops_the_descriptor,
}

static_cases! { nonblocking:
    a_change_by_any_call_counts_at_once,
    descriptors_of_their_own_descriptions_do_not_share_the_flag,
    a_child_changes_it_for_its_parent,
    a_parent_changes_it_for_its_child,
    a_receiver_of_the_descriptor_changes_it,
    a_program_that_is_started_with_a_duplicate_changes_it,
    a_program_that_is_started_with_the_descriptor_changes_it,
}

static_cases! { poll:
    a_descriptor_is_readable_while_there_is_a_message_and_writable_while_there_is_room,
    a_blocked_poll_ends_when_another_process_sends,
    a_blocked_poll_ends_when_another_process_receives,
    queues_are_polled_among_pipes_and_sockets,
    select_tells_what_is_readable_and_writable,
}

static_cases! { epoll:
    a_registered_queue_is_told_as_long_as_it_is_ready,
    a_blocked_epoll_wait_ends_when_another_process_sends_or_receives,
}

static_cases! { descriptor:
    the_descriptor_is_the_lowest_free_number_and_close_on_exec,
    close_equals_mq_close_and_a_second_one_is_ebadf,
    mq_functions_refuse_what_is_no_queue,
    getattr_and_setattr_know_one_flag,
    o_nonblock_belongs_to_the_open_file_description,
}

/// A test for each case, in a dynamic program that makes its calls by the CPU's instruction.
macro_rules! raw_cases {
    ($($case:ident),* $(,)?) => {
        mod raw {
            $( #[test] fn $case() {
                let program = super::cases("by_number", "raw", &["-include", super::GAPS, "-include", super::RAW]);
                super::holds(&program, &["--raw-syscalls=on"], stringify!($case));
            } )*
        }
    };
}

raw_cases! {
    names_have_no_slash_and_errors_are_the_kernels,
    both_ways_lead_to_one_queue,
    a_registration_by_number_is_notified,
    other_calls_have_all_their_arguments,
    a_blocked_call_is_no_cancellation_point,
    a_signal_handler_may_call_by_number,
}

fn stream(site: &Workshop, name: &str, arguments: &[&str]) -> PathBuf {
    let source = std::fs::read_to_string(format!("{SOURCES}/stream.c")).unwrap();
    site.compile(name, &source, arguments)
}

#[test]
fn a_program_with_a_filter_and_a_handler_of_its_own_keeps_both() {
    let workshop = Workshop::new();
    for (kind, linking, options) in [
        ("static", "-static", "--raw-syscalls=auto"),
        ("dynamic", "-pie", "--raw-syscalls=on"),
    ] {
        let program = stream(&workshop, kind, &[linking]);
        let outcome = run(&Site::new(), &[options], &program, &["trap"]);
        assert_eq!(outcome.text(), "trapped\n");
    }
}

#[test]
fn a_thread_of_a_static_program_is_notified() {
    let workshop = Workshop::new();
    let program = stream(&workshop, "static", &["-static"]);
    if Path::new("/proc/sys/fs/mqueue").exists() {
        let kernels = finish(Command::new(&program).arg("thread"), b"");
        assert_eq!(kernels.text(), "told 13\n");
    }
    let outcome = run(&Site::new(), &[], &program, &["thread"]);
    assert_eq!(outcome.text(), "told 13\n");
}

#[test]
fn a_call_that_takes_long_holds_up_no_other() {
    let workshop = Workshop::new();
    let program = stream(&workshop, "static", &["-static"]);
    let outcome = run(&Site::new(), &[], &program, &["stuck"]);
    if outcome.text() == "unavailable\n" {
        skip("userfaultfd is not permitted: no call is stuck");
        return;
    }
    assert_eq!(outcome.text(), "went on\n");
}

/// Each receiver has a supervisor of its own.
#[test]
fn blocked_receivers_of_static_programs_are_served_in_order() {
    let (site, workshop) = (Site::new(), Workshop::new());
    let program = stream(&workshop, "static", &["-static"]);
    let mut receivers: Vec<_> = (1..=4)
        .map(|count| {
            let receiver = Killed(start(&mut command(&site, &[], &program, &["receive"])));
            deaths::wait_for_receivers(&site, count);
            receiver
        })
        .collect();
    for number in 0..4 {
        site.umsg(&["send", "/stream", &number.to_string()]).text();
    }
    for (number, receiver) in receivers.iter_mut().enumerate() {
        let first = deaths::lines(&mut receiver.0).next();
        assert_eq!(first, Some(number.to_string()));
    }
}

#[test]
fn messages_under_constant_signals_arrive_once_and_in_order() {
    let workshop = Workshop::new();
    let program = stream(&workshop, "static", &["-static"]);
    for what in ["storm", "storm-sysv"] {
        let outcome = run(&Site::new(), &[], &program, &[what, "3000"]);
        assert_eq!(outcome.text(), "complete\n", "{what}");
    }
}

#[test]
fn a_dynamic_program_of_rust_makes_its_calls_by_the_instruction() {
    let workshop = Workshop::new();
    let program = workshop.path("raw");
    let mut rustc = Command::new(std::env::var_os("RUSTC").unwrap_or("rustc".into()));
    rustc.args(["--edition=2024", "-Cprefer-dynamic=no", "-o"]);
    rustc.arg(&program).arg(format!("{SOURCES}/raw.rs"));
    assert_eq!(finish(&mut rustc, b"").code, Some(0));
    let outcome = run(&Site::new(), &["--raw-syscalls=on"], &program, &[]);
    assert_eq!(outcome.text(), "exchanged\n");
}

#[test]
fn a_go_program_without_a_c_library_uses_queues() {
    let go = on_the_path("go").or_else(|| Some("/usr/local/go/bin/go".into()));
    let Some(go) = go.filter(|go: &PathBuf| go.exists()) else {
        skip("Go is not installed: no program of Go is supervised");
        return;
    };
    let workshop = Workshop::new();
    let program = workshop.path("ping");
    let mut build = Command::new(go);
    build
        .current_dir(SOURCES)
        .args(["build", "-o"])
        .arg(&program);
    build.args([
        "ping.go",
        &format!(
            "numbers_{}.go",
            if cfg!(target_arch = "x86_64") {
                "amd64"
            } else {
                "arm64"
            }
        ),
    ]);
    let cache = umsg_testkit::artefacts::workshop("umsg-go-cache");
    build
        .env("CGO_ENABLED", "0")
        .env("GOCACHE", cache)
        .env("GO111MODULE", "off")
        .env("GOFLAGS", "");
    let built = finish(&mut build, b"");
    assert_eq!(built.code, Some(0), "{built:?}");
    let site = Site::new();
    assert_eq!(run(&site, &[], &program, &[]).text(), "answered\n");
    // The program's queues exist in umsg after the program's end.
    let names = site.umsg(&["ls"]);
    assert!(
        names.text().contains("/there") && names.text().contains("/back"),
        "{names:?}"
    );
}

#[test]
fn a_static_program_of_musl_uses_queues() {
    if on_the_path("musl-gcc").is_none() {
        skip("musl-gcc is not installed: no program of musl is supervised");
        return;
    }
    let workshop = Workshop::new();
    let program = workshop.path("stream");
    let mut compile = Command::new("musl-gcc");
    compile.args([
        "-static",
        "-O1",
        "-idirafter",
        "/usr/include",
        "-idirafter",
        "/usr/include/x86_64-linux-gnu",
    ]);
    compile
        .arg("-o")
        .arg(&program)
        .arg(format!("{SOURCES}/stream.c"));
    let compiled = finish(&mut compile, b"");
    assert_eq!(compiled.code, Some(0), "{compiled:?}");
    let site = Site::new();
    assert_eq!(
        run(&site, &[], &program, &["send", "3"]).text(),
        "0\n1\n2\n"
    );
    for text in ["0", "1", "2"] {
        assert_eq!(site.umsg(&["recv", "/stream"]).text().trim(), text);
    }
    assert_eq!(run(&site, &[], &program, &["thread"]).text(), "told 13\n");
}

#[test]
fn a_static_program_shows_and_removes_system_v_queues() {
    let (site, workshop) = (Site::new(), Workshop::new());
    let program = stream(&workshop, "static", &["-static"]);
    site.umsg(&["create", "0x51a9"]).text();
    site.umsg(&["send", "0x51a9", "-t", "3", "text"]).text();
    let shown = run(&site, &[], &program, &["list"]);
    assert_eq!(shown.text(), "0x51a9: 1 message, 4 bytes\n");
    assert_eq!(run(&site, &[], &program, &["remove"]).text(), "");
    assert_eq!(run(&site, &[], &program, &["list"]).text(), "");
}

#[test]
fn a_dynamic_child_of_a_supervised_program_uses_the_library() {
    let Some(busybox) = on_the_path("busybox") else {
        skip("busybox is not installed: no shell is supervised");
        return;
    };
    let workshop = Workshop::new();
    let [fixed, loaded] = [("static", "-static"), ("dynamic", "-pie")]
        .map(|(name, linking)| stream(&workshop, name, &[linking]));
    let script = format!("{} send 2; {} send 2", fixed.display(), loaded.display());
    let site = Site::new();
    let outcome = run(&site, &[], &busybox, &["sh", "-c", &script]);
    assert_eq!(outcome.text(), "0\n1\n0\n1\n");
    assert_eq!(
        site.umsg(&["stat", "/stream", "--json"]).json()["messages"],
        4
    );
    // A nested `umsg run` uses the supervisor of the outer one.
    let umsg = env!("CARGO_BIN_EXE_umsg");
    let script = format!("{umsg} run -- {} send 1", fixed.display());
    assert_eq!(
        run(&site, &[], &busybox, &["sh", "-c", &script]).text(),
        "0\n"
    );
    let other = Site::new();
    let script = format!(
        "{umsg} run --dir {} -- {} send 1",
        other.path().display(),
        fixed.display()
    );
    run(&site, &[], &busybox, &["sh", "-c", &script])
        .fails(125, &["another `umsg run` supervises this process"]);
}

#[test]
fn a_user_without_privileges_is_supervised_too() {
    umsg_testkit::needs_root!();
    let (site, workshop) = (Site::new(), Workshop::new());
    give_to(site.path(), NOBODY);
    let program = stream(&workshop, "static", &["-static"]);
    let library = workshop.copy(drop_in(), "libumsg_preload.so");
    let arguments = ["run", "--", program.to_str().unwrap(), "send", "2"];
    let variables = [("UMSG_PRELOAD", library.to_str().unwrap())];
    let outcome = site.umsg_as_nobody_with(&arguments, &variables).unwrap();
    assert_eq!(outcome.text(), "0\n1\n");
    assert_eq!(
        site.umsg(&["stat", "/stream", "--json"]).json()["messages"],
        2
    );
}

#[test]
fn without_a_supervisor_a_static_program_is_refused() {
    let (site, workshop) = (Site::new(), Workshop::new());
    let program = stream(&workshop, "static", &["-static"]);
    let refused = run(&site, &["--raw-syscalls=off"], &program, &["send", "1"]);
    refused.fails(
        120,
        &["the program is statically linked", "--raw-syscalls=auto"],
    );
    let mut command = command(&site, &[], &program, &["send", "1"]);
    finish(command.env("UMSG_RAW_SYSCALLS", "off"), b"")
        .fails(120, &["the program is statically linked"]);
    finish(command.env("UMSG_RAW_SYSCALLS", "maybe"), b"")
        .fails(125, &["UMSG_RAW_SYSCALLS is maybe", "auto, on or off"]);
    command.env_remove("UMSG_RAW_SYSCALLS");
    finish(command.env("UMSG_DEV_MQUEUE", "maybe"), b"")
        .fails(125, &["UMSG_DEV_MQUEUE is maybe", "on or off"]);
}
