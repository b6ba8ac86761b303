//! umsg run.

mod support;

use std::path::Path;
use std::process::Command;

use support::compiler::{Workshop, drop_in};
use support::{NOBODY, Outcome, Site, finish, give_to, is_root, set_mode};

/// A library that does nothing stands for the drop-in, where only the start of the program matters.
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

    /// With this program.
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
        .fails(127, &["umsg: \"\": it was not found; "]);
    stage
        .run(&["--", "/no/such/program"])
        .fails(127, &["umsg: /no/such/program: it was not found; "]);
    stage.run(&["--", "/etc/passwd"]).fails(
        126,
        &["umsg: /etc/passwd: it is not executable; ", "chmod +x"],
    );
    stage
        .run(&["--", "/dev/shm"])
        .fails(126, &["umsg: /dev/shm: it is not a file"]);
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
        &["umsg: /bin/true: a program, and not a shared library; "],
    );
    refused(
        "UMSG_PRELOAD",
        Path::new("/dev/shm"),
        &["umsg: /dev/shm: ", "; set UMSG_PRELOAD"],
    );
    let mut foreign = std::fs::read(&stage.library).unwrap();
    // e_machine: s390
    foreign[18..20].copy_from_slice(&[22, 0]);
    let library = stage.workshop.path("foreign.so");
    std::fs::write(&library, foreign).unwrap();
    refused(
        "UMSG_PRELOAD",
        &library,
        &["foreign.so: a library for machine 22 (64-bit), and this machine's"],
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
fn a_static_program_is_refused_unless_forced() {
    let stage = Stage::new();
    let source = "#include <stdio.h>\nint main(void) { puts(\"started\"); }";
    let Some(program) = stage.workshop.try_compile("static", source, &["-static"]) else {
        return;
    };
    let outcome = stage.run_file(&program);
    outcome.fails(
        120,
        &[
            "can't be intercepted: it is statically linked",
            "; link it dynamically",
        ],
    );
    assert!(outcome.output.is_empty());
    let forced = stage.run(&["--force", "--", program.to_str().unwrap()]);
    assert_eq!(forced.text(), "started\n");
    if let Some(pie) = stage
        .workshop
        .try_compile("static-pie", source, &["-static-pie"])
    {
        stage.run_file(&pie).fails(120, &["statically linked"]);
    }
}

#[test]
fn a_program_that_gains_a_user_or_a_group_is_refused() {
    if !is_root() {
        return;
    }
    let stage = Stage::new();
    let program = stage.workshop.copy("/bin/true", "true");
    give_to(&program, NOBODY);
    set_mode(&program, 0o4755);
    stage.run_file(&program).fails(
        120,
        &[
            "can't be intercepted: it is set-user-ID, so",
            "LD_PRELOAD; ",
        ],
    );
    set_mode(&program, 0o2755);
    stage
        .run_file(&program)
        .fails(120, &["it is set-group-ID, so"]);
    // Without the group's x the bit means something else, and one's own id is no gain.
    set_mode(&program, 0o2745);
    stage.run_file(&program).text();
    give_to(&program, 0);
    set_mode(&program, 0o6755);
    stage.run_file(&program).text();
}

#[test]
fn a_program_with_file_capabilities_is_refused_to_users_who_gain_by_them() {
    if !is_root() {
        return;
    }
    let stage = Stage::new();
    let program = stage.workshop.copy("/bin/true", "true");
    let mut setcap = Command::new("setcap");
    let set = setcap.arg("cap_net_raw+ep").arg(&program).status();
    if !set.is_ok_and(|status| status.success()) {
        return;
    }
    stage.run_file(&program).text();
    set_mode(stage.site.path(), 0o1777);
    stage.site.umsg(&["ls"]).text();
    let library = stage.library.as_str();
    let run = ["run", "--", program.to_str().unwrap()];
    let outcome = stage
        .site
        .umsg_as_nobody_with(&run, &[("UMSG_PRELOAD", library)])
        .unwrap();
    outcome.fails(120, &["it has file capabilities, so"]);
}

#[test]
fn a_program_for_another_machine_is_refused() {
    let stage = Stage::new();
    let mut header = std::fs::read("/bin/true").unwrap();
    // e_machine: s390
    header[18..20].copy_from_slice(&[22, 0]);
    let program = stage.workshop.path("foreign");
    std::fs::write(&program, header).unwrap();
    set_mode(&program, 0o755);
    stage
        .run_file(&program)
        .fails(120, &["it is for machine 22 (64-bit) and this umsg for "]);
}

#[test]
fn a_program_of_another_c_library_is_refused() {
    let stage = Stage::new();
    let linker = "-Wl,--dynamic-linker=/lib/ld-musl-x86_64.so.1";
    let program = stage
        .workshop
        .compile("musl", "int main(void) { return 0; }", &[linker]);
    stage
        .run_file(&program)
        .fails(120, &["it is loaded by /lib/ld-musl-x86_64.so.1, "]);
}

#[test]
fn a_script_stands_or_falls_with_its_interpreter() {
    let stage = Stage::new();
    let script = stage
        .workshop
        .script("good", "#!/bin/sh\necho \"$LD_PRELOAD\"\n");
    assert_eq!(
        stage.run_file(&script).text(),
        format!("{}\n", stage.library)
    );
    let script = stage.workshop.script("plain", "echo no first line\n");
    assert_eq!(stage.run_file(&script).text(), "no first line\n");
    let script = stage.workshop.script("lost", "#!/no/such/interpreter\n");
    stage.run_file(&script).fails(
        126,
        &["it needs the interpreter /no/such/interpreter, which does not exist; "],
    );
    let source = "int main(void) { return 0; }";
    let Some(interpreter) = stage.workshop.try_compile("static", source, &["-static"]) else {
        return;
    };
    let interpreter = interpreter.display();
    let script = stage
        .workshop
        .script("bad", &format!("#!{interpreter} -x\n"));
    let expected = format!("can't be intercepted: {interpreter} is statically linked");
    stage.run_file(&script).fails(120, &[&expected]);
    let script = stage
        .workshop
        .script("env", &format!("#!/usr/bin/env {interpreter}\n"));
    stage.run_file(&script).fails(120, &[&expected]);
}

#[test]
fn a_script_that_is_its_own_interpreter_ends() {
    let stage = Stage::new();
    let path = stage.workshop.path("self");
    let script = stage
        .workshop
        .script("self", &format!("#!{}\n", path.display()));
    stage.run_file(&script).fails(126, &["can't be executed"]);
}

#[test]
fn an_unmodified_program_runs_on_umsgs_queues() {
    const SOURCE: &str = r#"
        #include <fcntl.h>
        #include <mqueue.h>
        #include <string.h>
        int main(int argc, char **argv) {
            struct mq_attr attr = { .mq_maxmsg = 65528, .mq_msgsize = 16 };
            mqd_t queue = mq_open("/from-c", O_RDWR | O_CREAT | O_EXCL, 0600, &attr);
            if (queue == (mqd_t)-1) return 1;
            for (int i = 1; i < argc; i++)
                if (mq_send(queue, argv[i], strlen(argv[i]), i)) return 2;
            return 0;
        }"#;
    let (site, workshop) = (Site::new(), Workshop::new());
    let program = workshop.compile("sender", SOURCE, &["-lrt"]);
    let run = ["run", "--", program.to_str().unwrap(), "hello", "world"];
    let outcome = finish(site.command(&run).env("UMSG_PRELOAD", drop_in()), b"");
    assert_eq!(outcome.text(), "");
    let queue = site.umsg(&["stat", "/from-c", "--json"]).json();
    assert_eq!(
        (&queue["max_messages"], &queue["messages"]),
        (&65_528.into(), &2.into())
    );
    assert_eq!(
        site.umsg(&["recv", "/from-c", "--all"]).text(),
        "world\nhello\n"
    );
}

#[test]
fn a_program_is_the_last_user_of_a_queue_that_goes_as_long_as_it_has_a_descriptor() {
    const SOURCE: &str = r#"
        #define _GNU_SOURCE
        #include <errno.h>
        #include <fcntl.h>
        #include <mqueue.h>
        #include <unistd.h>
        #define CHECK(that) if (!(that)) return __LINE__
        static int is_there(void)
        {
            mqd_t queue = mq_open("/goes", O_RDONLY);
            return queue != (mqd_t)-1 && mq_close(queue) == 0;
        }
        int main(int count, char **arguments)
        {
            struct mq_attr attributes;
            mqd_t first, second;
            if (count > 1) {
                // What was inherited.
                CHECK(mq_getattr(3, &attributes) == 0 && attributes.mq_curmsgs == 1);
                CHECK(mq_close(3) == 0 && !is_there() && errno == ENOENT);
                return 0;
            }
            first = mq_open("/goes", O_RDWR);
            second = mq_open("/goes", O_RDONLY);
            CHECK(first == 3 && second == 4 && mq_send(first, "x", 1, 0) == 0);
            CHECK(mq_close(second) == 0);
            CHECK(dup(first) == 4 && mq_close(first) == 0 && dup2(4, 3) == 3);
            CHECK(close_range(4, ~0U, 0) == 0 && is_there());
            execl(arguments[0], arguments[0], "again", (char *)0);
            return 100;
        }"#;
    let (site, workshop) = (Site::new(), Workshop::new());
    let program = workshop.compile("goes", SOURCE, &["-lrt"]);
    site.umsg(&["create", "/goes", "--remove-on-last-close"])
        .text();
    let run = ["run", "--", program.to_str().unwrap()];
    let outcome = finish(site.command(&run).env("UMSG_PRELOAD", drop_in()), b"");
    assert_eq!(outcome.text(), "");
    assert_eq!(site.umsg(&["ls", "--quiet"]).text(), "");
}

#[test]
fn a_program_waits_as_umsg_run_was_told() {
    const SOURCE: &str = r#"
        #include <fcntl.h>
        #include <mqueue.h>
        #include <stdio.h>
        #include <time.h>
        int main(void) {
            struct mq_attr attr = { .mq_maxmsg = 1, .mq_msgsize = 1 };
            mqd_t queue = mq_open("/empty", O_RDONLY | O_CREAT, 0600, &attr);
            struct timespec end;
            clock_gettime(CLOCK_REALTIME, &end);
            end.tv_sec += 1;
            char byte;
            clock_t before = clock();
            mq_timedreceive(queue, &byte, 1, NULL, &end);
            printf("%ld", (long)(clock() - before));
            return 0;
        }"#;
    let (site, workshop) = (Site::new(), Workshop::new());
    let program = workshop.compile("waiter", SOURCE, &["-lrt"]);
    let library = drop_in();
    let cpu_time = |how: &str| -> u64 {
        let run = ["run", "--wait", how, "--", program.to_str().unwrap()];
        let outcome = finish(site.command(&run).env("UMSG_PRELOAD", &library), b"");
        outcome.text().parse().unwrap()
    };
    // A spinner uses what CPU time it gets in that second; a sleeper wakes up ten times.
    let (blocking, spinning) = (cpu_time("blocking"), cpu_time("spinning"));
    assert!(spinning > 3 * blocking, "{spinning} µs, {blocking} µs");
}
