//! The cases of System V queues against the library, `umsg::sysv`.

use umsg_conformance::backend::Kind;

umsg_conformance::instantiate_sysv!(Kind::Native);
