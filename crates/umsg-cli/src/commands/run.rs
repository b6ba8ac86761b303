//! `umsg run`.

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

use clap::{Args, ValueEnum};
use umsg::Namespace;

use crate::cli::{Cli, OwnIdentity};
use crate::failure::{Code, Failure, Result};
use crate::output::text;
use crate::program::{self, Fault, Kind};
use crate::supervisor::{self, Home, Settings};
use crate::waiting::Wait;
use crate::{inherited, place, preload};

/// The environment variable that tells the drop-in how a program waits.
const WAIT: &str = "UMSG_WAIT";
/// The environment variable that has the default of `--raw-syscalls`.
const RAW: &str = "UMSG_RAW_SYSCALLS";

/// The programs for which a supervisor answers system calls.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum Raw {
    /// Supervise a statically linked program; leave other programs to the drop-in
    Auto,
    /// Supervise every program, and all programs that it starts
    On,
    /// Supervise no program; refuse a statically linked program
    Off,
}

impl Raw {
    fn name(self) -> &'static str {
        match self {
            Raw::Auto => "auto",
            Raw::On => "on",
            Raw::Off => "off",
        }
    }
}

/// The environment variable with the path of this command. The drop-in starts static programs by this command.
const RUN: &str = "UMSG_RUN";

/// The environment variable that decides whether /dev/mqueue shows the kernel's queues.
const DEV_MQUEUE: &str = "UMSG_DEV_MQUEUE";

/// The environment variable that has the default of `--supervised-files`.
const SUPERVISED_FILES: &str = "UMSG_SUPERVISED_FILES";

/// Run a program on umsg's queues instead of the kernel's
///
/// The command loads a library, the drop-in, into the program. The drop-in intercepts the program's calls on queues, such as mq_send and msgsnd, and
/// carries them out on umsg's queues. The drop-in also intercepts the calls of the programs that the program starts. The command appends the drop-in
/// to LD_PRELOAD, sets UMSG_DIR to the namespace's directory, and replaces itself with the program. So signals, open files and the exit code are
/// those of the program.
///
/// The system starts some programs without the drop-in: set-user-ID programs, programs with file capabilities, and programs for whose architecture or
/// C library no drop-in is installed. Such a program would silently use the kernel's queues, so the command refuses to start it. For a script, the
/// command checks the interpreter.
///
/// No library can be loaded into a statically linked program. The command starts a supervisor for such a program. The supervisor is a process that
/// gets the program's system calls on queues from the kernel (seccomp_unotify(2)), and carries them out on umsg's queues. The supervisor also serves
/// all programs that the program starts, and ends after the last of these programs. If a dynamic program executes a static program, the drop-in
/// starts a supervisor for the static program. With --raw-syscalls=off, the static program ends with exit code 120 instead. With --raw-syscalls=on, a
/// supervisor also serves a dynamic program, and intercepts system calls that the program makes without libc. If `umsg run` has no CAP_SYS_ADMIN and
/// a supervised program executes a set-user-ID program, the set-user-ID program runs with the rights of its caller. If the supervisor is killed, the
/// program's calls on queues fail with ENOSYS, and so do poll, select, epoll_ctl, execve, and calls that take a path, such as open. After the
/// supervisor's death, unshare and setns also fail, unless --ipc-namespaces=share was given.
///
/// The program sees umsg's queues in /dev/mqueue, even if the machine has no such directory. If a process moves to another IPC namespace, it uses the
/// queues of that namespace, which are in a subdirectory of UMSG_DIR. The subdirectory is removed by the last process in the IPC namespace, or by the
/// supervisor.
///
/// If the program registers for a notification by signal (mq_notify), the drop-in starts one more thread in the program. This thread raises the
/// signal if the sender can't raise it. The thread sleeps and masks all signals. The thread has two effects. First, the program no longer ends when
/// the last of its own threads calls pthread_exit(3). Second, calls that need a single-threaded process fail, such as unshare(2) of a user namespace.
#[derive(Args, Debug)]
#[command(
    override_usage = "umsg run [OPTIONS] [--] PROGRAM [ARGS]...",
    after_help = "\
Examples:
  umsg run -- ./server --port 80
  umsg run --wait spinning -- pmqtest -Sp99
  umsg run --dir /dev/shm/test -- python3 worker.py
  umsg run --raw-syscalls=on -- ./server

Exit codes:
  that of the program, or
  120  the program can't be intercepted
  125  umsg run failed before it could start the program
  126  the program can't be executed
  127  the program was not found

