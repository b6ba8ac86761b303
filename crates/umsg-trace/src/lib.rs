//! Records of calls. The drop-in sends one to `umsg trace` for each call of a traced program, through a ring.
//!
//! | what | where |
//! |---|---|
//! | the request for records, in the memory of the traced process | [`request`] |
//! | a record | [`record`] |
//! | the functions, and the meaning of their arguments in a record | [`function`] |
//!
//! The command trusts no record: it reads arbitrary bytes without a panic, and skips bytes that are not a record.

pub mod function;
pub mod record;
pub mod request;

pub use function::Function;
pub use record::{Numbers, Record};
pub use request::Request;
