//! The cases of System V queues against the kernel: whatever it does is right, and every case has to say just that.

use umsg_conformance::backend::Kind;

umsg_conformance::instantiate_sysv!(Kind::Kernel);