Environment:
  UMSG_DIR      the directory that holds the queues, unless --dir is given
  UMSG_PRELOAD  the path of the drop-in. By default, umsg looks for
                libumsg_preload.so in its own directory, ../lib, ../lib/umsg
                and ../lib/umsg/musl, and takes the first file that was built
                for the program's C library
  UMSG_WAIT     how the program waits, unless --wait is given
  UMSG_RAW_SYSCALLS
                auto, on or off, as for --raw-syscalls, unless that option is
                given
  UMSG_SUPERVISED_FILES
                on or off, as for --supervised-files, unless that option is
                given
  UMSG_DEBUG    1: the drop-in prints on standard error why calls failed
  UMSG_DEV_MQUEUE
                on or off, as for --dev-mqueue, unless that option is given
  UMSG_IPC_NAMESPACE
                the IPC namespace to which UMSG_DIR belongs, or `share` if all
                IPC namespaces use the queues in UMSG_DIR; `umsg run` sets it
  UMSG_RUN      the path of the command umsg, which the drop-in runs to start
                static programs; `umsg run` sets the variable
  LD_PRELOAD    other libraries; they are loaded before the drop-in"
)]
pub struct Run {
    /// The way in which the program waits for messages and for room [default: $UMSG_WAIT, else adaptive]
    #[arg(long, value_enum, value_name = "HOW")]
    wait: Option<Wait>,
    /// Whether /dev/mqueue shows umsg's queues (on) or the kernel's (off) [default: $UMSG_DEV_MQUEUE, else on]
    #[arg(long, value_enum, value_name = "on|off")]
    dev_mqueue: Option<Switch>,
    /// The queues of a process that moves to another IPC namespace (unshare, clone, setns) [default: share if $UMSG_IPC_NAMESPACE is `share`, else
    /// follow]
    #[arg(long, value_enum, value_name = "follow|share")]
    ipc_namespaces: Option<IpcNamespaces>,
    /// The programs that run under a supervisor [default: $UMSG_RAW_SYSCALLS, else auto]
    #[arg(long, value_enum, value_name = "WHEN")]
    raw_syscalls: Option<Raw>,
    /// Whether a supervised program sees umsg's /dev/mqueue, /proc/sysvipc/msg and limits in /proc/sys (on), or the kernel's (off). With on, each
    /// open, stat, access, unlink and rename of the program takes about 10 microseconds more [default: $UMSG_SUPERVISED_FILES, else on]
    #[arg(long, value_enum, value_name = "on|off")]
    supervised_files: Option<Switch>,
    /// Run the program even if it can't be intercepted. The programs that it starts are intercepted where possible
    #[arg(long)]
    force: bool,
    /// The program's argument 0, which the program takes for its own name
    // A login shell has a name such as -sh.
    #[arg(long, hide = true, value_name = "NAME", allow_hyphen_values = true)]
    argv0: Option<OsString>,
    /// Whether another command starts the program, which needs the drop-in
    #[arg(skip)]
    is_for_command: bool,
    #[command(flatten)]
    _own_identity: OwnIdentity,
    /// The program and its arguments; the command looks up a name without a slash in PATH
    #[arg(required = true, trailing_var_arg = true, value_name = "PROGRAM")]
    program: Vec<OsString>,
}

/// Whether a function of the drop-in or of the supervisor is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Switch {
    On,
    Off,
}

impl Switch {
    fn name(self) -> &'static str {
        match self {
            Switch::On => "on",
            Switch::Off => "off",
        }
    }
}

/// Which queues a process uses after it has moved to another IPC namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum IpcNamespaces {
    /// The process uses the queues of the new IPC namespace
    Follow,
    /// The process keeps its queues: all IPC namespaces share them
    Share,
}

impl Run {
    /// Returns the command `umsg run` without options, for a program into which the drop-in must be loaded.
    pub fn plain(program: &[OsString]) -> Run {
        Run {
            wait: None,
            raw_syscalls: None,
            supervised_files: None,
            argv0: None,
            is_for_command: true,
            dev_mqueue: None,
            ipc_namespaces: None,
            force: false,
            _own_identity: OwnIdentity::default(),
            program: program.to_vec(),
        }
    }

    pub fn perform(&self, cli: &Cli) -> Result {
        let (mut command, path) = self.prepare(cli)?;
        // `exec` returns only on failure.
        Err(self.not_executed(command.exec(), path))
    }

