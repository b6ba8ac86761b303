//! `UMSG_WAIT`: how calls wait for messages and for room. `umsg run --wait` sets the variable, and refuses unknown values.

use umsg::posix::{Queue, Waiting};

/// Makes calls on this handle wait as the user requested.
pub(crate) fn choose(queue: &Queue) {
    let Some(wanted) = std::env::var_os("UMSG_WAIT") else {
        return;
    };
    match wanted.as_encoded_bytes() {
        b"blocking" => queue.set_waiting(Waiting::Blocking),
        b"spinning" => queue.set_waiting(Waiting::Spinning),
        // The handle stays adaptive, which is the default of every handle.
        _ => {}
    }
}
