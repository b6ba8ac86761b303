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

/// A forked child of the test, which is killed and reaped at the end of the test.
pub struct Forked(i32);

impl Forked {
    /// Forks. The child does `begin`, and then sleeps until it is killed.
    pub fn after(begin: impl FnOnce()) -> Forked {
        // SAFETY: the child uses the library and malloc, which glibc makes usable in a child of a process with threads. It never returns.
        let pid = unsafe { libc::fork() };
        assert!(pid >= 0, "fork");
        if pid == 0 {
            // SAFETY: the kernel kills the child when its parent's thread ends.
            unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
            let begun = std::panic::catch_unwind(std::panic::AssertUnwindSafe(begin));
            while begun.is_ok() {
                std::thread::sleep(Duration::from_secs(1));
            }
            // SAFETY: ends the child.
            unsafe { libc::_exit(101) };
        }
        Forked(pid)
    }

    pub fn id(&self) -> i32 {
        self.0
    }

    /// Stops the child.
    pub fn stop(&self) {
        // SAFETY: the process is a child that was not reaped. The second call waits until it has stopped, and writes no status.
        unsafe {
            libc::kill(self.0, libc::SIGSTOP);
            libc::waitpid(self.0, std::ptr::null_mut(), libc::WUNTRACED);
        }
    }
}

impl Drop for Forked {
    fn drop(&mut self) {
        // SAFETY: the process is a child that was not reaped. The call writes no status.
        unsafe {
            libc::kill(self.0, libc::SIGKILL);
            libc::waitpid(self.0, std::ptr::null_mut(), 0);
        }
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