    /// Returns the program as a command with the drop-in in its environment, and the program's path.
    pub fn prepare(&self, cli: &Cli) -> Result<(Command, PathBuf)> {
        let (name, arguments) = self.program.split_first().ok_or(Failure::new(
            Code::Usage,
            "no program is named; use umsg run -- PROGRAM",
        ))?;
        let not_prepared = |failure: Failure| failure.coded(Code::NotPrepared);
        let wait = self.wait()?;
        let raw = self.raw()?;
        let files = self.supervised_files()?;
        let dev_mqueue = self.dev_mqueue()?;
        let namespace = place::namespace(cli).map_err(not_prepared)?;
        let libraries = preload::find().map_err(not_prepared)?;
        let path = program::find(name).map_err(|fault| self.failure(&fault))?;
        let library = libraries.suited_to(program::libc(&path));
        let is_supervised = match program::check(&path, &library.elf) {
            Ok(()) => raw == Raw::On,
            Err(fault) if fault.kind.is_supervisable() && raw != Raw::Off => true,
            Err(fault) if self.force && fault.kind.is_harmless() => raw == Raw::On,
            Err(fault) => return Err(self.failure(&fault)),
        };
        let mut command = Command::new(&path);
        command
            .arg0(self.argv0.as_ref().unwrap_or(name))
            .args(arguments);
        command.env("LD_PRELOAD", library.appended());
        if let Some(files) = self.supervised_files {
            command.env(SUPERVISED_FILES, files.name());
        }
        if let Some(raw) = self.raw_syscalls {
            command.env(RAW, raw.name());
        }
        // The drop-in needs no path of this command in two cases: a supervisor serves all children of the program anyway, or --force lets static
        // programs run without a supervisor.
        let leaves_static = is_supervised || self.force && raw == Raw::Off;
        match std::env::current_exe().ok().filter(|_| !leaves_static) {
            Some(own) => command.env(RUN, own),
            None => command.env_remove(RUN),
        };
        if let Some(wait) = wait {
            command.env(WAIT, wait.name());
        }
        match dev_mqueue {
            Switch::On => _ = command.env_remove(DEV_MQUEUE),
            Switch::Off => _ = command.env(DEV_MQUEUE, "off"),
        }
        let shares = match self.ipc_namespaces {
            Some(wish) => wish == IpcNamespaces::Share,
            None => !umsg::ipc::is_followed(),
        };
        let home = home(&namespace, shares);
        command.env("UMSG_DIR", &home.directory);
        command.env(umsg::ipc::shared().0, &home.ipc_namespace);
        if is_supervised {
            let settings = Settings {
                files: files == Switch::On,
                dev_mqueue: dev_mqueue == Switch::On,
                ipc_namespaces: !shares,
            };
            supervisor::begin(namespace.path(), &home, settings)
                .map_err(|fault| Failure::new(Code::NotPrepared, fault))?;
        }
        inherited::restore_on_exec(&mut command);
        Ok((command, path))
    }

    /// Returns the failure of an execution.
    pub fn not_executed(&self, error: io::Error, path: PathBuf) -> Failure {
        self.failure(&Kind::NotExecuted(error).of(path))
    }

    /// Returns the value of --wait, or else that of $UMSG_WAIT. Fails on an invalid value of the variable, which the drop-in would ignore.
    fn wait(&self) -> Result<Option<Wait>> {
        let choices = "adaptive, blocking or spinning";
        match self.wait {
            Some(wait) => Ok(Some(wait)),
            None => chosen(WAIT, Wait::name, choices),
        }
    }

    fn raw(&self) -> Result<Raw> {
        match self.raw_syscalls {
            _ if self.is_for_command => Ok(Raw::Off),
            Some(raw) => Ok(raw),
            None => Ok(chosen(RAW, Raw::name, "auto, on or off")?.unwrap_or(Raw::Auto)),
        }
    }

    fn supervised_files(&self) -> Result<Switch> {
        match self.supervised_files {
            Some(files) => Ok(files),
            None => Ok(chosen(SUPERVISED_FILES, Switch::name, "on or off")?.unwrap_or(Switch::On)),
        }
    }

    fn dev_mqueue(&self) -> Result<Switch> {
        match self.dev_mqueue {
            Some(shown) => Ok(shown),
            None => Ok(chosen(DEV_MQUEUE, Switch::name, "on or off")?.unwrap_or(Switch::On)),
        }
    }

    fn failure(&self, Fault { file, kind }: &Fault) -> Failure {
        let name = match self.program[0].is_empty() {
            true => "\"\"".to_owned(),
            false => text::on_one_line(self.program[0].as_bytes()),
        };
        let prevented = match kind.code() {
            Code::NotInterceptable => "can't be intercepted: ",
            _ => "",
        };
        let who = match file.as_os_str() == self.program[0] {
            true => "the program".to_owned(),
            false => file.display().to_string(),
        };
        Failure::new(kind.code(), format_args!("{name}: {prevented}{who} {kind}"))
    }
}

/// Returns the directory that the program gets, and the IPC namespace to which the directory belongs. The directory of an IPC namespace is removed
/// with the namespace. So if the program moves to another IPC namespace, the directory of the new one must not be inside the directory of the old
/// one.
fn home(namespace: &Namespace, shares: bool) -> Home {
    let (directory, ipc_namespace) = match umsg::ipc::base().filter(|_| !shares) {
        Some((directory, value)) => (directory, value),
        None => {
            let present = umsg::ipc::variable().filter(|_| !shares);
            let value =
                present.map_or_else(|| umsg::ipc::shared().1.to_owned(), |(_, value)| value);
            (namespace.path().to_owned(), value)
        }
    };
    Home {
        directory,
        ipc_namespace,
    }
}

/// Returns the value of an environment variable. None if the variable is unset or empty.
fn chosen<T: ValueEnum + Copy>(
    variable: &str,
    name: fn(T) -> &'static str,
    choices: &str,
) -> Result<Option<T>> {
    let value = std::env::var_os(variable).unwrap_or_default();
    if value.is_empty() {
        return Ok(None);
    }
    let mut known = T::value_variants().iter().copied();
    let line = format!(
        "{variable} is {}: choose {choices}, or unset it",
        text::on_one_line(value.as_bytes())
    );
    let found = known.find(|known| value == name(*known));
    found.map(Some).ok_or(Failure::new(Code::NotPrepared, line))
}
