//! Boost.Interprocess: headers only, so that a compiler is all that they take.

use std::fs;
use std::io::ErrorKind;
use std::process::{Command, Stdio};

use super::plug::Plug;
use super::scratch::Scratch;
use super::server;
use crate::failure::Failure;

/// The functions of [`super::plug`].
const SOURCE: &str = include_str!("boost.cpp");

/// What the source includes, and how the compiler says that it is not there.
const HEADER: &str = "boost/interprocess/ipc/message_queue.hpp: No such file";

pub const NAME: &str = "Boost.Interprocess";

/// Compiles and loads it.
///
/// # Errors
/// If compiler or headers are missing, with how to get them.
pub fn find(scratch: &Scratch) -> Result<Plug<'_>, Failure> {
    let [source, library] = ["boost.cpp", "libboost.so"].map(|name| scratch.path().join(name));
    fs::write(&source, SOURCE)?;
    let mut compiler = Command::new("g++");
    compiler
        .args([
            "-std=c++14",
            "-O2",
            "-DNDEBUG",
            "-shared",
            "-fPIC",
            "-pthread",
        ])
        .arg(&source)
        .arg("-o")
        .arg(&library)
        .stdin(Stdio::null());
    server::ends_with_us(&mut compiler);
    let output = compiler.output().map_err(|error| match error.kind() {
        ErrorKind::NotFound => Failure::new("no g++: apt-get install g++ libboost-dev"),
        _ => Failure::new(format!("g++: {error}")),
    })?;
    if !output.status.success() {
        let says = String::from_utf8_lossy(&output.stderr);
        return Err(match says.contains(HEADER) {
            true => Failure::new("no Boost: apt-get install libboost-dev"),
            false => Failure::new(format!(
                "g++ does not compile its test: {}",
                first_error(&says)
            )),
        });
    }
    let how = "message_queue in shared memory, compiled with g++ -O2 -DNDEBUG; its calls that wait sleep on a condition variable";
    Plug::load(NAME, how, &library, scratch)
}

/// The line that matters of what a compiler says.
fn first_error(says: &str) -> &str {
    let mut lines = says.lines();
    lines
        .find(|line| line.contains("error"))
        .unwrap_or("it does not say why")
}
