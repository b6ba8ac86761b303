//! Programs that others wrote, on the kernel's queues and, unchanged, with the drop-in preloaded.
//!
//! Under the drop-in a program may use no memory for queues of the kernel (RLIMIT_MSGQUEUE is 0), so that what works
//! is proved to work on umsg. What is not installed is skipped, and with `CI` set fails: rt-tests (Debian), posix_ipc
//! (PyPI; `UMSG_TEST_PYTHON` names the interpreter that has it), a C compiler.

use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use umsg_conformance::library;
use umsg_conformance::runner::{namespace_directory, say};
use umsg_conformance::sys::{self, Pause};

/// How long a program may take before it counts as hung.
const PATIENCE: Duration = Duration::from_secs(120);

/// What a program printed, and whether it was content.
#[derive(Debug, PartialEq, Eq)]
struct Ran {
    success: bool,
    text: String,
}

/// Runs a program to its end, in an IPC namespace of its own if that is allowed, and in a group of its own that is
/// killed if it hangs. Both of its outputs are taken together.
fn finish(mut command: Command, memory_in_the_kernel: Option<u64>) -> Ran {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("output");
    let output = File::create(&path).expect("a file");
    let errors = output.try_clone().expect("the file again");
    command
        .stdin(Stdio::null())
        .stdout(output)
        .stderr(errors)
        .process_group(0);
    // SAFETY: system calls only.
    unsafe {
        command.pre_exec(move || {
            let _ = sys::enter_private_ipc_namespace();
            memory_in_the_kernel
                .map_or(Ok(()), sys::limit_kernel_queues)
                .map_err(std::io::Error::from)
        });
    }
    let mut child = command
        .spawn()
        .unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let mut pause = Pause::new(PATIENCE);
    let status = loop {
        if let Some(status) = child.try_wait().expect("waiting for a child") {
            break Some(status);
        }
        if !pause.again() {
            break None;
        }
    };
    sys::kill(-(child.id() as i32), libc::SIGKILL);
    if status.is_none() {
        let _ = child.wait();
    }
    let text = String::from_utf8_lossy(&fs::read(&path).expect("the output")).into_owned();
    let status =
        status.unwrap_or_else(|| panic!("{command:?} had not ended after {PATIENCE:?}:\n{text}"));
    Ran {
        success: status.success(),
        text,
    }
}

/// The same program on the kernel and on umsg.
fn on_both(command: impl Fn() -> Command) -> (Ran, Ran) {
    let library = library::path().unwrap_or_else(|why| panic!("{why}"));
    let kernel = finish(command(), None);
    let directory = namespace_directory();
    let mut preloaded = command();
    preloaded
        .env("LD_PRELOAD", library)
        .env("UMSG_DIR", directory.path());
    let umsg = finish(preloaded, Some(0));
    assert!(kernel.success, "on the kernel:\n{}", kernel.text);
    assert!(
        umsg.success,
        "on umsg:\n{}\non the kernel:\n{}",
        umsg.text, kernel.text
    );
    let left: Vec<_> = fs::read_dir(directory.path().join("mq"))
        .expect("the queues")
        .flatten()
        .collect();
    assert!(left.is_empty(), "left behind: {left:?}");
    (kernel, umsg)
}

/// A program is not there: a failure where everything has to be, else only said.
fn missing(what: &str) {
    assert!(std::env::var_os("CI").is_none(), "missing: {what}");
    say(&format!("skipped: {what} is missing\n"));
}

/// The program of this name on the path.
fn on_the_path(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .map(|directory| directory.join(name))
        .find(|program| program.is_file())
}

#[test]
fn a_program_without_umsg_has_no_queues_when_the_kernel_may_have_none() {
    let ran = finish(Command::new(env!("CARGO_BIN_EXE_nix_mqueue")), Some(0));
    assert!(
        !ran.success,
        "this does not prove anything about umsg:\n{}",
        ran.text
    );
    assert!(ran.text.contains("EMFILE"), "{}", ran.text);
}

/// The summary that pmqtest prints for each pair of threads: `#1 -> #0, Min 2, Cur 3, Avg 5, Max 102`.
fn pairs(ran: &Ran) -> usize {
    ran.text
        .lines()
        .filter(|line| line.starts_with('#') && line.contains("-> #") && line.contains("Max"))
        .count()
}

