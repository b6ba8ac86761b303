//! Runs existing programs of other authors on the kernel's queues and, unchanged, with the drop-in preloaded.
//!
//! Under the drop-in, a program may use no memory for queues of the kernel (RLIMIT_MSGQUEUE is 0), so a program that works uses umsg. If the program
//! of a case is not installed, the case is skipped; with `CI` set, the case fails. The programs come from the Debian packages rt-tests, stress-ng and
//! libevent-dev and the PyPI package posix_ipc (`UMSG_TEST_PYTHON` names a Python with this package). Other programs need a C compiler.

mod support;

use std::path::{Path, PathBuf};
use std::process::Command;

use support::{
    Kernel, Ran, finish, missing, on_both, on_the_path, passed, python_with, source_of, stress_ng,
};
use umsg_conformance::library;
use umsg_conformance::runner::say;
use umsg_conformance::sys;
use umsg_testkit::compile::Compile;

#[test]
fn a_program_without_umsg_has_no_queues_when_the_kernel_may_have_none() {
    let ran = finish(
        Command::new(env!("CARGO_BIN_EXE_nix_mqueue")),
        Kernel::Barred,
    );
    assert!(
        !ran.success,
        "this does not prove anything about umsg:\n{}",
        ran.text
    );
    assert!(ran.text.contains("EMFILE"), "{}", ran.text);
}

/// Returns for how many pairs of threads pmqtest printed a summary: `#1 -> #0, Min 2, Cur 3, Avg 5, Max 102`.
fn pairs(ran: &Ran) -> usize {
    ran.text
        .lines()
        .filter(|line| line.starts_with('#') && line.contains("-> #") && line.contains("Max"))
        .count()
}

/// Runs pmqtest with these arguments on both sides. Expects success, and a summary for this number of pairs of threads.
fn pmqtest(arguments: &[&str], expected: usize) -> Option<[Ran; 2]> {
    let Some(program) = on_the_path("pmqtest") else {
        missing("pmqtest of Debian's rt-tests");
        return None;
    };
    if !sys::is_root() {
        say("skipped: only root may run pmqtest, which asks for a realtime policy\n");
        return None;
    }
    let (kernel, umsg) = on_both(|| {
        let mut command = Command::new(&program);
        command.args(arguments);
        command
    });
    assert_eq!(pairs(&kernel), expected, "{}", kernel.text);
    assert_eq!(pairs(&umsg), expected, "{}", umsg.text);
    Some([kernel, umsg])
}

#[test]
fn pmqtest_makes_its_rounds() {
    for ran in pmqtest(&["-q", "-l", "1000", "-i", "100"], 1)
        .into_iter()
        .flatten()
    {
        assert!(ran.text.contains("Cycles 1000"), "{}", ran.text);
    }
}

#[test]
fn pmqtest_makes_its_rounds_with_several_threads() {
    pmqtest(&["-q", "-l", "500", "-i", "100", "-t", "2"], 2);
}

// With a time-out, pmqtest may end after a few rounds on both sides, so the test does not compare the numbers of rounds.
#[test]
fn pmqtest_sums_up_with_time_outs() {
    pmqtest(&["-q", "-D", "3", "-i", "100", "-T", "1"], 1);
}

#[test]
fn pmqtest_sees_the_time_outs_that_it_forces() {
    for ran in pmqtest(&["-q", "-D", "4", "-i", "100", "-T", "1", "-f", "1"], 1)
        .into_iter()
        .flatten()
    {
        assert!(!ran.text.contains("TO 0,"), "{}", ran.text);
    }
}

#[test]
fn nix_answers_alike() {
    let (kernel, umsg) = on_both(|| Command::new(env!("CARGO_BIN_EXE_nix_mqueue")));
    assert!(kernel.text.contains("echoed: 100"), "{}", kernel.text);
    assert_eq!(kernel.text, umsg.text);
}

/// Returns the path of a program in `tests/programs`.
fn example(source: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/programs")
        .join(source)
}

