//! The commands of a page, as one script of bash: each block sees the variables, functions and queues of the blocks before it.

use std::fmt::Write as _;

use super::page::{Kind, Page};
use crate::failure::{Failure, Result};

/// The languages of blocks that are run.
pub const LANGUAGES: [&str; 3] = ["sh", "bash", "console"];
/// The beginnings of the comments that the module [`super`] explains.
pub const FILE: &str = "file:";
pub const NOT_RUN: &str = "not run:";
const RUN: &str = "run\n";
const NEEDS: &str = "needs:";

/// The script of a page, and the expected results of its steps.
pub struct Session {
    pub script: String,
    pub steps: Vec<Step>,
    /// Modules of Python that the page needs.
    pub needs: Vec<String>,
}

/// A block of `sh`, or a command of a block of `console`.
#[derive(Debug, PartialEq, Eq)]
pub struct Step {
    /// The number of the line at which the step begins in the page.
    pub line: usize,
    pub commands: String,
    /// The lines that the commands print; none for a block whose output the page does not show.
    pub output: Option<Vec<String>>,
}

impl Session {
    /// # Errors
    /// Fails if no block follows a comment that belongs to a block.
    pub fn of(page: &Page) -> Result<Session> {
        let mut session = Session {
            script: "trap 'failed=yes' ERR\n".into(),
            steps: vec![],
            needs: vec![],
        };
        let mut comment = None;
        for part in &page.parts {
            match &part.kind {
                Kind::Comment(text) => {
                    let is_for_a_block = text.starts_with(FILE) || text.starts_with(NOT_RUN);
                    if let Some(commands) = text.strip_prefix(RUN) {
                        session.add(part.line, commands, None);
                    } else if let Some(modules) = text.strip_prefix(NEEDS) {
                        let modules = modules.split_whitespace();
                        session.needs.extend(modules.map(String::from));
                    }
                    comment = is_for_a_block.then_some(text.as_str());
                }
                Kind::Block { info, .. } if info != "console" && !super::is_guide(page) => {}
                Kind::Block { info, text } => session.block(part.line, info, text, comment.take()),
            }
        }
        match comment {
            Some(text) => {
                let path = page.path.display();
                Err(Failure::new(format!(
                    "{path}: a comment before no block: {text}"
                )))
            }
            None => Ok(session),
        }
    }

    fn block(&mut self, line: usize, info: &str, text: &str, comment: Option<&str>) {
        if let Some(name) = comment.and_then(|comment| comment.strip_prefix(FILE)) {
            return self.file(name.trim(), text);
        }
        if comment.is_some() {
            return;
        }
        match info {
            "console" => {
                for (offset, commands, output) in transcript(text) {
                    self.add(line + 1 + offset, &commands, Some(output));
                }
            }
            "sh" | "bash" => self.add(line, text, None),
            _ => {}
        }
    }

    /// Makes the script write a file. The file is executable, because it may be a script, too.
    fn file(&mut self, name: &str, text: &str) {
        const END: &str = "END_OF_THE_FILE_OF_THE_GUIDE";
        let script = &mut self.script;
        let _ = writeln!(
            script,
            "cat > '{name}' <<'{END}'\n{text}{END}\nchmod +x '{name}'"
        );
    }

    fn add(&mut self, line: usize, commands: &str, output: Option<Vec<String>>) {
        let number = self.steps.len();
        let _ = writeln!(
            self.script,
            "failed=\n{{\n{commands}\n}} > \"$STEPS/{number}.out\" 2>&1 < /dev/null\necho \"$? $failed\" > \"$STEPS/{number}.end\""
        );
        self.steps.push(Step {
            line,
            commands: commands.trim().to_owned(),
            output,
        });
    }
}

/// Divides a transcript into commands and their output, each with the number of lines before it. A line that begins with `> ` continues a
/// command.
fn transcript(text: &str) -> Vec<(usize, String, Vec<String>)> {
    let mut steps: Vec<(usize, String, Vec<String>)> = vec![];
    for (number, line) in text.lines().enumerate() {
        if let Some(command) = line.strip_prefix("$ ") {
            steps.push((number, command.to_owned(), vec![]));
        } else if let Some((_, commands, output)) = steps.last_mut() {
            match line.strip_prefix("> ") {
                Some(more) if output.is_empty() => {
                    let _ = write!(commands, "\n{more}");
                }
                _ => output.push(line.to_owned()),
            }
        }
    }
    steps
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_becomes_steps_with_their_lines_and_outputs() {
        let text = "<!-- run\nbefore\n-->\n\n```console\n$ one\n$ two \\\n> more\nprinted\n```\n\n<!-- not run: why -->\n```sh\nnever\n```\n\n<!-- file: x -->\n```c\nint x;\n```\n\n```sh\nlast\n```\n";
        let session = Session::of(&Page::of("docs/guide/x.md".into(), text)).unwrap();
        let step = |line, commands: &str, output: Option<&[&str]>| Step {
            line,
            commands: commands.into(),
            output: output.map(|lines| lines.iter().map(|line| String::from(*line)).collect()),
        };
        let expected = [
            step(1, "before", None),
            step(6, "one", Some(&[])),
            step(7, "two \\\nmore", Some(&["printed"])),
            step(22, "last", None),
        ];
        assert_eq!(session.steps, expected);
        assert!(!session.script.contains("never"));
        assert!(
            session
                .script
                .contains("cat > 'x' <<'END_OF_THE_FILE_OF_THE_GUIDE'\nint x;\nEND")
        );
        assert!(
            Session::of(&Page::of(
                "docs/guide/x.md".into(),
                "<!-- file: x -->\n\nText.\n"
            ))
            .is_err()
        );
    }
}
