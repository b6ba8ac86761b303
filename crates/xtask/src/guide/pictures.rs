//! The pictures of `umsg top` in the guide: of a real terminal, with queues in use.
//!
//! Ages and rates differ each time. So the checkout has pictures that `--pictures` has made, and each check makes all of them again, in the target
//! directory.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use super::svg::{self, Theme};
use crate::failure::{Context as _, Failure, Result};
use crate::workspace::Workspace;
use crate::{interrupt, programs};

/// The script that creates the queues and their messages.
const QUEUES: &str = r#"set -e
umsg create /orders.new --max-messages 1000
umsg create /orders.paid --max-messages 100
umsg create /mail.out --max-messages 200 --max-deliveries 1 --dead-letter /mail.failed
umsg create /mail.in
umsg create /telemetry --max-messages 500
umsg create key:0x2a
seq -f 'order %.0f' 420 | umsg send /orders.new --lines
seq -f 'urgent order %.0f' 130 | umsg send /orders.new --lines --priority 9
seq -f 'bill %.0f' 70 | umsg send /orders.paid --lines
seq -f 'urgent bill %.0f' 30 | umsg send /orders.paid --lines --priority 5
seq -f 'to ann%.0f@example.com' 3 | umsg send /mail.out --lines
umsg recv /mail.out --all --exec false || true
seq -f 'to bob%.0f@example.com' 17 | umsg send /mail.out --lines
seq 5 | umsg send key:0x2a --lines --type 3
seq 2 | umsg send key:0x2a --lines --type 8
"#;
/// The processes that use the queues. They end with their input, or are killed.
const USERS: &str = r#"
umsg send /orders.paid 'one bill more' &
umsg recv /mail.in &
umsg recv /telemetry --follow > /dev/null &
while sleep 0.05; do seq 120; done | umsg send /telemetry --lines &
wait
"#;
/// The time after which the users end in any case.
const LONGEST: &str = "120";
const PATIENCE: Duration = Duration::from_secs(60);

/// A picture: the keys that lead to its screen, and texts that are on the screen.
struct Picture {
    file: &'static str,
    title: &'static str,
    size: (usize, usize),
    arguments: &'static [&'static str],
    keys: &'static [&'static str],
    shows: &'static [&'static str],
    theme: &'static Theme,
}

const PICTURES: [Picture; 4] = [
    Picture {
        file: "top-list.svg",
        title: "umsg top: the list of all queues",
        size: (100, 14),
        arguments: &["--colors", "dark"],
        keys: &[],
        shows: &["/telemetry", "key:0x0000002a", "100%"],
        theme: &svg::DARK,
    },
    Picture {
        file: "top-tree.svg",
        title: "umsg top: the tree of names, on a wide light screen",
        size: (160, 14),
        arguments: &["--colors", "light", "--tree", "--sort", "messages"],
        keys: &[],
        shows: &["/orders.*", "/mail.*", "STATE"],
        theme: &svg::LIGHT,
    },
    Picture {
        file: "top-detail.svg",
        title: "umsg top: the details of a queue",
        size: (100, 26),
        arguments: &["--colors", "dark", "--match", "/orders*"],
        keys: &["End", "Enter"],
        shows: &[
            "/orders.paid  POSIX queue",
            "Messages by priority",
            "to send for",
        ],
        theme: &svg::DARK,
    },
    Picture {
        file: "top-messages.svg",
        title: "umsg top: dead letters, and the question before one is sent back",
        size: (100, 14),
        arguments: &["--colors", "dark", "--match", "/mail.failed"],
        keys: &["m", "Down", "R"],
        shows: &["3 messages, copied", "(undelivered)", "Confirm"],
        theme: &svg::DARK,
    },
];

/// Makes all pictures, in the guide or in the target directory.
pub fn make(workspace: &Workspace, for_the_guide: bool) -> Result<Vec<String>> {
    let Some(tmux) = programs::tmux() else {
        println!("The pictures are not made, because tmux is not installed.");
        let is_required = std::env::var_os("CI").is_some() || for_the_guide;
        return Ok(is_required
            .then(|| "tmux is missing".into())
            .into_iter()
            .collect());
    };
    let directory = match for_the_guide {
        true => workspace.root.join("docs/guide"),
        false => workspace.target.join("pictures"),
    };
    fs::create_dir_all(&directory).context(directory.display())?;
    let stage = Stage::set(workspace, tmux)?;
    for picture in &PICTURES {
        let screen = stage.screen(picture)?;
        let svg = svg::picture(&screen, picture.size.0, picture.theme, picture.title);
        let path = directory.join(picture.file);
        fs::write(&path, svg).context(path.display())?;
        println!("{}", path.display());
    }
    Ok(vec![])
}

