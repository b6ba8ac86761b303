//! Tests `umsg run`.

#[path = "run/refused.rs"]
mod refused;
mod support;
#[path = "run/unmodified.rs"]
mod unmodified;

use std::path::Path;
use std::process::Command;

use support::compiler::Workshop;
use support::{NOBODY, Outcome, Site, finish, give_to, set_mode};
use umsg_testkit::artefacts::drop_in;

/// glibc's dynamic linker.
const GLIBC_LINKER: &str = match cfg!(target_arch = "x86_64") {
    true => "/lib64/ld-linux-x86-64.so.2",
    false => "/lib/ld-linux-aarch64.so.1",
};

/// A site whose drop-in is replaced by a library that does nothing, for tests in which only the start of the program matters.
struct Stage {
    site: Site,
    workshop: Workshop,
    library: String,
}

impl Stage {
    fn new() -> Stage {
        let workshop = Workshop::new();
        let library = workshop
            .idle_library()
            .into_os_string()
            .into_string()
            .unwrap();
        Stage {
            site: Site::new(),
            workshop,
            library,
        }
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = self.site.command(&[&["run"], arguments].concat());
        command.env("UMSG_PRELOAD", &self.library);
        command
    }

    fn run(&self, arguments: &[&str]) -> Outcome {
        finish(&mut self.command(arguments), b"")
    }

    /// Runs the program at this path.
    fn run_file(&self, program: &Path) -> Outcome {
        self.run(&["--", program.to_str().unwrap()])
    }
}

#[test]
fn the_program_gets_the_library_the_namespace_and_its_arguments() {
    let stage = Stage::new();
    let print = r#"echo "$LD_PRELOAD|$UMSG_DIR|$UMSG_WAIT|$0|$*""#;
    let outcome = stage.run(&["--", "sh", "-c", print, "--json", "--dir", "x"]);
    let dir = stage.site.path().display();
    assert_eq!(
        outcome.text(),
        format!("{}|{dir}||--json|--dir x\n", stage.library)
    );
}

#[test]
fn what_follows_the_program_is_its_own_even_without_dashes() {
    let stage = Stage::new();
    assert_eq!(
        stage.run(&["echo", "--wait", "--help", "--", "-x"]).text(),
        "--wait --help -- -x\n"
    );
}

#[test]
fn another_preloaded_library_keeps_its_place() {
    let stage = Stage::new();
    let mut command = stage.command(&["--", "sh", "-c", "echo $LD_PRELOAD"]);
    let other =
        stage
            .workshop
            .compile("libother.so", "int umsg_test_other;", &["-shared", "-fPIC"]);
    let outcome = finish(command.env("LD_PRELOAD", &other), b"");
    assert_eq!(
        outcome.text(),
        format!("{}:{}\n", other.display(), stage.library)
    );
}

#[test]
fn umsg_run_within_umsg_run_names_the_library_once() {
    let stage = Stage::new();
    let umsg = env!("CARGO_BIN_EXE_umsg");
    let outcome = stage.run(&["--", umsg, "run", "--", "sh", "-c", "echo $LD_PRELOAD"]);
    assert_eq!(outcome.text(), format!("{}\n", stage.library));
}

#[test]
fn how_to_wait_and_where_are_handed_down() {
    let stage = Stage::new();
    let other = Site::new();
    let dir = other.path().to_str().unwrap();
    for how in ["adaptive", "blocking", "spinning"] {
        let outcome = stage.run(&[
            "--wait",
            how,
            "--dir",
            dir,
            "--",
            "sh",
            "-c",
            "echo $UMSG_WAIT $UMSG_DIR",
        ]);
        assert_eq!(outcome.text(), format!("{how} {dir}\n"));
    }
}

#[test]
fn a_way_to_wait_that_does_not_exist_is_refused_with_those_that_do() {
    let stage = Stage::new();
    let mut echo = stage.command(&["--", "sh", "-c", "echo $UMSG_WAIT"]);
    finish(echo.env("UMSG_WAIT", "bogus"), b"").fails(
        125,
        &["umsg: UMSG_WAIT is bogus: choose adaptive, blocking or spinning"],
    );
    assert_eq!(finish(echo.env("UMSG_WAIT", ""), b"").text(), "\n");
    let outcome = finish(echo.env("UMSG_WAIT", "spinning"), b"");
    assert_eq!(outcome.text(), "spinning\n");
    let mut chosen = stage.command(&["--wait", "blocking", "--", "sh", "-c", "echo $UMSG_WAIT"]);
    let outcome = finish(chosen.env("UMSG_WAIT", "bogus"), b"");
    assert_eq!(outcome.text(), "blocking\n");
}

