//! A case that runs in a separate process, so that its C calls reach either the kernel or the drop-in.
//!
//! ```text
//!  worker ──exec──▶ umsg-bench trial kernel ...                      mq_open(3) of libc
//!         ──exec──▶ umsg-bench trial dropin ...   with LD_PRELOAD    mq_open(3) of the drop-in
//!         ──exec──▶ umsg run ... umsg-bench trial supervised ...     mq_open(3) of libc, whose system calls a supervisor answers
//! ```
//!
//! A trial measures one case and writes its figures to standard output, as a JSON array. A failed trial writes the reason to
//! standard error.

use std::ffi::CStr;
use std::io::Write as _;
use std::mem::MaybeUninit;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};
use std::time::Duration;

use clap::{Args, ValueEnum};

use crate::failure::Failure;
use crate::harness::Plan;
use crate::suite::Suite;
use crate::{machine, suites, supervisor};

/// The time by which a trial may exceed its budget. After this time, the trial ends itself.
const DEADLINE: Duration = Duration::from_secs(30);

/// The implementation that answers a trial's C calls.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum System {
    Kernel,
    Dropin,
    /// A supervisor, which serves static programs and programs with their own system call instructions.
    Supervised,
}

/// A trial, as the command line of its process states it.
#[derive(Args, Debug)]
pub struct Trial {
    system: System,
    suite: Suite,
    /// The name of the case.
    case: String,
    /// Nanoseconds to measure.
    budget: u64,
    /// The CPUs to use: one or two.
    #[arg(required = true)]
    cpus: Vec<usize>,
}

/// The time and the CPUs that a running case may use.
pub struct Setting {
    pub budget: Duration,
    /// One or two CPUs.
    pub cpus: Vec<usize>,
}

impl Setting {
    /// Returns the CPU of a thread that runs alone.
    pub fn first(&self) -> usize {
        self.cpus[0]
    }

    /// Returns the CPU of the other process. With a single CPU, this is the CPU of [`first`](Self::first).
    pub fn last(&self) -> usize {
        self.cpus[self.cpus.len() - 1]
    }
}

/// Runs a case in a new process and returns its figures.
pub fn run(
    plan: &Plan,
    system: System,
    suite: Suite,
    case: &str,
    budget: Duration,
) -> Result<Vec<f64>, Failure> {
    let mut command = match system {
        System::Supervised => supervised(plan)?,
        System::Kernel | System::Dropin => Command::new(std::env::current_exe()?),
    };
    let name = system.to_possible_value();
    command.arg("trial");
    command.args(name.as_ref().map(|name| name.get_name()));
    command.args([suite.name(), case, &budget.as_nanos().to_string()]);
    command.args(plan.cpus.both().iter().map(usize::to_string));
    command.stdin(Stdio::null());
    if system == System::Dropin {
        command.env("LD_PRELOAD", plan.dropin.as_ref().map_err(Clone::clone)?);
    }
    let parent = std::process::id();
    // SAFETY: between fork and exec the closure makes two system calls, and takes no lock.
    unsafe {
        command.pre_exec(move || {
            supervisor::die_with_parent(parent);
            Ok(())
        });
    }
    let output = command.output()?;
    if !output.status.success() {
        let text = String::from_utf8_lossy(&output.stderr);
        let reason = text.lines().last().unwrap_or("no reason given");
        let reason = reason.trim_start_matches("umsg-bench: ");
        return Err(match output.status.code() {
            Some(_) => Failure::new(reason),
            None => Failure::new(format!("the trial was killed ({})", output.status)),
        });
    }
    serde_json::from_slice(&output.stdout)
        .map_err(|error| Failure::new(format!("the figures of the trial are unreadable: {error}")))
}

/// Returns the command that runs this program under a supervisor of `umsg run`, without the drop-in.
fn supervised(plan: &Plan) -> Result<Command, Failure> {
    let own = std::env::current_exe()?;
    let umsg = own.with_file_name("umsg");
    if !umsg.exists() {
        let reason =
            "the command umsg is not in the directory of this program: build the whole workspace";
        return Err(Failure::new(reason));
    }
    let mut command = Command::new(umsg);
    command.args(["run", "--raw-syscalls=on", "--", "env", "-u", "LD_PRELOAD"]);
    command.arg(own);
    let dropin = plan.dropin.as_ref().map_err(Clone::clone)?;
    command.env("UMSG_PRELOAD", dropin);
    Ok(command)
}

impl Trial {
    /// Measures the case in the calling process and writes its figures.
    pub fn answer(&self) -> Result<(), Failure> {
        let budget = Duration::from_nanos(self.budget);
        let deadline = (budget + DEADLINE).as_secs() as u32;
        // SAFETY: the call takes a number; SIGALRM, which has its default action, then ends the process.
        unsafe { libc::alarm(deadline) };
        match self.system {
            System::Kernel => leave_ipc_namespace(),
            System::Dropin => require_dropin()?,
            System::Supervised => {}
        }
        machine::pin_to(&self.cpus[..1])?;
        let setting = Setting {
            budget,
            cpus: self.cpus.clone(),
        };
        let figures = suites::trial(self.suite, &self.case, &setting)?;
        let text = serde_json::to_string(&figures)
            .map_err(|error| Failure::new(format!("JSON: {error}")))?;
        writeln!(std::io::stdout(), "{text}").map_err(Failure::from)
    }
}

/// Enters a new IPC namespace. When the last process of the namespace ends, the kernel removes its queues, even if the trial is killed.
///
/// If the system does not permit a new namespace, each case still removes its queues itself.
fn leave_ipc_namespace() {
    // SAFETY: the call takes flags, and the process has one thread and no open queue.
    unsafe {
        if libc::unshare(libc::CLONE_NEWIPC) != 0 {
            libc::unshare(libc::CLONE_NEWUSER | libc::CLONE_NEWIPC);
        }
    }
}

/// Fails unless mq_open(3) is the drop-in's: the dynamic linker only warns about a library that it can't preload.
fn require_dropin() -> Result<(), Failure> {
    let mut found = MaybeUninit::<libc::Dl_info>::zeroed();
    let function = libc::mq_open as *const libc::c_void;
    // SAFETY: the call fills a structure of this function whose fields may all be zero. The name in the structure ends with zero.
    let file = unsafe {
        libc::dladdr(function, found.as_mut_ptr());
        let name = found.assume_init().dli_fname;
        (!name.is_null()).then(|| CStr::from_ptr(name).to_string_lossy().into_owned())
    };
    match file {
        Some(file) if file.contains("umsg_preload") => Ok(()),
        file => Err(Failure::new(format!(
            "the drop-in has no effect: mq_open comes from {}",
            file.as_deref().unwrap_or("an unknown file")
        ))),
    }
}
