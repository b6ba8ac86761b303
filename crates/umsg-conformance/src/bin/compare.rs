//! Compares umsg with the kernel by random operations.

use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use umsg_conformance::backend::{Kind, Posix};
use umsg_conformance::compare::{self, Comparable, Config, Failure, Seen};
use umsg_conformance::library;
use umsg_conformance::lives;
use umsg_conformance::sysv::SystemV;

const USAGE: &str = "\
usage: compare [--sysv|--lives] [--ops N] [--seed S] [--backend preload|dropin|native|c|kernel] [--library PATH] [--counts]

Performs N random operations (100000 if not said otherwise) on the kernel's queues and on umsg's in lockstep and
compares every answer. Ends with status 1 at the first difference, after printing a short history that shows it.
The seed is taken from the clock if it is not given; it is printed, so that a run can be repeated.

--sysv compares System V queues, without it POSIX queues are compared.

--lives compares POSIX and System V queues in histories of processes that fork, run other programs, pass descriptors
on, and end; --seconds S begins no history after that time. It takes the drop-in, or the kernel, as backend.

--counts prints how often each call was answered how. --backend preload (if not said otherwise) runs whole processes
with libumsg_preload.so preloaded, dropin calls its functions by dlsym, native calls umsg::posix, c calls the functions
of libumsg.so, kernel compares the kernel with itself. --library says where the library is; libumsg_preload.so is looked
for beside this program, libumsg.so below UMSG_C_PREFIX.";

struct Arguments {
    operations: u64,
    seed: u64,
    backend: String,
    library: Option<PathBuf>,
    counts: bool,
    sysv: bool,
    lives: bool,
    seconds: Option<u64>,
}

fn parse(mut words: impl Iterator<Item = String>) -> Result<Arguments, String> {
    let since = std::time::UNIX_EPOCH.elapsed().unwrap_or_default();
    let mut arguments = Arguments {
        operations: 100_000,
        seed: since.as_secs() % 1_000_000,
        backend: "preload".into(),
        library: None,
        counts: false,
        sysv: false,
        lives: false,
        seconds: None,
    };
    while let Some(option) = words.next() {
        if option == "--counts" {
            arguments.counts = true;
            continue;
        }
        if option == "--sysv" {
            arguments.sysv = true;
            continue;
        }
        if option == "--lives" {
            arguments.lives = true;
            continue;
        }
        let value = words
            .next()
            .ok_or_else(|| format!("{option}: a value is missing\n{USAGE}"))?;
        let number = || {
            value
                .replace('_', "")
                .parse()
                .map_err(|_| format!("{option} {value}: not a number"))
        };
        match option.as_str() {
            "--ops" => arguments.operations = number()?,
            "--seconds" => arguments.seconds = Some(number()?),
            "--seed" => arguments.seed = number()?,
            "--backend" => arguments.backend = value,
            "--library" => arguments.library = Some(value.into()),
            _ => return Err(format!("{option}: no such option\n{USAGE}")),
        }
    }
    Ok(arguments)
}

fn library(arguments: &Arguments) -> Result<PathBuf, String> {
    match &arguments.library {
        Some(library) => Ok(library.clone()),
        None => library::path().map(Path::to_path_buf),
    }
}

fn c_library(arguments: &Arguments) -> Result<PathBuf, String> {
    match &arguments.library {
        Some(library) => Ok(library.clone()),
        None => library::c_path().map(Path::to_path_buf),
    }
}

fn kind<F: Comparable>(arguments: &Arguments) -> Result<Kind<F>, String> {
    match arguments.backend.as_str() {
        "kernel" => Ok(Kind::Kernel),
        "native" => Ok(Kind::Native),
        "dropin" => Ok(Kind::Dropin(library(arguments)?)),
        "c" => Ok(Kind::C(c_library(arguments)?)),
        "preload" => Ok(Kind::Preloaded(library(arguments)?)),
        other => Err(format!("--backend {other}: no such backend\n{USAGE}")),
    }
}

