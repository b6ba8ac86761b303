//! Tests IPC namespaces of the kernel, in static programs and in process trees of static and dynamic programs.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use umsg_testkit::artefacts::drop_in;
use umsg_testkit::ipc_directories;

use super::{GAPS, Site, cases, finish, holds, run};
use crate::support::compiler::Workshop;
use crate::support::{NOBODY, give_to};

/// Returns the program of the drop-in's test cases for IPC namespaces, linked statically.
fn program() -> std::path::PathBuf {
    cases("ipc_namespaces", "static", &["-static", "-include", GAPS])
}

/// Returns a site that only its owner and root can use. The removal of ended IPC namespaces ignores processes that /proc hides if the directory is
/// closed to other users.
fn closed() -> Site {
    let site = Site::new();
    set_mode(&site, 0o700);
    site
}

fn set_mode(site: &Site, mode: u32) {
    std::fs::set_permissions(site.path(), PermissionsExt::from_mode(mode)).unwrap();
}

/// Waits until all directories of IPC namespaces are removed: the supervisor removes the last ones after the end of the last program.
#[track_caller]
fn all_are_removed(site: &Site) {
    let start = Instant::now();
    while !ipc_directories(site.path()).is_empty() {
        let patience = Duration::from_secs(60);
        assert!(
            start.elapsed() < patience,
            "{:?} is left",
            ipc_directories(site.path())
        );
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// With `auto`, each static program has a supervisor of its own. With `on`, one supervisor serves all programs.
const SUPERVISED: [&str; 2] = ["--raw-syscalls=auto", "--raw-syscalls=on"];

/// The arguments of `umsg gc` that remove the directories of ended IPC namespaces. With `auto`, such a directory may remain: a shell that has used no
/// queue removes none, and the supervisor of a static program waits only 2 seconds for the shell's end.
const SWEEP: [&str; 3] = ["gc", "--leftovers", "--remove"];

macro_rules! namespace_cases {
    ($($case:ident),* $(,)?) => {
        $( #[test] fn $case() { holds(&program(), &[], stringify!($case)); } )*
    };
}

namespace_cases! {
    a_new_namespace_has_queues_of_its_own,
    a_process_comes_back_to_the_queues_of_a_namespace,
    queues_that_are_made_again_and_again_stay_in_their_namespace,
    a_child_of_clone_has_queues_of_its_own,
    a_child_of_a_bare_clone_has_queues_of_its_own,
    programs_of_a_namespace_share_its_queues,
    a_namespace_outlives_the_process_that_has_made_queues_in_it,
    a_new_namespace_has_the_default_limits,
    a_thread_executes_a_program_in_a_namespace_of_its_own,
}

#[test]
fn the_supervisor_removes_the_directories_of_ended_namespaces() {
    for case in [
        "a_new_namespace_has_queues_of_its_own",
        "a_child_of_a_bare_clone_has_queues_of_its_own",
        "programs_of_a_namespace_share_its_queues",
        "a_process_is_killed_in_its_namespace",
    ] {
        let site = closed();
        let _ = run(&site, &[], &program(), &[case]);
        all_are_removed(&site);
    }
}

/// /proc may hide a process of another user that is in the IPC namespace. Such a process can use a directory that is open to other users, so the
/// directory must stay.
#[test]
fn an_open_directory_stays_while_proc_hides_a_process() {
    umsg_testkit::needs_root!();
    if std::fs::metadata("/proc/1/ns/ipc").is_ok() {
        umsg_testkit::run::skip("/proc hides no process from root");
        return;
    }
    let site = Site::new();
    set_mode(&site, 0o755);
    let case = "a_process_is_killed_in_its_namespace";
    let _ = run(&site, &[], &program(), &[case]);
    // The supervisor waits at most 2 seconds for processes to leave their IPC namespaces.
    std::thread::sleep(Duration::from_secs(3));
    assert_eq!(site.umsg(&SWEEP).code, Some(0));
    assert_eq!(
        ipc_directories(site.path()).len(),
        1,
        "another user may use the directory"
    );
    set_mode(&site, 0o700);
    assert_eq!(site.umsg(&SWEEP).code, Some(0));
    all_are_removed(&site);
}

/// The script waits in the first IPC namespace until the directory of the ended one is removed.
#[test]
fn a_living_supervisor_removes_the_directory_of_an_ended_namespace() {
    umsg_testkit::needs_root!();
    let site = closed();
    let line = format!(
        "unshare -i {} make_there && ls -d $UMSG_DIR/ipc-* || exit 1
         for round in $(seq 600); do ls -d $UMSG_DIR/ipc-* 2>/dev/null || exit 0; sleep 0.1; done; exit 2",
        program().display(),
    );
    let outcome = shell(&site, &["--raw-syscalls=on"], &line);
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
}

#[test]
fn all_namespaces_share_the_queues_if_the_options_say_so() {
    let site = closed();
    let options = ["--ipc-namespaces=share"];
    let outcome = run(&site, &options, &program(), &["queues_are_shared"]);
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    assert!(ipc_directories(site.path()).is_empty());
}

fn shell(site: &Site, options: &[&str], line: &str) -> crate::support::Outcome {
    let mut command = site.command(&["run"]);
    command.args(options).args(["--", "sh", "-c", line]);
    command.env("UMSG_PRELOAD", drop_in());
    finish(&mut command, b"")
}

/// Returns a line of shell script: static and dynamic programs look for each other's queues in a new IPC namespace.
fn mixed(umsg: &Path, program: &Path, unshare: &str) -> String {
    let (umsg, program) = (umsg.display(), program.display());
    format!(
        "{umsg} create /here && {unshare} sh -c '
            ! {umsg} info /here 2>/dev/null && ! {program} is_there || exit 31
            {umsg} create /there && {program} is_there || exit 32
            {umsg} run -- {program} is_there || exit 33
            {program} make_another && {umsg} info /another >/dev/null || exit 34
         ' && {umsg} info /here >/dev/null && ! {program} is_there && ! {umsg} info /another 2>/dev/null"
    )
}

#[test]
fn static_and_dynamic_programs_see_the_same_queues_of_a_namespace() {
    umsg_testkit::needs_root!();
    let umsg = Path::new(env!("CARGO_BIN_EXE_umsg"));
    let line = mixed(umsg, &program(), "unshare -i");
    for options in SUPERVISED {
        let site = closed();
        let outcome = shell(&site, &[options], &line);
        assert_eq!(outcome.code, Some(0), "{options}: {outcome:?}");
        if options == SUPERVISED[0] {
            assert_eq!(site.umsg(&SWEEP).code, Some(0));
        }
        all_are_removed(&site);
    }
}

#[test]
fn a_user_without_privileges_has_queues_of_its_own_in_a_namespace() {
    umsg_testkit::needs_root!();
    let unshare = ["-U", "-r", "-i"];
    let (site, workshop) = (closed(), Workshop::new());
    give_to(site.path(), NOBODY);
    let program = workshop.copy(program(), "cases");
    let library = workshop.copy(drop_in(), "libumsg_preload.so");
    let umsg = workshop.copy(env!("CARGO_BIN_EXE_umsg"), "umsg");
    let mut able = Command::new("setpriv");
    able.args(["--reuid", "65534", "--clear-groups", "unshare"]);
    if !able
        .args(unshare)
        .arg("true")
        .status()
        .is_ok_and(|it| it.success())
    {
        umsg_testkit::run::skip("no user namespaces for ordinary users");
        return;
    }
    let line = mixed(&umsg, &program, &format!("unshare {}", unshare.join(" ")));
    for options in SUPERVISED {
        let arguments = ["run", options, "--", "sh", "-c", &line];
        let variables = [("UMSG_PRELOAD", library.to_str().unwrap())];
        let outcome = site.umsg_as_nobody_with(&arguments, &variables).unwrap();
        assert_eq!(outcome.code, Some(0), "{options}: {outcome:?}");
        if options == SUPERVISED[0] {
            let swept = site.umsg_as_nobody_with(&SWEEP, &variables).unwrap();
            assert_eq!(swept.code, Some(0));
        }
        all_are_removed(&site);
        site.umsg(&["rm", "/here"]);
    }
}
