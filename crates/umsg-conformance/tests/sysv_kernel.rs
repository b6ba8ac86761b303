//! Runs the System V cases against the kernel. The kernel's behaviour is right by definition, so each case must pass.

use umsg_conformance::backend::Kind;

umsg_conformance::instantiate_sysv!(Kind::Kernel);
