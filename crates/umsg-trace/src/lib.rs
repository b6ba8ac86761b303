//! Records of calls. For each call of a traced program, the drop-in sends a record to `umsg trace` through a ring.
//!
//! | what | where |
//! |---|---|
//! | the request for records, in the memory of the traced process | [`request`] |
//! | a record | [`record`] |
//! | the functions, and the meaning of their arguments in a record | [`function`] |
//!
//! `umsg trace` trusts no record: arbitrary bytes cause no panic, and bytes that are not a record are skipped.

pub mod function;
pub mod record;
pub mod request;

pub use function::Function;
pub use record::{Numbers, Record};
pub use request::Request;
