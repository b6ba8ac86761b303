//! Reports to a service manager. A report that fails is logged: the bridge must not end with it.

use crate::log::{self, Level};
use std::io;

/// Sends a state such as `READY=1`. Does nothing without a service manager.
pub fn tell(state: &str) {
    note(umsg_carry::service::tell(state));
}

/// Tells that the configuration is being read again.
pub fn tell_reloading() {
    note(umsg_carry::service::tell_reloading());
}

fn note(told: io::Result<()>) {
    if let Err(error) = told {
        log::event(
            Level::Warning,
            "-",
            "sd_notify failed",
            &[("error", &error)],
        );
    }
}
