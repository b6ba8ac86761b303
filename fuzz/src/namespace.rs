//! Writes arbitrary contents into files of a namespace's directory, and makes calls that read these files.

use super::home::Home;
use super::input::Input;
use std::fs;
use std::os::unix::fs::symlink;
use umsg::Namespace;
use umsg::sysv::OpenOptions;

pub fn run(home: &Home, data: &[u8]) {
    let mut input = Input::new(data);
    match input.byte() % 3 {
        0 => record(home, &mut input),
        1 => next(home, &mut input),
        _ => labels(home, &mut input),
    }
}

/// Replaces or alters the namespace's record for a while.
fn record(home: &Home, input: &mut Input<'_>) {
    let path = home.path(".namespace");
    let before = fs::read(&path).expect("a record");
    let mut bytes = before.clone();
    if input.byte() & 1 != 0 {
        bytes = input.rest().to_vec();
    }
    while !input.is_empty() && !bytes.is_empty() {
        let at = usize::from(input.byte()) % bytes.len();
        bytes[at] ^= input.byte();
    }
    fs::write(&path, bytes).expect("memory");
    if let Ok(namespace) = Namespace::at(home.path("")) {
        let _ = namespace.limits();
        let _ = umsg::posix::list(&namespace);
    }
    let _ = home.namespace.limits();
    fs::write(&path, before).expect("memory");
}

/// Writes the file that has the next identifier for a System V queue.
fn next(home: &Home, input: &mut Input<'_>) {
    let own = home
        .path("own")
        .join(rustix::process::geteuid().as_raw().to_string());
    fs::create_dir_all(own.join("lock")).expect("memory");
    fs::write(own.join("next"), input.rest()).expect("memory");
    use_keys(home);
}

/// Creates key symlinks, and other names of System V queues, with arbitrary numbers and contents.
fn labels(home: &Home, input: &mut Input<'_>) {
    for _ in 0..input.byte() % 8 {
        let number = u32::from(input.byte() % 4);
        let text = match input.byte() % 4 {
            0 => number.to_string(),
            1 => input.word().to_string(),
            2 => format!("-{}", input.byte()),
            _ => format!("{}x", input.half()),
        };
        let _ = match input.byte() % 4 {
            0 => symlink(text, home.path(format!("msg/k-{number:08x}"))),
            1 => symlink(text, home.path(format!("msg/p-{number}"))),
            2 => symlink(text, home.path(format!("msg/{number}"))),
            _ => fs::write(home.path(format!("msg/{number}")), text),
        };
    }
    use_keys(home);
}

fn use_keys(home: &Home) {
    let mut options = OpenOptions::new();
    options.namespace(&home.namespace);
    for key in 0..4 {
        let _ = options.open(key);
        let _ = options.open_id(key);
    }
    let _ = options.create(true).open(2);
    let _ = options.open(0);
    let _ = umsg::sysv::list(&home.namespace);
    super::sysv::clear(home);
}