/// A namespace with queues in use.
struct Stage {
    tmux: PathBuf,
    program: PathBuf,
    namespace: TempDir,
    home: TempDir,
    users: Option<std::process::Child>,
}

impl Stage {
    fn set(workspace: &Workspace, tmux: PathBuf) -> Result<Stage> {
        let status = interrupt::run(&mut workspace.cargo(&["build", "--quiet", "-p", "umsg-cli"]))?;
        if !status.success() {
            return Err(Failure::new("the command is not built"));
        }
        let namespace = tempfile::Builder::new()
            .prefix("umsg-pictures-")
            .tempdir_in("/dev/shm");
        let mut stage = Stage {
            tmux,
            program: workspace.target.join("debug/umsg"),
            namespace: namespace.context("a namespace")?,
            home: tempfile::tempdir().context("a directory")?,
            users: None,
        };
        let prepared = interrupt::output(&mut stage.bash(&["bash", "-c", QUEUES]))?;
        if !prepared.status.success() {
            let said = String::from_utf8_lossy(&prepared.stderr).into_owned();
            return Err(Failure::new(format!("the queues of the pictures: {said}")));
        }
        // `timeout` makes a process group, and ends all processes of the group.
        let mut users = stage.bash(&["timeout", LONGEST, "bash", "-c", USERS]);
        let null = std::process::Stdio::null;
        users.stdin(null()).stdout(null()).stderr(null());
        stage.users = Some(users.spawn().context("timeout")?);
        Ok(stage)
    }

    /// Returns a command that uses this namespace, and has `umsg` in its path.
    fn bash(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(arguments[0]);
        command.args(&arguments[1..]);
        let path = std::env::var("PATH").unwrap_or_default();
        let own = self.program.parent().unwrap_or(Path::new(".")).display();
        command.env("PATH", format!("{own}:{path}"));
        command.env("UMSG_DIR", self.namespace.path());
        command
    }

    fn tmux(&self, arguments: &[&str]) -> Command {
        let tmux = self.tmux.to_string_lossy();
        let mut command = self.bash(&[&tmux, "-u", "-f", "/dev/null", "-S"]);
        command.arg(self.home.path().join("socket")).args(arguments);
        command
            .env_remove("TMUX")
            .env_remove("LC_ALL")
            .env("LANG", "C.UTF-8");
        command
    }

    fn run(&self, arguments: &[&str]) -> Result<String> {
        let output = interrupt::output(&mut self.tmux(arguments))?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            return Err(Failure::new(format!(
                "tmux {}: {said}",
                arguments.join(" ")
            )));
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Starts `umsg top`, presses the keys of the picture, and returns the screen with its colours.
    fn screen(&self, picture: &Picture) -> Result<String> {
        let (width, height) = (picture.size.0.to_string(), picture.size.1.to_string());
        let new = [
            "new-session",
            "-d",
            "-x",
            &width,
            "-y",
            &height,
            "umsg",
            "top",
            "--every",
            "200ms",
        ];
        self.run(&[&new[..], picture.arguments].concat())?;
        // The trend becomes a curve after some refreshes.
        let is_curve = |c: &char| ('▁'..='▇').contains(c);
        self.wait("a trend", |screen| {
            let mut lines = screen.lines().skip(3);
            lines.any(|line| line.chars().filter(is_curve).count() > 6)
        })?;
        for key in picture.keys {
            let before = self.run(&["capture-pane", "-p"])?;
            self.run(&["send-keys", key])?;
            self.wait(key, |screen| screen != before)?;
        }
        self.wait(picture.file, |screen| {
            picture.shows.iter().all(|part| screen.contains(part))
        })?;
        let screen = self.run(&["capture-pane", "-p", "-e"])?;
        self.run(&["kill-session"])?;
        // The picture shows the usual path of a namespace, in place of the longer one of this namespace.
        let path = self.namespace.path().to_string_lossy().into_owned();
        let plain = "/dev/shm/umsg-1000";
        let spaces = " ".repeat(path.len().saturating_sub(plain.len()));
        Ok(screen.replacen(&format!("{path}  "), &format!("{plain}  {spaces}"), 1))
    }

    fn wait(&self, what: &str, holds: impl Fn(&str) -> bool) -> Result<()> {
        let begin = Instant::now();
        loop {
            let screen = self.run(&["capture-pane", "-p"])?;
            if holds(&screen) {
                return Ok(());
            }
            if begin.elapsed() > PATIENCE {
                return Err(Failure::new(format!(
                    "{what} is not on the screen:\n{screen}"
                )));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        let _ = self.tmux(&["kill-server"]).output();
        if let Some(users) = &mut self.users {
            // `timeout` passes the signal on to its group.
            let pid = users.id().cast_signed();
            if let Some(pid) = rustix::process::Pid::from_raw(pid) {
                let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
            }
            let _ = users.wait();
        }
    }
}
