//! The drop-in.
