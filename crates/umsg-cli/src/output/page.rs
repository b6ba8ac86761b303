//! Generates manual pages from the definition of the command line: the text of `--help` in the sections and layout of man-pages(7).

use std::io::{self, Write};

use clap::{Arg, ArgAction, Command};
use clap_mangen::Man;
use clap_mangen::roff::{Inline, Roff, bold, italic, roman};

/// The exit codes for the pages of commands whose help has no section about exit codes.
const EXIT_CODES: &str = "\
Exit codes:
  0    done
  1    failed; one line on standard error gives the reason and what to do
  2    the command line is wrong";
const ENVIRONMENT: &str = "\
Environment:
  UMSG_DIR     the directory that holds the queues, unless --dir is given; see
               umsg(1) for the default";

pub fn file_name(command: &Command) -> String {
    format!("{}.1", name(command))
}

fn name(command: &Command) -> &str {
    command
        .get_display_name()
        .unwrap_or_else(|| command.get_name())
}

/// Writes the page of a command. `Command::build` must have been called.
pub fn write(command: &Command, out: &mut impl Write) -> io::Result<()> {
    let version = command.get_version().unwrap_or_default();
    let man = Man::new(command.clone())
        .source(format!("umsg {version}"))
        .manual("umsg");
    man.render_title(out)?;
    man.render_name_section(out)?;
    synopsis(command).to_writer(out)?;
    man.render_description_section(out)?;
    man.render_options_section(out)?;
    if command.has_subcommands() {
        man.render_subcommands_section(out)?;
    }
    sections(command).to_writer(out)
}

fn synopsis(command: &Command) -> Roff {
    let mut roff = Roff::new();
    roff.control("SH", ["SYNOPSIS"]);
    let mut line = vec![bold(command.get_bin_name().unwrap_or(name(command)))];
    let shown = || {
        command
            .get_arguments()
            .filter(|arg| !is_about_itself(arg) && !arg.is_hide_set())
    };
    for argument in shown().filter(|arg| !arg.is_positional()) {
        line.push(roman(" "));
        option(&mut line, argument);
    }
    for argument in shown().filter(|arg| arg.is_positional()) {
        line.push(roman(" "));
        positional(&mut line, argument);
    }
    if command.has_subcommands() {
        line.extend([roman(" "), italic("COMMAND"), roman(" ...")]);
    }
    roff.text(line);
    roff
}

/// Returns whether an option is one of the options of all commands, `--help` and `--version`.
fn is_about_itself(argument: &Arg) -> bool {
    matches!(
        argument.get_action(),
        ArgAction::Help | ArgAction::HelpShort | ArgAction::HelpLong | ArgAction::Version
    )
}

fn option(line: &mut Vec<Inline>, argument: &Arg) {
    line.push(roman("["));
    if let Some(short) = argument.get_short() {
        line.extend([bold(format!("-{short}")), roman("|")]);
    }
    line.push(bold(format!(
        "--{}",
        argument.get_long().unwrap_or_default()
    )));
    if argument.get_action().takes_values() {
        line.extend([roman(" "), italic(values(argument))]);
        if argument.get_num_args().is_some_and(|n| n.max_values() > 1) {
            line.push(roman("..."));
        }
    }
    line.push(roman("]"));
}

fn positional(line: &mut Vec<Inline>, argument: &Arg) {
    let many = argument.get_num_args().is_some_and(|n| n.max_values() > 1);
    let value = italic(values(argument));
    let dots = roman(if many { "..." } else { "" });
    match argument.is_required_set() {
        true => line.extend([value, dots]),
        false => line.extend([roman("["), value, dots, roman("]")]),
    }
}

fn values(argument: &Arg) -> String {
    let names = argument.get_value_names().unwrap_or_default();
    names.join(" ")
}

