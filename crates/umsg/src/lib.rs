//! umsg.
