//! Workers in another program that is started with the drop-in preloaded.

use std::fs::File;
use std::io::{Read, Seek, Write};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde::{Deserialize, Serialize};

use super::Comparable;
use super::operation::{Step, WORKERS};
use super::worker::{FIRST_SOCKET, Shared, Worker};
use crate::backend::Kind;
use crate::sys;

/// The argument that makes the program `compare` run as a process of workers.
pub const WORKER: &str = "--be-a-worker";

/// The descriptor of the file with the workers' assignment.
const ASSIGNMENT: i32 = FIRST_SOCKET + WORKERS as i32;
/// The descriptor of the memory that the workers share with the coordinator.
const MEMORY: i32 = ASSIGNMENT + 1;

/// The way in which the workers of a side are started.
pub enum Launch {
    /// The workers are forks of the coordinator.
    Fork,
    /// The workers are forks of a program that the coordinator starts.
    Program(Program),
}

/// The program `compare` with the drop-in preloaded.
pub struct Program {
    /// The path of the program.
    pub program: PathBuf,
    /// The path of the drop-in.
    pub library: PathBuf,
    /// The directory of the drop-in's queues.
    pub directory: PathBuf,
    /// The memory that the workers share with the coordinator.
    pub memory: File,
}

/// The workers' parameters.
#[derive(Serialize, Deserialize)]
pub struct Assignment<N, C> {
    names: N,
    steps: Vec<Step<C>>,
}

impl<N: Clone, C: Copy> Assignment<N, C> {
    /// Creates the assignment: the names of the queues, and the history.
    pub fn new(names: &N, steps: &[Step<C>]) -> Assignment<N, C> {
        Assignment {
            names: names.clone(),
            steps: steps.to_vec(),
        }
    }
}

impl Program {
    /// Executes the program in the calling process, with this assignment. The caller has moved the sockets of the workers to the descriptors from
    /// `FIRST_SOCKET` on.
    pub fn become_it<F: Comparable>(&self, assignment: &Assignment<F::Names, F::Call>) -> ! {
        let mut file = sys::memory_file().expect("a file in memory");
        file.write_all(&serde_json::to_vec(assignment).expect("an assignment as JSON"))
            .expect("memory");
        file.rewind().expect("a file that can be rewound");
        sys::place(file.as_fd(), ASSIGNMENT).expect("a number for the assignment");
        sys::place(self.memory.as_fd(), MEMORY).expect("a number for the memory");
        sys::close_all(3, FIRST_SOCKET as u32 - 1);
        sys::close_all(MEMORY as u32 + 1, u32::MAX);
        let error = Command::new(&self.program)
            .args([WORKER, F::NAME].map(Path::new))
            .args([&self.library, &self.directory])
            .env("LD_PRELOAD", &self.library)
            .env("UMSG_DIR", &self.directory)
            .exec();
        panic!("{}: {error}", self.program.display());
    }
}

/// Serves as the first worker. The program's arguments are [`WORKER`], the name of the family, the path of the drop-in, and the directory of its
/// queues.
///
/// # Errors
/// If the coordinator has prepared the process wrongly.
pub fn work<F: Comparable>(library: &Path, directory: &Path) -> Result<(), String> {
    let mut text = Vec::new();
    File::from(sys::take(ASSIGNMENT))
        .read_to_end(&mut text)
        .map_err(|error| error.to_string())?;
    let Assignment::<F::Names, F::Call> { names, steps } =
        serde_json::from_slice(&text).map_err(|error| error.to_string())?;
    let memory = sys::take(MEMORY);
    let count = WORKERS + F::WORDS;
    let words = sys::words_of(memory.as_fd(), count).map_err(|errno| errno.to_string())?;
    drop(memory);
    let kind = Kind::<F>::Preloaded(library.to_path_buf());
    let backend = kind.make(directory)?;
    F::prepare(&kind);
    let shared = Shared::<F> {
        backend: &*backend,
        names: &names,
        steps: &steps,
        words,
    };
    Worker::first(&shared).serve()
}
