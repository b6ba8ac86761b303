//! Conversion of the library's errors to [`std::io::Error`].

use crate::{namespace, posix, ring, sysv};
use std::io;

macro_rules! into_io_error {
    ($($error:ty),+ $(,)?) => {$(
        /// Wraps the error in an [`io::Error`], whose kind follows from the errno of the error.
        impl From<$error> for io::Error {
            fn from(error: $error) -> io::Error {
                let kind = io::Error::from_raw_os_error(error.errno()).kind();
                io::Error::new(kind, error)
            }
        }
    )+};
}

into_io_error!(
    crate::error::QueueError,
    crate::error::SegmentError,
    namespace::NamespaceError,
    posix::LeaseError,
    posix::NotifyError,
    posix::OpenError,
    posix::ReceiveError,
    posix::RestoreError,
    posix::SendError,
    posix::SnapshotError,
    posix::UnlinkError,
    ring::ReceiveError,
    ring::RingError,
    ring::SendError,
    sysv::ControlError,
    sysv::OpenError,
    sysv::ReceiveError,
    sysv::SendError,
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_keeps_its_kind_and_its_text_as_an_error_of_std() {
        let error = io::Error::from(posix::SendError::Full);
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
        assert_eq!(error.to_string(), posix::SendError::Full.to_string());
        let inner = error.get_ref().and_then(|inner| inner.downcast_ref());
        assert_eq!(inner, Some(&posix::SendError::Full));
    }
}
