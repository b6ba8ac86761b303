//! C programs on the installed library: in two versions of the language, under sanitizers and under valgrind; and C++.

mod support;

use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;

use support::{Build, Compile, compile, finish, is_installed, namespace, skip, succeed, workshop};

/// Runs a program in its own namespace. The program must leave no queue behind.
fn run(program: &Path) {
    run_with(Command::new(program));
}

fn run_with(command: Command) {
    let namespace = namespace();
    let mut under = namespace.command(command.get_program());
    under.args(command.get_args());
    for (name, value) in command.get_envs() {
        under.env(name, value.unwrap_or_default());
    }
    let said = succeed(&mut under);
    assert!(!said.is_empty(), "{under:?} ran no case");
    assert_eq!(namespace.queues(), [""; 0], "left behind");
}

fn plain(name: &str, standard: &str) {
    let options = [format!("-std={standard}")];
    run(&compile(&Build {
        source: &format!("{name}.c"),
        output: &format!("{name}-{standard}"),
        options: &options.each_ref().map(|option| &**option),
    }));
}

fn in_c99(name: &str) {
    plain(name, "c99");
}

fn in_c11(name: &str) {
    plain(name, "c11");
}

const SANITIZERS: [&str; 3] = [
    "-std=c11",
    "-fsanitize=address,undefined",
    "-fno-sanitize-recover=all",
];

/// Returns whether the compiler has the sanitizers, and a program that is compiled with them runs.
fn sanitizers_work() -> bool {
    static WORK: OnceLock<bool> = OnceLock::new();
    *WORK.get_or_init(|| {
        let source = workshop().join("empty.c");
        std::fs::write(&source, "int main(void) { return 0; }\n").unwrap();
        let program = Compile::new(&source, workshop().join("empty"));
        let program = program.args(SANITIZERS).try_run();
        program.is_some_and(|program| finish(&mut Command::new(program)).status.success())
    })
}

fn sanitized(name: &str) {
    if !sanitizers_work() {
        return skip("AddressSanitizer or UBSan of the C compiler");
    }
    run(&compile(&Build {
        source: &format!("{name}.c"),
        output: &format!("{name}-sanitized"),
        options: &SANITIZERS,
    }));
}

fn under_valgrind(name: &str) {
    if !is_installed("valgrind") {
        return skip("valgrind");
    }
    let program = compile(&Build {
        source: &format!("{name}.c"),
        output: &format!("{name}-valgrind"),
        options: &["-std=c11"],
    });
    // valgrind's search for leaks reads all mapped pages, so each page then takes memory. The mapping of a System V queue has gigabytes of pages.
    // valgrind also counts a thread that ends with its process, such as the thread that waits for notifications, as a possible leak. The sanitizers
    // find the leaks of these programs.
    let leaks = match name {
        "typed" | "notify" => "no",
        // valgrind also counts the stacks of the parent's threads as possible leaks of a forked child.
        "log" => "no",
        _ => "full",
    };
    let mut valgrind = Command::new("valgrind");
    valgrind
        .args(["--quiet", "--error-exitcode=99", "--fair-sched=try"])
        .arg(format!("--leak-check={leaks}"))
        .arg(program);
    run_with(valgrind);
}

/// Generates one test for each program and each way to run it.
macro_rules! programs {
    ($($name:ident: $($way:ident $run:ident),*;)*) => {
        $(mod $name {
            $(#[test]
            fn $way() {
                super::$run(stringify!($name));
            })*
        })*
    };
    (everywhere: $($name:ident),*) => {
        programs! {
            $($name: in_c99 in_c99, in_c11 in_c11, with_sanitizers sanitized, with_valgrind under_valgrind;)*
        }
    };
}

programs!(everywhere: open, messages, batch, look, threads, in_place, pollfd, snapshot, notify, typed, ring, log);

