//! Reports to a service manager by the protocol of sd_notify(3): a report is one datagram to the socket that `$NOTIFY_SOCKET` names.

use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// Sends a state such as `READY=1`. Does nothing without a service manager.
pub fn tell(state: &str) {
    let Some(path) = std::env::var_os("NOTIFY_SOCKET") else {
        return;
    };
    let address = match path.as_bytes() {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name),
        _ => SocketAddr::from_pathname(&path),
    };
    let sent = address
        .and_then(|address| UnixDatagram::unbound()?.send_to_addr(state.as_bytes(), &address));
    if let Err(error) = sent {
        let level = crate::log::Level::Warning;
        crate::log::event(level, "-", "sd_notify failed", &[("error", &error)]);
    }
}

/// Tells that the configuration is being read again, with the time that the protocol asks for.
pub fn tell_reloading() {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    let microseconds = now.tv_sec as u64 * 1_000_000 + now.tv_nsec as u64 / 1000;
    tell(&format!("RELOADING=1\nMONOTONIC_USEC={microseconds}"));
}