/// Returns the sections that follow the options. In the help, a section is a line `Heading:` at the left margin, and lines that are indented by two.
fn sections(command: &Command) -> Roff {
    let mut roff = Roff::new();
    let after = command
        .get_after_long_help()
        .or_else(|| command.get_after_help());
    let after = after.map(ToString::to_string).unwrap_or_default();
    let missing = [EXIT_CODES, ENVIRONMENT].into_iter().filter(|common| {
        let heading = common.lines().next().unwrap_or_default();
        !after.lines().any(|line| line == heading)
    });
    for text in [after.as_str()].into_iter().chain(missing) {
        for (heading, lines) in parts(text) {
            section(&mut roff, heading, &lines);
        }
    }
    roff.control("SH", ["SEE ALSO"]);
    let other = match command.has_subcommands() {
        true => roman(", mq_overview(7)"),
        false => roman(", umsg(1)"),
    };
    roff.text([roman(related(command.get_name())), other]);
    roff
}

fn related(command: &str) -> &'static str {
    match command {
        "run" => "ld.so(8), umsg-ls(1)",
        "create" => "umsg-rm(1), umsg-limits(1), mq_open(3)",
        "rm" => "umsg-create(1), umsg-ls(1), mq_unlink(3)",
        "close" => "umsg-send(1), umsg-recv(1), umsg-stat(1)",
        "gc" => "umsg-rm(1), umsg-ls(1)",
        "doctor" => "umsg-stat(1), umsg-rm(1)",
        "ls" => "umsg-stat(1), umsg-peek(1)",
        "who" => "umsg-stat(1), umsg-doctor(1), fuser(1)",
        "stat" => "umsg-ls(1), umsg-peek(1), mq_getattr(3)",
        "send" => "umsg-recv(1), mq_send(3)",
        "recv" => "umsg-send(1), umsg-peek(1), mq_receive(3)",
        "peek" => "umsg-recv(1), umsg-stat(1)",
        "dump" => "umsg-load(1), umsg-peek(1)",
        "load" => "umsg-dump(1), umsg-create(1)",
        "watch" => "umsg-peek(1), umsg-recv(1), hexdump(1)",
        "bench-queue" => "umsg-stat(1), umsg-create(1)",
        "metrics" => "umsg-stat(1), umsg-ls(1)",
        "limits" => "umsg-create(1), umsg-setup(1)",
        "setup" => "umsg-limits(1), tmpfiles.d(5)",
        "completions" => "umsg-man(1)",
        "man" => "umsg-completions(1), man(1)",
        _ => "umsg-run(1), umsg-create(1), umsg-limits(1)",
    }
}

/// Splits the help into headings and their lines, without the indent.
fn parts(text: &str) -> Vec<(&str, Vec<&str>)> {
    let mut parts: Vec<(&str, Vec<&str>)> = Vec::new();
    for line in text.lines() {
        match (line.strip_prefix("  "), parts.last_mut()) {
            (Some(line), Some((_, lines))) => lines.push(line),
            _ if line.ends_with(':') => parts.push((line.trim_end_matches(':'), Vec::new())),
            _ => {}
        }
    }
    parts
}

fn section(roff: &mut Roff, heading: &str, lines: &[&str]) {
    let heading = match heading {
        "Exit codes" => "EXIT STATUS".to_owned(),
        other => other.to_uppercase(),
    };
    roff.control("SH", [heading.as_str()]);
    if heading == "EXAMPLES" {
        roff.control("EX", []);
        for line in lines {
            roff.text([roman(*line)]);
        }
        roff.control("EE", []);
        return;
    }
    for line in lines {
        match line.split_once("  ") {
            // A row of a table: a term and its meaning.
            Some((what, meaning)) if !what.is_empty() => {
                roff.control("TP", []);
                roff.text([bold(what)]);
                roff.text([roman(meaning.trim_start())]);
            }
            _ => {
                let text = line.trim_start();
                // A sentence after the rows of a table.
                if text.len() == line.len() && heading == "EXIT STATUS" {
                    roff.control("PP", []);
                }
                roff.text([roman(text)]);
            }
        }
    }
}
