//! Makes calls on both ends of a ring while words of its segment are overwritten.

use super::home::Home;
use super::input::Input;
use super::segment::{Segment, TWO_SIDES};
use std::os::fd::AsFd;
use std::time::Duration;
use umsg::ring::{Options, Post, Ring, Sender, Until};

const NAME: &str = "/fuzzed";
/// The maximum number of calls and words that one input may request.
const MOST: usize = 200;

pub fn run(home: &Home, data: &[u8]) {
    let mut input = Input::new(data);
    let mut ring = make(home);
    let segment = Segment::open(&home.path("ring/fuzzed"), TWO_SIDES);
    let sender = Sender::open_in(&home.namespace, NAME).expect("a ring");
    for _ in 0..MOST {
        if input.is_empty() {
            break;
        }
        match input.byte() {
            0..128 => segment.scribble(&mut input),
            call => act(&mut ring, &sender, call, &mut input),
        }
    }
    drop((ring, sender));
    let _ = umsg::ring::unlink_anyway_in(&home.namespace, NAME);
}

pub(crate) fn make(home: &Home) -> Ring {
    let mut options = Options::new();
    options.entries(8).overflow(8).longest(500);
    options.create_in(&home.namespace, NAME).expect("a ring")
}

/// Opens the existing ring of this name, and sends.
pub(crate) fn use_what_is_there(home: &Home) {
    if let Ok(sender) = Sender::open_in(&home.namespace, NAME) {
        let _ = sender.try_send(&Post::new(1));
        let _ = sender.try_send_batch(&[Post::new(2); 3]);
        let _ = sender.status();
    }
    let _ = umsg::ring::list(&home.namespace);
    let _ = umsg::ring::unlink_in(&home.namespace, NAME);
}

/// Makes one of the calls that never wait, or wait only up to a time limit.
fn act(ring: &mut Ring, sender: &Sender, call: u8, input: &mut Input<'_>) {
    let number = input.half();
    let soon = Duration::from_micros(u64::from(input.byte()));
    let post = Post::new(number.into()).payload(&[1; 64][..usize::from(number) % 65]);
    let long = vec![2; usize::from(number) % 501];
    match call % 16 {
        0 => drop(sender.try_send(&post)),
        1 => drop(sender.send_timeout(&post, soon)),
        2 => drop(sender.send_batch_until(&[post; 3], Until::After(soon))),
        3 => drop(sender.send_long(&post, &long, Until::Now)),
        4 => drop(sender.send_or_drop(&post)),
        5 => drop(sender.send_fd(&post, std::io::stderr().as_fd(), Until::Now)),
        6 => drop(sender.status()),
        7 => drop(ring.try_receive().map(|message| message.payload.len())),
        8 => drop(
            ring.receive_timeout(soon)
                .map(|message| message.payload.len()),
        ),
        9 => drop(ring.wait(number.into(), Until::After(soon))),
        10 => drop(ring.drain(|message| assert!(message.payload.len() <= 500))),
        11 => drop(ring.drain_some(number.into(), |_| {})),
        12 => drop(ring.available()),
        13 => drop(ring.status()),
        14 => drop(ring.take_fd(number.into())),
        _ => drop(ring.pollable().as_fd()),
    }
}
