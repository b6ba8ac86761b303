//! Checks the list from which `umsg completions` takes the options of this program.

use clap::{Arg, ArgAction, Command, CommandFactory};

/// Returns the line of an option: sub-command, long name, short name, value, possible values and help.
fn line(command: &str, arg: &Arg) -> Option<String> {
    let long = arg.get_long()?;
    let is_own = !["help", "version", "dir"].contains(&long) && !arg.is_hide_set();
    let takes_value = !matches!(arg.get_action(), ArgAction::SetTrue);
    let value = arg.get_value_names().filter(|_| takes_value);
    let value = value.map_or(String::new(), |names| names[0].to_string());
    let possible = match takes_value {
        true => arg.get_possible_values(),
        false => Vec::new(),
    };
    let possible: Vec<&str> = possible.iter().map(|value| value.get_name()).collect();
    let words = [
        command.to_owned(),
        long.to_owned(),
        arg.get_short().map(String::from).unwrap_or_default(),
        value,
        possible.join(","),
        arg.get_help().map(ToString::to_string).unwrap_or_default(),
    ];
    is_own.then(|| words.join("\t") + "\n")
}

fn listed(name: &str, command: &Command) -> String {
    let lines = command.get_arguments();
    lines.filter_map(|arg| line(name, arg)).collect()
}

#[test]
fn the_completions_of_umsg_have_all_options_of_this_program() {
    let whole = umsg_bridge::cli::Cli::command();
    let mut wanted = listed("", &whole);
    let mut names = Vec::new();
    for command in whole
        .get_subcommands()
        .filter(|command| !command.is_hide_set())
    {
        names.push(command.get_name());
        wanted += &listed(command.get_name(), command);
    }
    assert_eq!(
        names,
        ["run", "check", "status"],
        "see options.rs of umsg-cli"
    );
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../umsg-cli/src/commands/bridge/options.txt"
    );
    if std::env::var_os("UMSG_WRITE_LIST").is_some() {
        std::fs::write(path, &wanted).unwrap();
    }
    let found = std::fs::read_to_string(path).unwrap_or_default();
    assert!(
        found == wanted,
        "{path} is old: UMSG_WRITE_LIST=1 cargo test -p umsg-bridge --test completions\n{wanted}"
    );
}