/// Runs as a worker of the comparison, for the family with this name.
fn work(family: &str, library: &Path, directory: &Path) -> Result<(), String> {
    match family {
        Posix::NAME => compare::work::<Posix>(library, directory),
        SystemV::NAME => compare::work::<SystemV>(library, directory),
        other => Err(format!("{other}: no such family of calls")),
    }
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    if let [first, family, library, directory] = &words[..]
        && first == compare::WORKER
    {
        let Err(why) = work(family, library.as_ref(), directory.as_ref()) else {
            return ExitCode::SUCCESS;
        };
        return refuse(&why);
    }
    if let [first, number] = &words[..]
        && first == lives::ACTOR
    {
        let Err(why) = lives::act(number) else {
            return ExitCode::SUCCESS;
        };
        return refuse(&why);
    }
    if words.iter().any(|word| word == "--help" || word == "-h") {
        println!("{USAGE}");
        return ExitCode::SUCCESS;
    }
    match parse(words.into_iter()) {
        Ok(arguments) if arguments.lives => run_lives(&arguments),
        Ok(arguments) if arguments.sysv => run::<SystemV>(&arguments),
        Ok(arguments) => run::<Posix>(&arguments),
        Err(message) => refuse(&message),
    }
}

fn refuse(message: &str) -> ExitCode {
    eprintln!("compare: {message}");
    ExitCode::from(2)
}

/// Prints the result of a comparison.
fn report<S: Display, D: Display>(
    arguments: &Arguments,
    result: Result<S, Failure<D>>,
    seen: impl Fn(&S) -> &Seen,
) -> ExitCode {
    match result {
        Ok(summary) => {
            println!("{summary}");
            for ((call, answer), count) in seen(&summary).iter().filter(|_| arguments.counts) {
                println!("{count:9}  {call}: {answer}");
            }
            ExitCode::SUCCESS
        }
        Err(failure @ Failure::Difference(_)) => {
            println!("{failure}");
            ExitCode::from(1)
        }
        Err(failure @ Failure::Impossible(_)) => refuse(&failure.to_string()),
    }
}

/// Returns a function that gets the number of operations so far, and prints it every ten seconds.
fn progress() -> impl Fn(u64) {
    let printed = std::cell::Cell::new(Instant::now());
    move |done| {
        if printed.get().elapsed() >= Duration::from_secs(10) {
            printed.set(Instant::now());
            println!("  {done} operations");
        }
    }
}

/// Compares the calls of a family, and prints the result.
fn run<F: Comparable>(arguments: &Arguments) -> ExitCode {
    let backend = match kind::<F>(arguments) {
        Ok(backend) => backend,
        Err(message) => return refuse(&message),
    };
    let Arguments {
        operations, seed, ..
    } = *arguments;
    println!(
        "comparing the kernel with {}: {operations} operations, --seed {seed}",
        arguments.backend
    );
    let progress = progress();
    let program = std::env::current_exe().ok();
    let program = program.as_deref();
    let result = compare::run(&Config {
        operations,
        seed,
        backend,
        program,
        progress: Some(&progress),
    });
    report(arguments, result, |summary| &summary.seen)
}

/// Compares histories in which whole processes act, see `umsg_conformance::lives`.
fn run_lives(arguments: &Arguments) -> ExitCode {
    let queues = match kind::<Posix>(arguments) {
        Ok(Kind::Preloaded(library)) => lives::Queues::Dropin(library),
        Ok(Kind::Kernel) => lives::Queues::Kernel,
        Ok(_) => return refuse("--lives takes --backend preload or kernel"),
        Err(message) => return refuse(&message),
    };
    let program = match std::env::current_exe() {
        Ok(program) => program,
        Err(error) => return refuse(&format!("the path of this program is not known: {error}")),
    };
    let progress = progress();
    let Arguments {
        operations, seed, ..
    } = *arguments;
    println!(
        "comparing lives on the kernel with {}: {operations} operations, --seed {seed}",
        arguments.backend
    );
    let result = lives::run(&lives::Config {
        program: &program,
        queues,
        operations,
        budget: arguments.seconds.map(Duration::from_secs),
        seed,
        progress: Some(&progress),
    });
    report(arguments, result, |summary| &summary.seen)
}
