//! Reports to a service manager by the protocol of sd_notify(3): a report is one datagram to the socket that `$NOTIFY_SOCKET` names.

use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// Sends a state such as `READY=1`. Does nothing without a service manager.
///
/// # Errors
/// The errors of the socket.
pub fn tell(state: &str) -> io::Result<()> {
    let Some(path) = std::env::var_os("NOTIFY_SOCKET") else {
        return Ok(());
    };
    let address = match path.as_bytes() {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name),
        _ => SocketAddr::from_pathname(&path),
    }?;
    UnixDatagram::unbound()?.send_to_addr(state.as_bytes(), &address)?;
    Ok(())
}

/// Reports that the program reads its configuration again, with the time that the protocol requires.
///
/// # Errors
/// The errors of the socket.
pub fn tell_reloading() -> io::Result<()> {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    let microseconds = now.tv_sec as u64 * 1_000_000 + now.tv_nsec as u64 / 1000;
    tell(&format!("RELOADING=1\nMONOTONIC_USEC={microseconds}"))
}
