//! The first line of a script. Source: execve(2), "Interpreter scripts".

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// `#!interpreter argument`
#[derive(Debug, PartialEq, Eq)]
pub struct Line {
    pub interpreter: PathBuf,
    argument: Vec<u8>,
}

/// Parses the first bytes of a file. Returns None if these bytes name no interpreter.
pub fn interpreter(head: &[u8]) -> Option<Line> {
    let line = head.strip_prefix(b"#!")?;
    let line = line.split(|&byte| byte == b'\n').next()?.trim_ascii();
    let end = line
        .iter()
        .position(|&byte| is_blank(byte))
        .unwrap_or(line.len());
    let (interpreter, argument) = line.split_at(end);
    (!interpreter.is_empty()).then(|| Line {
        interpreter: OsStr::from_bytes(interpreter).into(),
        argument: argument.trim_ascii().to_owned(),
    })
}

impl Line {
    /// Returns the program that `#!/usr/bin/env program` runs: the first argument that is neither an option nor the setting of a variable.
    pub fn named_by_env(&self) -> Option<OsString> {
        if self.interpreter.file_name()? != "env" {
            return None;
        }
        self.argument
            .split(|&byte| is_blank(byte))
            .find(|word| !word.is_empty() && !word.starts_with(b"-") && !word.contains(&b'='))
            .map(|word| OsStr::from_bytes(word).to_owned())
    }
}

fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(head: &str) -> Option<(String, Option<String>)> {
        let line = interpreter(head.as_bytes())?;
        let named = line.named_by_env();
        Some((
            line.interpreter.display().to_string(),
            named.map(|name| name.into_string().unwrap()),
        ))
    }

    #[test]
    fn the_interpreter_is_the_first_word() {
        let sh = Some(("/bin/sh".to_owned(), None));
        for head in [
            "#!/bin/sh",
            "#!/bin/sh\necho",
            "#! \t/bin/sh -e x\n",
            "#!/bin/sh\r\n",
        ] {
            assert_eq!(read(head), sh, "{head:?}");
        }
        for head in ["", "#", "#!", "#! \n/bin/sh", "echo"] {
            assert_eq!(read(head), None, "{head:?}");
        }
    }

    #[test]
    fn env_runs_its_first_word_that_is_neither_option_nor_variable() {
        for head in [
            "#!/usr/bin/env python3\n",
            "#!/usr/bin/env -S A=1 python3 -u\n",
        ] {
            let expected = ("/usr/bin/env".to_owned(), Some("python3".to_owned()));
            assert_eq!(read(head), Some(expected), "{head:?}");
        }
    }
}
