//! Boost.Interprocess: a library that consists of headers, and needs only a compiler.

use std::fs;
use std::io::ErrorKind;
use std::process::{Command, Stdio};

use super::plug::Plug;
use super::scratch::Scratch;
use super::server;
use crate::failure::Failure;

/// The C++ source of the library for Boost.Interprocess. It defines the functions that [`super::plug`] describes.
const SOURCE: &str = include_str!("boost.cpp");

/// A part of the compiler's error message if the header of Boost is missing.
const HEADER: &str = "boost/interprocess/ipc/message_queue.hpp: No such file";

pub const NAME: &str = "Boost.Interprocess";

/// Compiles the library for Boost.Interprocess, and loads it.
///
/// # Errors
/// Fails if the compiler or the headers are missing. The error names the packages that contain them.
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
        .env("LC_ALL", "C")
        // A compiler that is killed leaves its temporary files. They are removed with this directory.
        .env("TMPDIR", scratch.path())
        .stdin(Stdio::null());
    server::ends_with_us(&mut compiler);
    let output = compiler.output().map_err(|error| match error.kind() {
        ErrorKind::NotFound => Failure::new("no g++: apt-get install g++ libboost-dev"),
        _ => Failure::new(format!("g++: {error}")),
    })?;
    if !output.status.success() {
        return Err(complaint(&String::from_utf8_lossy(&output.stderr)));
    }
    let how = "message_queue in shared memory, compiled with g++ -O2 -DNDEBUG; its calls that wait sleep on a condition variable";
    Plug::load(NAME, how, &library, scratch)
}

/// Returns the message of a failed compiler, with advice if the cause is known.
fn complaint(says: &str) -> Failure {
    if says.contains(HEADER) {
        return Failure::new("no Boost: apt-get install libboost-dev");
    }
    let mut lines = says.lines();
    let error = lines.find(|line| line.contains("error"));
    let error = error.unwrap_or("it does not say why");
    Failure::new(format!("g++ does not compile what uses it: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_header_is_a_missing_package() {
        let header = "boost.cpp:8:10: fatal error: boost/interprocess/ipc/message_queue.hpp: No such file or directory\n";
        assert!(complaint(header).to_string().contains("libboost-dev"));
        let other = "In function:\nboost.cpp:9:1: error: expected ';'\nmore";
        let says = complaint(other).to_string();
        assert!(says.ends_with("9:1: error: expected ';'"), "{says}");
    }
}
