//! A real terminal: a pane of tmux, with a tmux server for each test.

use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use tempfile::TempDir;
use umsg_testkit::run::{finish, on_the_path, succeed};

use super::support::Site;

/// The time after which a wait fails the test.
const PATIENCE: Duration = Duration::from_secs(120);

/// A terminal in which `umsg top` runs. The terminal is closed at the end of the test.
pub struct Terminal {
    home: TempDir,
}

/// Returns whether the test is skipped because there is no terminal. CI always has one.
pub fn is_missing() -> bool {
    let is_missing = on_the_path("tmux").is_none();
    assert!(
        !is_missing || std::env::var_os("CI").is_none(),
        "tmux is missing (apt-get install tmux)"
    );
    if is_missing {
        eprintln!("skipped: tmux is missing (apt-get install tmux)");
    }
    is_missing
}

impl Terminal {
    /// Starts the command in a terminal of this width and height.
    pub fn start(site: &Site, size: (u16, u16), arguments: &[&str]) -> Terminal {
        Terminal::start_with(site, size, arguments, &[])
    }

    /// Starts the command with further variables in its environment.
    pub fn start_with(
        site: &Site,
        (width, height): (u16, u16),
        arguments: &[&str],
        variables: &[(&str, &str)],
    ) -> Terminal {
        let home = tempfile::tempdir().unwrap();
        let terminal = Terminal { home };
        let mut command = terminal.tmux(&["new-session", "-d"]);
        // The pane inherits the environment of the tmux server.
        command.env("UMSG_DIR", site.path()).env("LANG", "C.UTF-8");
        for variable in ["LC_ALL", "LC_CTYPE", "NO_COLOR", "COLORFGBG"] {
            command.env_remove(variable);
        }
        command.envs(variables.iter().copied());
        command.args(["-x", &width.to_string(), "-y", &height.to_string()]);
        // The shell writes the exit code to a file: tmux may miss the end of a process, and then never learns the code.
        let script = "\"$@\"; echo $? > \"$0\"";
        command.args(["sh", "-c", script]).arg(terminal.code());
        command.args([env!("CARGO_BIN_EXE_umsg"), "top"]);
        command.args(arguments);
        command.args([";", "set-option", "-g", "remain-on-exit", "on"]);
        succeed(&mut command);
        terminal
    }

    fn tmux(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new("tmux");
        command.env_remove("TMUX").args(["-u", "-f", "/dev/null"]);
        command.arg("-S").arg(self.home.path().join("socket"));
        command.args(arguments);
        command
    }

    /// Presses keys, named as in tmux.
    pub fn press(&self, keys: &[&str]) {
        succeed(&mut self.tmux(&[&["send-keys"], keys].concat()));
    }

    /// Types a text, or a sequence that a terminal sends.
    pub fn send(&self, text: &str) {
        succeed(&mut self.tmux(&["send-keys", "-l", text]));
    }

    /// Clicks at a character. The columns and rows are counted from 0.
    pub fn click(&self, column: u16, row: u16) {
        self.send(&format!("\x1b[<0;{};{}M", column + 1, row + 1));
    }

    pub fn resize(&self, width: u16, height: u16) {
        let (width, height) = (width.to_string(), height.to_string());
        let resize = ["resize-window", "-x", &width, "-y", &height];
        succeed(&mut self.tmux(&resize));
    }

    /// Returns the screen as text.
    pub fn screen(&self) -> String {
        succeed(&mut self.tmux(&["capture-pane", "-p"]))
    }

    /// Returns the screen with its colours.
    pub fn painted(&self) -> String {
        succeed(&mut self.tmux(&["capture-pane", "-p", "-e"]))
    }

    /// Waits until the screen meets a condition, and returns the screen.
    #[track_caller]
    pub fn until(&self, what: &str, holds: impl Fn(&str) -> bool) -> String {
        let begin = Instant::now();
        loop {
            let screen = self.screen();
            if holds(&screen) {
                return screen;
            }
            assert!(
                begin.elapsed() < PATIENCE,
                "not in time: {what}\n{screen}\n{:?}",
                self.ended()
            );
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Waits until the screen shows all these texts.
    #[track_caller]
    pub fn shows(&self, parts: &[&str]) -> String {
        let has_all = |screen: &str| parts.iter().all(|part| screen.contains(part));
        self.until(&format!("{parts:?}"), has_all)
    }

    /// Waits until the screen shows none of these texts.
    #[track_caller]
    pub fn hides(&self, parts: &[&str]) -> String {
        let has_none = |screen: &str| parts.iter().all(|part| !screen.contains(part));
        self.until(&format!("without {parts:?}"), has_none)
    }

    /// Returns the value of a tmux variable for the pane.
    pub fn value(&self, name: &str) -> String {
        let format = format!("#{{{name}}}");
        let value = succeed(&mut self.tmux(&["display-message", "-p", &format]));
        value.trim_end().to_owned()
    }

    /// Waits until tmux has restored the screen that it showed before the command. The command's output may reach tmux after the command has ended.
    #[track_caller]
    pub fn gives_the_screen_back(&self) {
        let begin = Instant::now();
        while self.value("alternate_on") != "0" {
            assert!(begin.elapsed() < PATIENCE, "the screen is not given back");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Returns the file with the exit code of the command.
    fn code(&self) -> PathBuf {
        self.home.path().join("code")
    }

    /// Returns the exit code of the command, once it has ended.
    pub fn ended(&self) -> Option<i32> {
        let code = std::fs::read_to_string(self.code()).ok()?;
        code.trim_end().parse().ok()
    }

    /// Returns the process id of the command.
    pub fn process(&self) -> String {
        let shell = self.value("pane_pid");
        let children = format!("/proc/{shell}/task/{shell}/children");
        std::fs::read_to_string(children)
            .unwrap()
            .trim_end()
            .to_owned()
    }

    #[track_caller]
    pub fn ends(&self) -> i32 {
        let begin = Instant::now();
        loop {
            if let Some(code) = self.ended() {
                return code;
            }
            assert!(begin.elapsed() < PATIENCE, "goes on: {}", self.screen());
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // The end of the tmux server also ends the command.
        finish(&mut self.tmux(&["kill-server"]));
    }
}