/// Compiles a program in `tests/programs`. Returns `None` if there is no C compiler.
fn compile(source: &str, into: &Path, options: &[&str]) -> Option<PathBuf> {
    if on_the_path("cc").is_none() {
        missing("a C compiler");
        return None;
    }
    let compile = Compile::new(&example(source), into.join("program"));
    Some(
        compile
            .args(["-Wall", "-Werror"])
            .args(options)
            .args(["-lrt"])
            .run(),
    )
}

#[test]
fn a_c_program_with_the_symbol_versions_of_librt_answers_alike() {
    let directory = tempfile::tempdir().expect("a directory");
    for options in [&["-O0"][..], &["-O2", "-D_FORTIFY_SOURCE=2"]] {
        let Some(program) = compile("old_symbols.c", directory.path(), options) else {
            return;
        };
        let (kernel, umsg) = on_both(|| Command::new(&program));
        assert!(kernel.text.contains("the child: 0"), "{}", kernel.text);
        let [kernel, umsg] = [kernel, umsg].map(|ran| ran.text);
        assert_eq!(kernel, umsg);
    }
}

#[test]
fn the_symbol_versions_of_librt_lead_to_the_drop_in() {
    let directory = tempfile::tempdir().expect("a directory");
    let Some(program) = compile("old_symbols.c", directory.path(), &["-O0"]) else {
        return;
    };
    let library = library::path().unwrap_or_else(|why| panic!("{why}"));
    let mut command = Command::new(program);
    command.arg("providers").env("LD_PRELOAD", library);
    let ran = finish(command, Kernel::Barred);
    assert!(ran.success, "{}", ran.text);
    assert_eq!(ran.text.lines().count(), 10, "{}", ran.text);
    for line in ran.text.lines() {
        let [name, plain, linked] = line.split(' ').collect::<Vec<_>>()[..] else {
            panic!("{line}")
        };
        assert_eq!(Path::new(plain), library, "{name} by dlsym");
        assert_eq!(
            Path::new(linked),
            library,
            "{name} with the version of librt"
        );
    }
}

#[test]
fn a_loop_of_libevent_answers_alike() {
    if !Path::new("/usr/include/event2/event.h").exists() {
        return missing("libevent-dev");
    }
    let directory = tempfile::tempdir().expect("a directory");
    let Some(program) = compile("libevent.c", directory.path(), &["-O1", "-levent_core"]) else {
        return;
    };
    let (kernel, umsg) = on_both(|| Command::new(&program));
    assert_eq!(
        kernel.text.matches("2000 questions, ").count(),
        4,
        "{}",
        kernel.text
    );
    assert_eq!(kernel.text, umsg.text);
}

#[test]
fn a_loop_of_asyncio_answers_alike() {
    let Some((python, _)) = python_with("posix_ipc") else {
        return missing("posix_ipc of PyPI");
    };
    let (kernel, umsg) = on_both(|| {
        let mut command = Command::new(&python);
        command.arg(example("asyncio_queue.py"));
        command
    });
    assert!(
        kernel.text.ends_with("room after a receive: True\n"),
        "{}",
        kernel.text
    );
    assert_eq!(kernel.text, umsg.text);
}

#[test]
fn stress_ng_finds_what_it_sent_and_reads_seeks_maps_and_polls_the_descriptor() {
    stress_ng("mq", &[]);
}

#[test]
fn posix_ipc_passes_its_own_tests() {
    let Some((python, version)) = python_with("posix_ipc") else {
        return missing("posix_ipc of PyPI");
    };
    let Some(source) = source_of("posix_ipc", &python, &version) else {
        return missing("the source of posix_ipc");
    };
    let (kernel, umsg) = on_both(|| {
        let mut command = Command::new(&python);
        command
            .current_dir(&source)
            .args(["-m", "unittest", "-v", "tests.test_message_queues"]);
        command
    });
    let ran = [passed(&kernel), passed(&umsg)];
    assert!(ran[0].len() > 40, "{}", kernel.text);
    assert_eq!(ran[0], ran[1]);
    assert!(umsg.text.contains("\nOK"), "{}", umsg.text);
}
