//! Tests programs that would not load the drop-in.

use super::*;

#[test]
fn a_static_program_without_a_supervisor_is_refused_unless_forced() {
    let stage = Stage::new();
    let source = "#include <stdio.h>\nint main(void) { puts(\"started\"); }";
    let Some(program) = stage.workshop.try_compile("static", source, &["-static"]) else {
        return;
    };
    let unsupervised = |program: &Path, option: &[&str]| {
        let words = ["--raw-syscalls=off", "--", program.to_str().unwrap()];
        stage.run(&[option, &words].concat())
    };
    let outcome = unsupervised(&program, &[]);
    outcome.fails(
        120,
        &[
            "can't be intercepted: the program is statically linked",
            ", or link the program dynamically",
        ],
    );
    assert!(outcome.output.is_empty());
    let forced = unsupervised(&program, &["--force"]);
    assert_eq!(forced.text(), "started\n");
    if let Some(pie) = stage
        .workshop
        .try_compile("static-pie", source, &["-static-pie"])
    {
        unsupervised(&pie, &[]).fails(120, &["statically linked"]);
    }
}

#[test]
fn a_program_that_gains_a_user_or_a_group_is_refused() {
    umsg_testkit::needs_root!();
    let stage = Stage::new();
    let program = stage.workshop.copy("/bin/true", "true");
    give_to(&program, NOBODY);
    set_mode(&program, 0o4755);
    stage.run_file(&program).fails(
        120,
        &[
            "can't be intercepted: the program is set-user-ID, so",
            "LD_PRELOAD; ",
        ],
    );
    set_mode(&program, 0o2755);
    stage
        .run_file(&program)
        .fails(120, &["the program is set-group-ID, so"]);
    // Without the group's x bit, the set-group-ID bit does not change the program's group. A set-user-ID program of the caller gains no privilege.
    set_mode(&program, 0o2745);
    stage.run_file(&program).text();
    give_to(&program, 0);
    set_mode(&program, 0o6755);
    stage.run_file(&program).text();
}

#[test]
fn a_program_with_file_capabilities_is_refused_to_users_that_gain_by_them() {
    umsg_testkit::needs_root!();
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
    outcome.fails(120, &["the program has file capabilities, so"]);
}

#[test]
fn a_program_for_another_machine_is_refused() {
    let stage = Stage::new();
    let mut header = std::fs::read("/bin/true").unwrap();
    // The field `e_machine` becomes 22: s390.
    header[18..20].copy_from_slice(&[22, 0]);
    let program = stage.workshop.path("foreign");
    std::fs::write(&program, header).unwrap();
    set_mode(&program, 0o755);
    stage.run_file(&program).fails(
        120,
        &["the program is for machine 22 (64-bit), and this umsg is for "],
    );
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
        .fails(120, &["the program needs /lib/ld-musl-x86_64.so.1, "]);
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
        &["the program needs the interpreter /no/such/interpreter, which does not exist; "],
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
    let unsupervised =
        |script: &Path| stage.run(&["--raw-syscalls=off", "--", script.to_str().unwrap()]);
    unsupervised(&script).fails(120, &[&expected]);
    let script = stage
        .workshop
        .script("env", &format!("#!/usr/bin/env {interpreter}\n"));
    unsupervised(&script).fails(120, &[&expected]);
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
