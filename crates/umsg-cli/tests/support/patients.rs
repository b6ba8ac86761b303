//! Processes that delay the users of a queue, for example because they are stopped.

use std::process::{Child, Command};
use std::time::Duration;

use super::{Site, start};

/// A process that is killed and reaped at the end of the test.
pub struct Killed(pub Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts a process that has this queue file open, and stops it.
pub fn stopped(site: &Site, name: &str, file: &str) -> Killed {
    // The process waits for lines on standard input, which it would send, so it keeps the queue open.
    let process = Killed(start(&mut site.command(&["send", name])));
    let pid = process.0.id().to_string();
    let maps = format!("/proc/{pid}/maps");
    while !std::fs::read_to_string(&maps).unwrap().contains(file) {
        std::thread::sleep(Duration::from_millis(5));
    }
    let status = Command::new("kill").args(["-STOP", &pid]).status();
    assert!(status.unwrap().success());
    process
}
