//! The conformance cases against the kernel: its behaviour is right by definition, and each case has to expect exactly that behaviour.

use umsg_conformance::backend::Kind;

umsg_conformance::instantiate!(Kind::Kernel);
