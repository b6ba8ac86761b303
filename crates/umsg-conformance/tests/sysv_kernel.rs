//! The cases of System V queues against the kernel: its behaviour is right by definition, and each case has to expect exactly that behaviour.

use umsg_conformance::backend::Kind;

umsg_conformance::instantiate_sysv!(Kind::Kernel);
