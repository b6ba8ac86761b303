//! Tests static programs that a dynamic program starts.

use std::path::PathBuf;
use std::process::Command;

use umsg_carry::kernel::posix::{Access, Queue as KernelQueue, unlink};
use umsg_testkit::artefacts::{drop_in, workshop};
use umsg_testkit::compile::Compile;
use umsg_testkit::run::{on_the_path, skip};

use super::{SOURCES, Site, finish};
use crate::support::Outcome;
use crate::support::compiler::Workshop;
use crate::support::relays::leave_ipc_namespace;

/// The programs of these tests, compiled once.
fn programs() -> (PathBuf, PathBuf) {
    static ONCE: std::sync::OnceLock<(PathBuf, PathBuf)> = std::sync::OnceLock::new();
    let compile = |name: &str, arguments: &[&str]| {
        let output = workshop("umsg-children").join(name);
        let source = PathBuf::from(SOURCES).join(format!("{name}.c"));
        let compiled = Compile::new(&source, &output).args(arguments).try_run();
        compiled.unwrap_or_else(|| panic!("{name} does not compile"))
    };
    let make = || (compile("starter", &[]), compile("child", &["-static"]));
    ONCE.get_or_init(make).clone()
}

/// Runs a command line under `umsg run`, with the static program's directory in PATH.
fn run(site: &Site, options: &[&str], program: &[&str]) -> Outcome {
    let (_, child) = programs();
    let place = child.parent().unwrap();
    let mut command: Command = site.command(&["run"]);
    command.args(options).arg("--").args(program);
    let path = std::env::var("PATH").unwrap();
    command.env("UMSG_PRELOAD", drop_in());
    command.env("PATH", format!("{}:{path}", place.display()));
    command.env("PLACE", place);
    finish(&mut command, b"")
}

#[track_caller]
fn is_on_umsg(site: &Site, text: &str) {
    let received = site.umsg(&["recv", "/umsg-child", "--timeout", "0"]);
    assert_eq!(received.text().trim_end(), text);
    let kernels = KernelQueue::open(b"/umsg-child", (Access::Receive, false), None);
    assert!(kernels.is_err(), "the kernel has the queue");
}

#[test]
fn a_static_child_uses_umsg_however_it_is_started() {
    let (starter, child) = programs();
    let (starter, child) = (starter.to_str().unwrap(), child.to_str().unwrap());
    let ways = [
        "execve", "execv", "execvp", "execvpe", "execl", "execlp", "execle", "fexecve", "execveat",
        "syscall", "many", "vfork", "spawn", "spawnp", "system",
    ];
    let site = Site::new();
    for way in ways {
        let outcome = run(&site, &[], &[starter, way, child, way]);
        assert_eq!(outcome.code, Some(7), "{way}: {outcome:?}");
        let told = String::from_utf8(outcome.output).unwrap();
        // With system(3), the shell gets the path of the program, so argument 0 is the path. The other ways pass "name" as argument 0.
        let name = if way == "system" { child } else { "name" };
        assert_eq!(told, format!("{name} last\n"), "{way}");
        is_on_umsg(&site, way);
    }
}

#[test]
fn scripts_of_a_dynamic_shell_start_static_programs() {
    let (_, child) = programs();
    let (site, workshop) = (Site::new(), Workshop::new());
    let line = format!("{} one; test $? = 7 && child two; exit $?", child.display());
    let outcome = run(&site, &[], &["sh", "-c", &line]);
    assert_eq!(outcome.code, Some(7), "{outcome:?}");
    is_on_umsg(&site, "one");
    is_on_umsg(&site, "two");
    // The interpreter of a script is static.
    let script = workshop.script("script", &format!("#!{}\n", child.display()));
    let outcome = run(&site, &[], &["env", script.to_str().unwrap()]);
    assert_eq!(outcome.code, Some(7), "{outcome:?}");
    is_on_umsg(&site, script.to_str().unwrap());
    // A dynamic program starts the static program.
    let line = format!("exec env sh -c '{} deep & wait $!'", child.display());
    let outcome = run(&site, &[], &["sh", "-c", &line]);
    assert_eq!(outcome.code, Some(7), "{outcome:?}");
    is_on_umsg(&site, "deep");
}

