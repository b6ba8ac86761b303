//! The sub-commands and options of umsg-bridge, for completions. umsg-bridge is installed separately, so this program can't ask it for them.
//!
//! `options.txt` has a line for each option: sub-command, long name, short name, value, possible values and help, separated by tabs. A test of
//! umsg-bridge compares the file with the options that umsg-bridge defines.

use clap::{Arg, ArgAction, Command, ValueHint, builder::PossibleValuesParser};

const LIST: &str = include_str!("options.txt");

/// Replaces the arguments of `umsg bridge` by the options and sub-commands of umsg-bridge.
pub fn complete(bridge: Command) -> Command {
    let about = bridge.get_about().cloned().unwrap_or_default();
    let mut whole = Command::new("bridge").about(about);
    for (name, help) in [
        ("run", "Run the bridges; this subcommand is the default"),
        (
            "check",
            "Check the configuration, and say in words what it does",
        ),
        ("status", "Show the state of the bridges"),
    ] {
        let command = Command::new(name).about(help);
        whole = whole.subcommand(options(name).fold(command, Command::arg));
    }
    options("").fold(whole, Command::arg)
}

/// Returns the options of a sub-command. The name "" means the options without a sub-command.
fn options(name: &str) -> impl Iterator<Item = Arg> {
    let lines = LIST.lines().map(|line| line.split('\t'));
    lines.filter_map(move |mut words| {
        let mut next = || words.next();
        if next()? != name {
            return None;
        }
        let (long, short, value, possible) = (next()?, next()?, next()?, next()?);
        let mut arg = Arg::new(long).long(long).help(next()?);
        if let Some(short) = short.chars().next() {
            arg = arg.short(short);
        }
        if value.is_empty() {
            return Some(arg.action(ArgAction::SetTrue));
        }
        arg = arg.value_name(value).action(ArgAction::Append);
        Some(match (value, possible) {
            ("FILE", _) => arg.value_hint(ValueHint::FilePath),
            ("DIR", _) => arg.value_hint(ValueHint::DirPath),
            (_, "") => arg.value_hint(ValueHint::Other),
            _ => arg.value_parser(PossibleValuesParser::new(possible.split(','))),
        })
    })
}