#[test]
fn a_relative_directory_and_library_are_handed_down_absolute() {
    let stage = Stage::new();
    let mut command = stage.command(&["--dir", ".", "--", "sh", "-c", "cd /; echo $UMSG_DIR"]);
    command.current_dir(stage.site.path());
    let library = Path::new("../../..").join(stage.library.trim_start_matches('/'));
    let outcome = finish(command.env("UMSG_PRELOAD", library), b"");
    assert_eq!(outcome.text(), format!("{}\n", stage.site.path().display()));
}

#[test]
fn the_exit_code_and_the_signal_are_the_programs() {
    let stage = Stage::new();
    assert_eq!(stage.run(&["--", "sh", "-c", "exit 42"]).code, Some(42));
    assert_eq!(stage.run(&["--", "sh", "-c", "kill -9 $$"]).code, None);
}

#[test]
fn signals_and_closed_streams_are_those_that_the_caller_gave() {
    let stage = Stage::new();
    let umsg = env!("CARGO_BIN_EXE_umsg");
    let found = |signals: &[&str], run: &[&str]| {
        let mut command = Command::new("env");
        command.args(signals).args(run);
        command.args(["grep", "-E", "Sig(Blk|Ign)", "/proc/self/status"]);
        command.env("UMSG_DIR", stage.site.path());
        finish(command.env("UMSG_PRELOAD", &stage.library), b"")
            .text()
            .to_owned()
    };
    for signals in [
        &["--ignore-signal=PIPE", "--block-signal=USR1"][..],
        &["--default-signal=PIPE"],
    ] {
        assert_eq!(found(signals, &[umsg, "run", "--"]), found(signals, &[]));
    }
    let mut shell = Command::new("bash");
    let line =
        format!("{umsg} run -- bash -c '! [ -e /proc/$$/fd/0 -o -e /proc/$$/fd/1 ]' <&- >&-");
    shell.args(["-c", &line]).env("UMSG_DIR", stage.site.path());
    let outcome = finish(shell.env("UMSG_PRELOAD", &stage.library), b"");
    assert_eq!(outcome.text(), "");
}

#[test]
fn a_program_that_does_not_exist_is_127_and_one_that_cant_be_executed_126() {
    let stage = Stage::new();
    stage
        .run(&["--", "no-such-program"])
        .fails(127, &["umsg: no-such-program: ", "not found; "]);
    stage
        .run(&["--", ""])
        .fails(127, &["umsg: \"\": the program was not found; "]);
    stage.run(&["--", "/no/such/program"]).fails(
        127,
        &["umsg: /no/such/program: the program was not found; "],
    );
    stage.run(&["--", "/etc/passwd"]).fails(
        126,
        &[
            "umsg: /etc/passwd: the program is not executable; ",
            "chmod +x",
        ],
    );
    stage
        .run(&["--", "/dev/shm"])
        .fails(126, &["umsg: /dev/shm: the program is not a file"]);
    let mut command = stage.command(&["--", "passwd"]);
    finish(command.env("PATH", "/nowhere:/etc"), b"")
        .fails(126, &["umsg: passwd: /etc/passwd is not executable"]);
}

#[test]
fn without_the_library_or_the_namespace_the_program_does_not_start() {
    let stage = Stage::new();
    let echo = ["--", "echo", "started"];
    let refused = |name: &str, value: &Path, parts: &[&str]| {
        let outcome = finish(stage.command(&echo).env(name, value), b"");
        outcome.fails(125, parts);
        assert!(outcome.output.is_empty());
    };
    refused(
        "UMSG_PRELOAD",
        Path::new("/no/such.so"),
        &["umsg: /no/such.so: No such file", "; set UMSG_PRELOAD"],
    );
    refused(
        "UMSG_PRELOAD",
        Path::new("/etc/passwd"),
        &["umsg: /etc/passwd: not a shared library; "],
    );
    refused(
        "UMSG_PRELOAD",
        Path::new("/bin/true"),
        &["umsg: /bin/true: a program, not a shared library; "],
    );
    refused(
        "UMSG_PRELOAD",
        Path::new("/dev/shm"),
        &["umsg: /dev/shm: ", "; set UMSG_PRELOAD"],
    );
    let mut foreign = std::fs::read(&stage.library).unwrap();
    // The field `e_machine` becomes 22: s390.
    foreign[18..20].copy_from_slice(&[22, 0]);
    let library = stage.workshop.path("foreign.so");
    std::fs::write(&library, foreign).unwrap();
    refused(
        "UMSG_PRELOAD",
        &library,
        &["foreign.so: the library is for machine 22 (64-bit), and this umsg is for"],
    );
    refused(
        "UMSG_DIR",
        Path::new("/no/such/dir"),
        &["/no/such/dir does not exist", "mkdir"],
    );
    let spaced = stage.workshop.copy(&stage.library, "with space.so");
    refused(
        "UMSG_PRELOAD",
        &spaced,
        &["with space.so: LD_PRELOAD can't hold a path with a space"],
    );
}

