//! The conformance cases against the native API, `umsg::posix`.

use umsg_conformance::backend::Kind;

umsg_conformance::instantiate!(Kind::Native);