/// pmqtest with these arguments is content on both, and sums up this many pairs of threads.
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

// With a time-out it may give up after a few rounds, on the kernel too.
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

/// Compiles a program of `tests/programs`.
fn compile(source: &str, into: &Path, options: &[&str]) -> Option<PathBuf> {
    let Some(compiler) = on_the_path("cc") else {
        missing("a C compiler");
        return None;
    };
    let program = into.join("program");
    let mut command = Command::new(compiler);
    command
        .args(["-Wall", "-Werror", "-o"])
        .arg(&program)
        .args(options);
    command
        .arg(
            Path::new(env!("CARGO_MANIFEST_DIR"))
                .join("tests/programs")
                .join(source),
        )
        .arg("-lrt");
    let ran = finish(command, None);
    assert!(ran.success, "{}", ran.text);
    Some(program)
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
    let ran = finish(command, Some(0));
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

/// A Python that has posix_ipc, and the version that it has.
fn python() -> Option<(PathBuf, String)> {
    let candidates = [std::env::var_os("UMSG_TEST_PYTHON"), Some("python3".into())];
    for candidate in candidates.into_iter().flatten() {
        let ask = "import posix_ipc; print(posix_ipc.VERSION)";
        let Ok(output) = Command::new(&candidate).args(["-c", ask]).output() else {
            continue;
        };
        if output.status.success() {
            return Some((
                candidate.into(),
                String::from_utf8_lossy(&output.stdout).trim().to_string(),
            ));
        }
    }
    None
}

/// The source of posix_ipc with its tests: what `UMSG_POSIX_IPC_SOURCE` names, or fetched by pip.
fn posix_ipc_source(python: &Path, version: &str) -> Option<PathBuf> {
    if let Some(source) = std::env::var_os("UMSG_POSIX_IPC_SOURCE") {
        return Some(source.into());
    }
    let into = Path::new(env!("CARGO_TARGET_TMPDIR")).join("posix_ipc");
    let (source, archive) = (
        into.join(format!("posix_ipc-{version}")),
        into.join(format!("posix_ipc-{version}.tar.gz")),
    );
    if source.join("tests/test_message_queues.py").exists() {
        return Some(source);
    }
    let mut pip = Command::new(python);
    pip.args([
        "-m",
        "pip",
        "download",
        "--quiet",
        "--disable-pip-version-check",
        "--no-deps",
    ]);
    pip.args(["--no-binary", ":all:", "--dest"])
        .arg(&into)
        .arg(format!("posix_ipc=={version}"));
    let mut tar = Command::new("tar");
    tar.arg("-xzf").arg(&archive).arg("-C").arg(&into);
    for step in [pip, tar] {
        let ran = finish(step, None);
        if !ran.success {
            say(&format!("{}\n", ran.text));
            return None;
        }
    }
    Some(source)
}

/// The classes of posix_ipc's tests, but for notification, which umsg does not offer yet.
const CLASSES: [&str; 4] = [
    "TestMessageQueueCreation",
    "TestMessageQueueSendReceive",
    "TestMessageQueueDestruction",
    "TestMessageQueuePropertiesAndAttributes",
];

/// The tests that Python's unittest says are ok.
fn passed(ran: &Ran) -> Vec<&str> {
    let mut passed: Vec<&str> = ran
        .text
        .lines()
        .filter_map(|line| line.split_once(' ').filter(|_| line.starts_with("test_")))
        .map(|(name, _)| name)
        .collect();
    passed.sort_unstable();
    passed
}

#[test]
fn posix_ipc_passes_its_own_tests() {
    let Some((python, version)) = python() else {
        return missing("posix_ipc of PyPI");
    };
    let Some(source) = posix_ipc_source(&python, &version) else {
        return missing("the source of posix_ipc");
    };
    let (kernel, umsg) = on_both(|| {
        let mut command = Command::new(&python);
        command
            .current_dir(&source)
            .args(["-m", "unittest", "-v", "tests.test_message_queues"]);
        command.args(CLASSES.iter().flat_map(|class| ["-k", class]));
        command
    });
    let ran = [passed(&kernel), passed(&umsg)];
    assert!(ran[0].len() > 30, "{}", kernel.text);
    assert_eq!(ran[0], ran[1]);
    assert!(umsg.text.contains("\nOK"), "{}", umsg.text);
}