#[test]
fn the_library_is_found_beside_the_command_and_in_lib() {
    let stage = Stage::new();
    let bin = stage.workshop.path("bin");
    std::fs::create_dir(&bin).unwrap();
    std::fs::create_dir(stage.workshop.path("lib")).unwrap();
    let umsg = stage.workshop.copy(env!("CARGO_BIN_EXE_umsg"), "bin/umsg");
    let run = || {
        let mut command = Command::new(&umsg);
        command.args(["run", "--", "sh", "-c", "echo $LD_PRELOAD"]);
        command.env_remove("UMSG_PRELOAD").env_remove("LD_PRELOAD");
        finish(command.env("UMSG_DIR", stage.site.path()), b"")
    };
    run().fails(
        125,
        &[
            "bin/libumsg_preload.so",
            "lib/libumsg_preload.so",
            "; set UMSG_PRELOAD",
        ],
    );
    let in_lib = stage
        .workshop
        .copy(&stage.library, "lib/libumsg_preload.so");
    assert_eq!(run().text(), format!("{}\n", in_lib.display()));
    let beside = stage
        .workshop
        .copy(&stage.library, "bin/libumsg_preload.so");
    assert_eq!(run().text(), format!("{}\n", beside.display()));
}

#[test]
fn a_program_gets_the_library_for_its_c_library() {
    let stage = Stage::new();
    let workshop = &stage.workshop;
    for directory in ["bin", "lib", "lib/umsg", "lib/umsg/musl"] {
        std::fs::create_dir(workshop.path(directory)).unwrap();
    }
    let umsg = workshop.copy(env!("CARGO_BIN_EXE_umsg"), "bin/umsg");
    let for_glibc = workshop.copy(&stage.library, "lib/umsg/libumsg_preload.so");
    // The test makes a library that needs musl's libc under Alpine's name, and a program whose dynamic linker has musl's name. glibc's linker runs
    // the program.
    let bare = ["-shared", "-nostdlib", "-fPIC"];
    let soname = [&bare[..], &["-Wl,-soname,libc.musl-test.so.1"]].concat();
    let libc = workshop.compile("libc.musl-test.so.1", "int libc_of_the_test;", &soname);
    let search = format!("-Wl,-rpath,{}", libc.parent().unwrap().display());
    let libc = libc.display().to_string();
    let source = "extern int libc_of_the_test; int *reference = &libc_of_the_test;";
    let needing = [&bare[..], &[&libc, &search]].concat();
    let built = workshop.compile("libumsg_preload.so", source, &needing);
    let for_musl = workshop.path("lib/umsg/musl/libumsg_preload.so");
    std::fs::rename(built, &for_musl).unwrap();
    let linker = workshop.path("ld-musl-test.so.1");
    std::os::unix::fs::symlink(GLIBC_LINKER, &linker).unwrap();
    let print = r#"#include <stdio.h>
        #include <stdlib.h>
        int main(void) { puts(getenv("LD_PRELOAD")); return 0; }"#;
    let option = format!("-Wl,--dynamic-linker={}", linker.display());
    let programs = [
        (workshop.compile("glibc", print, &[]), &for_glibc),
        (workshop.compile("musl", print, &[&option]), &for_musl),
    ];
    for (program, library) in programs {
        let mut command = Command::new(&umsg);
        command.args(["run", "--"]).arg(program);
        command.env_remove("UMSG_PRELOAD").env_remove("LD_PRELOAD");
        let outcome = finish(command.env("UMSG_DIR", stage.site.path()), b"");
        assert_eq!(outcome.text(), format!("{}\n", library.display()));
    }
}
