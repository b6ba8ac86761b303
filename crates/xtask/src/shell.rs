//! Command lines for display, as a user would type them.

use std::ffi::OsStr;
use std::path::Path;
use std::process::Command;

/// Returns the command in one line, with the variables that it sets, to be typed in the directory where it runs.
pub fn line(command: &Command) -> String {
    let variables = command.get_envs().map(|(name, value)| match value {
        Some(value) => format!("{}={}", name.to_string_lossy(), quoted(value)),
        None => format!("{}=", name.to_string_lossy()),
    });
    let words = command.get_args().map(quoted);
    variables
        .chain([program(command)])
        .chain(words)
        .collect::<Vec<_>>()
        .join(" ")
}

/// Returns the program: cargo by its bare name, any other program as the command names it.
fn program(command: &Command) -> String {
    let program = Path::new(command.get_program());
    match program.file_name() {
        Some(name) if name == "cargo" => "cargo".into(),
        _ => quoted(program.as_os_str()),
    }
}

fn quoted(word: &OsStr) -> String {
    let word = word.to_string_lossy();
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_=/.,:+@%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.into_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_reads_as_it_would_be_typed() {
        let mut command = Command::new("/opt/rust/bin/cargo");
        command
            .args(["test", "--lib", "it's"])
            .env("RUSTFLAGS", "--cfg loom");
        assert_eq!(
            line(&command),
            r"RUSTFLAGS='--cfg loom' cargo test --lib 'it'\''s'"
        );
    }
}