// The program `exhaustion` sets resource limits under which sanitizers and valgrind do not work.
programs! {
    exhaustion: in_c11 in_c11;
}

// valgrind gives a handler a copy of the context, and ignores changes of the signal mask in this copy. Deferring a signal needs such a change.
programs! {
    handlers: in_c99 in_c99, in_c11 in_c11, with_sanitizers sanitized;
}

#[test]
fn cpp_takes_the_headers() {
    if !is_installed("c++") {
        return skip("a C++ compiler");
    }
    for (source, output) in [("header.cpp", "header-cpp"), ("ring.cpp", "ring-cpp")] {
        run(&compile(&Build {
            source,
            output,
            options: &["-std=c++11"],
        }));
    }
}

/// The unchanged program also works on the kernel's queues, so its expectations are those of POSIX queues.
#[test]
fn an_ordinary_posix_program_works_with_the_kernel() {
    if !Path::new("/proc/sys/fs/mqueue").exists() {
        return skip("this kernel's message queues");
    }
    let program = compile(&Build {
        source: "posix.c",
        output: "posix-kernel",
        options: &["-std=c99"],
    });
    let name = format!("/umsg-c-test-{}", std::process::id());
    succeed(Command::new(program).arg(name));
}

#[test]
fn an_ordinary_posix_program_is_recompiled_without_a_change() {
    for (standard, output) in [("-std=c99", "posix-c99"), ("-std=gnu17", "posix-gnu17")] {
        run(&compile(&Build {
            source: "posix.c",
            output,
            options: &[standard, "-D_GNU_SOURCE=", "-include", "umsg/mqueue.h"],
        }));
    }
}

#[test]
fn a_fortified_posix_program_is_recompiled_without_a_change() {
    let options = [
        "-std=gnu11",
        "-O2",
        "-D_FORTIFY_SOURCE=2",
        "-D_GNU_SOURCE=",
        "-include",
        "umsg/mqueue.h",
    ];
    run(&compile(&Build {
        source: "posix.c",
        output: "posix-fortified",
        options: &options,
    }));
}

/// The unchanged program also works on the kernel's queues, so its expectations are those of System V queues.
#[test]
fn an_ordinary_program_of_system_v_works_with_the_kernel() {
    if !Path::new("/proc/sysvipc/msg").exists() {
        return skip("this kernel's System V queues");
    }
    let program = compile(&Build {
        source: "sysv.c",
        output: "sysv-kernel",
        options: &["-std=c99", "-D_GNU_SOURCE"],
    });
    // In a new IPC namespace, no other process creates or removes queues while the program lists them.
    let own_namespace = [&["--ipc"][..], &["--user", "--map-root-user", "--ipc"]];
    let unshare = |options: &[&str]| {
        let mut command = Command::new("unshare");
        command.args(options).arg("--");
        command
    };
    let is_permitted = |options: &&&[&str]| {
        let output = unshare(options).arg("true").output();
        output.is_ok_and(|output| output.status.success())
    };
    let mut command = match own_namespace.iter().find(is_permitted) {
        Some(options) => {
            let mut command = unshare(options);
            command.arg(program);
            command
        }
        None => Command::new(program),
    };
    succeed(&mut command);
}

#[test]
fn an_ordinary_program_of_system_v_is_recompiled_without_a_change() {
    for (standard, output) in [("-std=c99", "sysv-c99"), ("-std=gnu17", "sysv-gnu17")] {
        run(&compile(&Build {
            source: "sysv.c",
            output,
            options: &[standard, "-D_GNU_SOURCE", "-include", "umsg/msg.h"],
        }));
    }
}

#[test]
fn the_names_of_posix_go_together_with_the_systems_header() {
    let program = compile(&Build {
        source: "both_headers.c",
        output: "both-headers",
        options: &["-std=c99"],
    });
    let namespace = namespace();
    succeed(&mut namespace.command(program));
    assert_eq!(namespace.queues(), [""; 0], "left behind");
}
