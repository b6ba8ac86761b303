//! Reports to the service manager. A failed report is logged, because it must not end the bridge.

use crate::log::{self, Level};
use std::io;

/// Sends a state such as `READY=1`. Does nothing without a service manager.
pub fn tell(state: &str) {
    note(umsg_carry::service::tell(state));
}

/// Reports that the bridge reads its configuration again.
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