#[test]
fn a_static_child_is_refused_if_none_is_supervised() {
    let (_, child) = programs();
    let site = Site::new();
    let line = format!("{} x; exit $?", child.display());
    let options = ["--raw-syscalls", "off"];
    let outcome = run(&site, &options, &["sh", "-c", &line]);
    outcome.fails(120, &["can't be intercepted", "statically linked"]);
    let (forced, off) = (["--force"], ["--force", "--raw-syscalls", "off"]);
    let outcome = run(&site, &forced, &["sh", "-c", &line]);
    assert_eq!(outcome.code, Some(7), "{outcome:?}");
    is_on_umsg(&site, "x");
    // For a file that may not be executed, the error is the kernel's error.
    let workshop = Workshop::new();
    let copy = workshop.copy(&child, "copy");
    crate::support::set_mode(&copy, 0o644);
    let (starter, _) = programs();
    let outcome = run(
        &site,
        &[],
        &[
            starter.to_str().unwrap(),
            "execv",
            copy.to_str().unwrap(),
            "x",
        ],
    );
    assert_eq!(
        (outcome.code, outcome.errors.as_str()),
        (Some(96), "execv: Permission denied\n")
    );
    // With the options `--force --raw-syscalls off`, the static program uses the kernel's queues, and has no drop-in.
    let Some(busybox) = on_the_path("busybox") else {
        return skip("busybox is not installed: no program is left to the kernel");
    };
    let line = format!("exec {} --help >/dev/null", busybox.display());
    let outcome = run(&site, &off, &["sh", "-c", &line]);
    assert_eq!((outcome.code, outcome.errors.as_str()), (Some(0), ""));
}

/// The program found in PATH, and the error if there is none, are the same as without umsg.
#[test]
fn a_static_child_is_looked_up_as_libc_does() {
    umsg_testkit::needs_root!();
    leave_ipc_namespace();
    let (starter, child) = programs();
    let workshop = Workshop::new();
    for directory in ["here", "barred", "filled", "plain"] {
        std::fs::create_dir(workshop.path(directory)).unwrap();
    }
    workshop.copy(&child, "here/child");
    crate::support::set_mode(&workshop.copy(&child, "barred/child"), 0o644);
    std::fs::create_dir(workshop.path("filled/child")).unwrap();
    workshop.script("plain/child", "exit 5\n");
    std::os::unix::fs::symlink("round", workshop.path("round")).unwrap();
    let [here, barred, filled, plain, round, none] =
        ["here", "barred", "filled", "plain", "round", "none"].map(|name| {
            let path = workshop.path(name);
            path.to_str().unwrap().to_owned()
        });
    let long = "x".repeat(5000);
    let join = |parts: &[&String]| {
        let parts: Vec<_> = parts.iter().map(|part| part.as_str()).collect();
        Some(parts.join(":"))
    };
    let empty = String::new();
    let paths = [
        (None, None),
        (join(&[&empty]), Some(7)),
        (join(&[&none, &empty]), Some(7)),
        (join(&[&empty, &none]), Some(7)),
        (join(&[&barred, &here]), Some(7)),
        (join(&[&barred]), None),
        (join(&[&filled, &here]), Some(7)),
        (join(&[&filled]), None),
        (
            join(&[&starter.to_str().unwrap().to_owned(), &here]),
            Some(7),
        ),
        (join(&[&round, &here]), None),
        (join(&[&long, &here]), Some(7)),
        (join(&[&plain, &here]), Some(5)),
    ];
    for (path, code) in paths {
        for way in ["execvp", "execvpe", "execlp", "spawnp"] {
            let arguments = [starter.to_str().unwrap(), way, child.to_str().unwrap(), way];
            let site = Site::new();
            let prepare = |command: &mut Command| {
                command.current_dir(&here).env("UMSG_PRELOAD", drop_in());
                match &path {
                    Some(path) => command.env("PATH", path),
                    None => command.env_remove("PATH"),
                };
            };
            let mut without = Command::new(arguments[0]);
            without.args(&arguments[1..]);
            prepare(&mut without);
            let mut within = site.command(&["run", "--"]);
            within.args(arguments);
            prepare(&mut within);
            let (without, within) = (finish(&mut without, b""), finish(&mut within, b""));
            // posix_spawnp does not start a file without an interpreter line as a script, so code 5 can't occur.
            if let Some(code) = code.filter(|code| (*code, way) != (5, "spawnp")) {
                assert_eq!(without.code, Some(code), "{way} {path:?}: {without:?}");
            }
            let shown =
                |outcome: &Outcome| (outcome.code, outcome.output.clone(), outcome.errors.clone());
            assert_eq!(shown(&within), shown(&without), "{way} {path:?}");
            let _ = unlink(b"/umsg-child");
            if code == Some(7) {
                is_on_umsg(&site, way);
            }
        }
    }
}

#[test]
fn a_missing_command_of_umsg_is_named() {
    let (starter, child) = programs();
    let site = Site::new();
    for (way, code) in [("execv", 96), ("spawn", 97), ("vfork", 98)] {
        let line = format!(
            "export UMSG_RUN=/nowhere/umsg; exec {} {way} {} x",
            starter.display(),
            child.display()
        );
        let outcome = run(&site, &[], &["sh", "-c", &line]);
        assert_eq!(outcome.code, Some(code), "{outcome:?}");
        let named = "umsg: /nowhere/umsg: $UMSG_RUN names no command";
        assert!(outcome.errors.contains(named), "{outcome:?}");
    }
}
