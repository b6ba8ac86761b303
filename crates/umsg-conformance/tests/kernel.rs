//! The conformance cases against the kernel: whatever it does is right, and every case has to say just that.

use umsg_conformance::backend::Kind;

umsg_conformance::instantiate!(Kind::Kernel);
