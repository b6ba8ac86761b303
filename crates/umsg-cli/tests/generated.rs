//! Tests the texts that are generated from the definition of the command line: help, manual pages, completions.

mod support;

use support::Site;

const COMMANDS: [&str; 23] = [
    "run",
    "create",
    "rm",
    "gc",
    "doctor",
    "ls",
    "stat",
    "who",
    "send",
    "recv",
    "peek",
    "watch",
    "top",
    "trace",
    "metrics",
    "bench-queue",
    "bridge",
    "dump",
    "load",
    "limits",
    "setup",
    "man",
    "completions",
];

#[test]
fn every_command_explains_itself_with_examples() {
    let site = Site::new();
    for command in COMMANDS {
        for help in ["-h", "--help"] {
            let outcome = site.umsg(&[command, help]);
            let (_, examples) = outcome.text().split_once("Examples:\n").unwrap();
            assert!(
                examples.contains(&format!("umsg {command}")),
                "{command} {help}: {examples}"
            );
        }
    }
}

#[test]
fn the_help_of_a_command_shows_neither_refused_options_nor_defaults_of_others() {
    let site = Site::new();
    for (command, shown) in [("run", false), ("setup", false), ("rm", true)] {
        let help = site.umsg(&[command, "--help"]);
        assert_eq!(help.text().contains("--as-owner"), shown, "{command}");
    }
    let help = site.umsg(&["setup", "--help"]);
    assert!(help.text().contains("[default: /dev/shm/umsg]"));
    assert!(!help.text().contains("$UMSG_DIR"), "setup ignores it");
}

#[test]
fn the_help_of_the_whole_explains_names_exit_codes_and_the_environment() {
    let site = Site::new();
    let help = site.umsg(&["--help"]);
    for part in [
        "Examples:",
        "Names:",
        "JSON:",
        "Exit codes:",
        "UMSG_DIR",
        "  3  ",
        "  4  ",
        "  5  ",
        "  120  ",
        "  127  ",
    ] {
        assert!(help.text().contains(part), "{part}");
    }
    for command in COMMANDS {
        assert!(
            help.text().contains(&format!("\n  {command} ")),
            "{command}"
        );
    }
}

#[test]
fn lines_of_help_fit_the_terminal() {
    let site = Site::new();
    for command in COMMANDS.map(Some).into_iter().chain([None]) {
        let arguments: Vec<&str> = command.into_iter().chain(["--help"]).collect();
        let mut help = site.command(&arguments);
        let outcome = support::finish(help.env("COLUMNS", "80"), b"");
        let longest = outcome
            .text()
            .lines()
            .map(|line| line.chars().count())
            .max();
        assert!(longest <= Some(80), "{command:?}: {longest:?}");
    }
}

#[test]
fn there_is_a_manual_page_for_each_command() {
    let site = Site::new();
    let directory = site.path().join("share/man1");
    site.umsg(&["man", directory.to_str().unwrap()]).text();
    let page = |name: String| std::fs::read_to_string(directory.join(name)).unwrap();
    for command in COMMANDS {
        let text = page(format!("umsg\\-{command}.1").replace('\\', ""));
        assert!(
            text.starts_with(".ie") || text.contains(".TH"),
            "{command}: {text}"
        );
        for section in [
            "SYNOPSIS",
            "OPTIONS",
            "EXAMPLES",
            "\"EXIT STATUS\"",
            "ENVIRONMENT",
        ] {
            assert!(
                text.contains(&format!("\n.SH {section}\n")),
                "{command}: {section}"
            );
        }
        assert!(text.contains("umsg(1)"), "{command}");
        assert!(!text.contains("EXTRA"), "{command}");
    }
    let whole = page("umsg.1".to_owned());
    assert_eq!(site.umsg(&["man"]).text(), whole);
    assert!(whole.contains(".TH umsg 1"));
    assert!(whole.ends_with("umsg\\-run(1), umsg\\-create(1), umsg\\-limits(1), mq_overview(7)\n"));
    assert!(page("umsg-gc.1".to_owned()).ends_with("umsg\\-rm(1), umsg\\-ls(1), umsg(1)\n"));
    assert!(page("umsg-doctor.1".to_owned()).contains("umsg\\-stat(1)"));
    for code in ["0", "1", "2", "3", "4", "120", "125", "126", "127"] {
        assert!(
            whole.contains(&format!("\n.TP\n\\fB{code}\\fR\n")),
            "{code}"
        );
    }
    let receive = page("umsg-recv.1".to_owned());
    assert!(
        receive.contains("[\\fB\\-c\\fR|\\fB\\-\\-count\\fR \\fIN\\fR]"),
        "{receive}"
    );
    site.umsg(&["man", "/dev/null/x"])
        .fails(1, &["umsg: /dev/null/x: ", "; choose another"]);
}

#[test]
fn every_shell_gets_completions_of_every_command() {
    let site = Site::new();
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let outcome = site.umsg(&["completions", shell]);
        for command in COMMANDS {
            assert!(outcome.text().contains(command), "{shell}: {command}");
        }
        assert!(outcome.text().contains("nonblocking"), "{shell}");
    }
}

#[test]
fn bash_completes_the_sub_commands_and_options_of_the_bridge() {
    let site = Site::new();
    let script = site.path().join("completions");
    std::fs::write(&script, site.umsg(&["completions", "bash"]).output).unwrap();
    for (words, wanted) in [
        ("umsg bridge st", "status\n"),
        ("umsg bridge check --off", "--offline\n"),
        ("umsg bridge --subject-by t", "type\n"),
        ("umsg bridge status --state", "--state-dir\n"),
    ] {
        let count = words.split(' ').count() - 1;
        let last = words.split(' ').next_back().unwrap();
        let before = words.split(' ').nth_back(1).unwrap();
        let text = format!(
            "source {}; COMP_WORDS=({words}); COMP_CWORD={count}; _umsg umsg {last} {before}; printf '%s\\n' \"${{COMPREPLY[@]}}\"",
            script.display()
        );
        let output = std::process::Command::new("bash")
            .args(["-c", &text])
            .output()
            .unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        let answer = String::from_utf8(output.stdout).unwrap();
        assert_eq!(answer, wanted, "{words}: {errors}");
    }
}

#[test]
fn bash_accepts_its_completions() {
    let site = Site::new();
    let script = site.umsg(&["completions", "bash"]);
    let check = std::process::Command::new("bash")
        .args(["-n", "/dev/stdin"])
        .stdin(std::process::Stdio::piped())
        .spawn();
    let mut check = check.unwrap();
    std::io::Write::write_all(&mut check.stdin.take().unwrap(), &script.output).unwrap();
    assert!(check.wait().unwrap().success());
}
