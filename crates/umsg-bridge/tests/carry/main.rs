//! Tests messages between two machines: what arrives, and how.

mod durable;
mod kinds;
mod removed;
mod routes;
#[path = "../support/mod.rs"]
mod support;

use support::LONG;
use umsg::posix::Queue;

fn receive(queue: &Queue) -> umsg::posix::Message {
    queue.receive_vec_timeout(LONG).unwrap()
}
