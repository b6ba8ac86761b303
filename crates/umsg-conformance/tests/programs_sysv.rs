//! Runs programs that use System V queues on the kernel's queues and, unchanged, with the drop-in preloaded.
//!
//! Under the drop-in, the kernel has no room for a queue (kernel.msgmni is 0, in a private IPC namespace of the program), so a program that works
//! uses umsg. If the program of a case is not installed, the case is skipped; with `CI` set, the case fails. The programs come from the Debian
//! packages stress-ng, php-cli, perl, util-linux, fakeroot and squid and the PyPI package sysv_ipc (`UMSG_TEST_PYTHON` names a Python with this
//! package).

mod support;

use std::path::Path;
use std::process::Command;

use umsg_conformance::runner::say;
use umsg_conformance::sys;

use support::{
    Kernel, Ran, finish, missing, on_both, on_the_path, passed, python_with, source_of, stress_ng,
};

/// Returns a command of the system. Returns `None` if the command is not installed.
fn program(name: &str) -> Option<Command> {
    let path = on_the_path(name);
    if path.is_none() {
        missing(name);
    }
    path.map(Command::new)
}

/// Returns the command that runs a script in `tests/programs`.
fn script(interpreter: &str, name: &str) -> Option<Command> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs");
    let mut command = program(interpreter)?;
    command.arg(source.join(name));
    Some(command)
}

/// Runs a command on both sides, and checks that it prints the same text on both.
fn answers_alike(command: impl Fn() -> Option<Command>) -> Option<Ran> {
    command()?;
    let (kernel, umsg) = on_both(|| command().expect("it was there before"));
    assert_eq!(kernel.text, umsg.text, "left: the kernel, right: umsg");
    Some(kernel)
}

#[test]
fn a_program_without_umsg_has_no_queues_when_the_kernel_may_have_none() {
    let Some(mut perl) = program("perl") else {
        return;
    };
    perl.args(["-e", "defined msgget(0, 0600) or die \"$!\n\""]);
    // The call moves only this thread into the namespace.
    let is_private = sys::enter_private_ipc_namespace().is_some();
    if !is_private || sys::limit_kernel_system_v_queues(0).is_err() {
        say("skipped: this user can't bar the kernel's System V queues\n");
        return;
    }
    let ran = finish(perl, Kernel::Barred);
    assert!(
        !ran.success,
        "this does not prove anything about umsg:\n{}",
        ran.text
    );
    assert!(ran.text.contains("No space left"), "{}", ran.text);
}

#[test]
fn stress_ng_finds_each_message_as_it_was_sent() {
    stress_ng("msg", &[]);
}

#[test]
fn stress_ng_finds_each_message_of_several_types() {
    stress_ng("msg", &["--msg-types", "8"]);
}

#[test]
fn php_answers_alike() {
    let ran = answers_alike(|| script("php", "sysvmsg.php"));
    assert!(ran.is_none_or(|ran| ran.text.ends_with("remove private: true\n")));
}

#[test]
fn perl_answers_alike() {
    let ran = answers_alike(|| script("perl", "sysvmsg.pl"));
    assert!(ran.is_none_or(|ran| ran.text.contains("the child: 7\n")));
}

#[test]
fn the_tools_of_util_linux_answer_alike() {
    let ran = answers_alike(|| script("sh", "ipc_tools.sh"));
    assert!(ran.is_none_or(|ran| ran.text.contains("lspid=SENDER")));
}

#[test]
fn fakeroot_builds_an_archive_of_files_that_root_owns() {
    if program("fakeroot-sysv").is_none() {
        return;
    }
    let ran = answers_alike(|| script("sh", "fakeroot.sh"));
    let listing = ran.expect("sh").text;
    assert!(
        listing.contains("0/0") && listing.contains("12/34") && listing.contains("1,3"),
        "{listing}"
    );
}

#[test]
fn squid_serves_from_a_disk_that_it_reaches_through_queues() {
    if !Path::new("/usr/sbin/squid").exists() {
        return missing("squid");
    }
    let ran = answers_alike(|| script("perl", "squid_diskd.pl"));
    let text = ran.expect("perl").text;
    assert!(text.contains("from the disk: 2\n"), "{text}");
}

#[test]
fn sysv_ipc_passes_its_own_tests() {
    let Some((python, version)) = python_with("sysv_ipc") else {
        return missing("sysv_ipc of PyPI");
    };
    let Some(source) = source_of("sysv_ipc", &python, &version) else {
        return missing("the source of sysv_ipc");
    };
    let (kernel, umsg) = on_both(|| {
        let mut command = Command::new(&python);
        command.current_dir(&source);
        command.args(["-m", "unittest", "-v", "tests.test_message_queues"]);
        command
    });
    let ran = [passed(&kernel), passed(&umsg)];
    assert!(ran[0].len() > 30, "{}", kernel.text);
    assert_eq!(ran[0], ran[1]);
    assert!(umsg.text.contains("\nOK"), "{}", umsg.text);
}
