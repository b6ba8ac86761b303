//! Performs random operations on queues, their descriptors and epoll sets: each line of output must be the same with the drop-in and on the kernel.

mod support;

use std::process::Command;

use support::{Namespace, compile, kernel_has_queues, succeed};

const SEEDS: u32 = 80;
/// The number of operations: their output fits into a pipe.
const OPERATIONS: &str = "250";

#[test]
fn random_operations_are_answered_as_by_the_kernel() {
    if !kernel_has_queues() {
        return;
    }
    let program = compile("random_polling");
    for seed in 1..=SEEDS {
        let arguments = [&seed.to_string(), OPERATIONS];
        let kernel = succeed(Command::new(&program).args(arguments));
        let namespace = Namespace::new();
        let umsg = succeed(namespace.command(&program).args(arguments));
        if let Some((step, (kernel, umsg))) = kernel
            .lines()
            .zip(umsg.lines())
            .enumerate()
            .find(|(_, (kernel, umsg))| kernel != umsg)
        {
            panic!("seed {seed}, line {step}: the kernel says {kernel:?}, umsg {umsg:?}");
        }
        assert_eq!(kernel.len(), umsg.len(), "seed {seed}");
        let left = std::fs::read_dir(namespace.path().join("mq")).unwrap();
        assert_eq!(left.count(), 0, "seed {seed} leaves files");
    }
}
