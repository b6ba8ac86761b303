//! Opens files of queues with arbitrary contents, and uses the queues that can be opened.

use super::home::Home;
use super::input::Input;
use super::{posix, ring, sysv};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// The number of bytes at the start of a file that may be overwritten.
const HEAD: u64 = 8192;

pub fn run(home: &Home, data: &[u8]) {
    let mut input = Input::new(data);
    match input.byte() % 3 {
        0 => {
            let path = home.path("mq/fuzzed");
            posix::leave(home);
            alter(&path, &mut input);
            posix::use_what_is_there(home, &mut input);
            std::fs::remove_file(path).expect("a file");
        }
        1 => {
            let (queue, path) = sysv::make(home);
            drop(queue);
            alter(&path, &mut input);
            sysv::use_what_is_there(home, &mut input);
            sysv::clear(home);
        }
        _ => {
            let path = home.path("ring/fuzzed");
            std::mem::forget(ring::make(home));
            alter(&path, &mut input);
            ring::use_what_is_there(home);
            let _ = std::fs::remove_file(path);
        }
    }
}

/// Replaces a file's contents, or overwrites some of its first words, and maybe its length.
fn alter(path: &Path, input: &mut Input<'_>) {
    let file = File::options().read(true).write(true).open(path);
    let file = file.expect("the file of a queue");
    let len = file.metadata().expect("metadata").len();
    let how = input.byte();
    if how & 1 != 0 {
        file.set_len(0).expect("a shorter file");
        file.write_all_at(input.rest(), 0).expect("memory");
        if how & 2 != 0 {
            file.set_len(len).expect("a longer file");
        }
        return;
    }
    for _ in 0..how >> 2 {
        let offset = u64::from(input.half()) * 4 % HEAD;
        let word = input.word().to_le_bytes();
        file.write_all_at(&word, offset).expect("memory");
    }
    if how & 2 != 0 {
        file.set_len(u64::from(input.word()))
            .expect("another length");
    }
}
