//! Victims that own a ring, and that send to it.

use super::face::{Face, Turns, time};
use super::guards::Guards;
use super::support::Random;
use super::support::place::Place;
use super::watch::Watch;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::time::Duration;
use umsg::diagnosis::Repaired;
use umsg::ring::{Options, Post, Ring, Sender, Until};

const NAME: &str = "/victim";
const ENTRIES: u32 = 32;
/// The longest payload, in bytes.
const LONGEST: u32 = 2000;

pub struct Rings;

impl Face for Rings {
    fn prepare(&self, _: &Place) {}

    fn file(&self, place: &Place) -> Option<PathBuf> {
        let path = place.path().join("ring").join(&NAME[1..]);
        path.exists().then_some(path)
    }

    fn play(&self, place: &Place, role: usize, watch: Watch<'_>, random: &mut Random) {
        while watch.goes_on() {
            match role {
                0 => own(place, watch, random),
                _ => send(place, watch, random),
            }
            std::thread::sleep(Duration::from_micros(100));
        }
    }

    fn take_turns(&self, place: &Place, turns: Turns<'_>) {
        let Turns {
            watch,
            random,
            next,
        } = turns;
        let mut ring = options().create_in(&place.namespace, NAME).expect("a ring");
        let file = self.file(place).expect("a file");
        let open = || Sender::open_in(&place.namespace, NAME).expect("a sender");
        let (sender, _guards) = Guards::around(&file, open);
        for number in 0..ENTRIES / 2 {
            sender.try_send(&Post::new(number.into())).expect("room");
        }
        while next(random) {
            match random.below(2) {
                0 => receive(&mut ring, watch, random),
                _ => send_one(&sender, watch, random),
            }
        }
    }

    fn look_in(&self, place: &Place, watch: Watch<'_>) {
        if let Some(sender) = watch.call(|| Sender::open_in(&place.namespace, NAME)) {
            watch.let_go(|| drop(sender));
        }
        drop(watch.ask(|| umsg::ring::list(&place.namespace)));
        drop(watch.call(|| umsg::ring::diagnose(&place.namespace, NAME)));
    }

    fn cure(&self, place: &Place) -> Option<Repaired> {
        umsg::ring::repair(&place.namespace, NAME).ok()
    }

    fn expect_to_work(&self, _: &Place) {
        // The owner of the ring is gone.
    }

    fn remake(&self, place: &Place) {
        // The corrupted ring may name a living process as its owner.
        let _ = umsg::ring::unlink_anyway_in(&place.namespace, NAME);
        let mut ring = options().create_in(&place.namespace, NAME).expect("a ring");
        let sender = ring.sender();
        sender.try_send(&Post::new(5)).expect("a new ring");
        assert_eq!(ring.try_receive().expect("its message").user_data, 5);
    }
}

fn options() -> Options {
    let mut options = Options::new();
    options.entries(ENTRIES).overflow(50).longest(LONGEST);
    options
}

/// The only receiving victim creates the ring, and replaces it now and then.
fn own(place: &Place, watch: Watch<'_>, random: &mut Random) {
    let Some(mut ring) = watch.call(|| options().create_in(&place.namespace, NAME)) else {
        return;
    };
    for _ in 0..random.below(50_000) {
        if !watch.goes_on() {
            break;
        }
        receive(&mut ring, watch, random);
    }
    match watch.goes_on() {
        true => watch.let_go(|| drop(ring)),
        // The ring is left for the doctor.
        false => std::mem::forget(ring),
    }
}

fn receive(ring: &mut Ring, watch: Watch<'_>, random: &mut Random) {
    let time = time(random);
    let check = |message: umsg::ring::Message<'_>| {
        assert!(message.payload.len() <= LONGEST as usize);
    };
    match random.below(16) {
        0 => drop(watch.timed(time, || ring.wait(random.below(40), Until::After(time)))),
        1 => drop(watch.call(|| ring.drain(check))),
        2 => drop(watch.call(|| ring.drain_some(random.below(50), check))),
        3 => drop(watch.ask(|| ring.status())),
        4 => drop(watch.ask(|| ring.available())),
        5 => drop(watch.ask(|| ring.take_fd(random.below(50) as i32))),
        6 if random.below(16) == 0 => {
            drop(watch.ask(|| ring.pollable().as_fd().try_clone_to_owned()))
        }
        7..10 => watch
            .timed(time, || ring.receive_timeout(time).map(check))
            .unwrap_or(()),
        _ => watch.call(|| ring.try_receive().map(check)).unwrap_or(()),
    }
}

/// The other victims send to the process that owns the ring.
fn send(place: &Place, watch: Watch<'_>, random: &mut Random) {
    let file = place.path().join("ring").join(&NAME[1..]);
    let (sender, guards) = Guards::around(&file, || {
        watch.call(|| Sender::open_in(&place.namespace, NAME))
    });
    let Some(sender) = sender else { return };
    watch.note_guards(guards.are_complete);
    for _ in 0..random.below(3000) {
        if !watch.goes_on() {
            break;
        }
        send_one(&sender, watch, random);
    }
    watch.let_go(|| drop(sender));
}

fn send_one(sender: &Sender, watch: Watch<'_>, random: &mut Random) {
    let time = time(random);
    let post = Post::new(random.next()).payload(&[5; 64][..random.below(65) as usize]);
    let long = vec![6; random.below(u64::from(LONGEST) + 1) as usize];
    let until = Until::After(time);
    match random.below(16) {
        0 => drop(watch.ask(|| sender.status())),
        1 => drop(watch.call(|| sender.send_fd(&post, std::io::stdin().as_fd(), Until::Now))),
        2 => drop(watch.call(|| sender.pass_fd(std::io::stdin().as_fd()))),
        3 => drop(watch.call(|| sender.send_or_drop(&post))),
        4..6 => drop(watch.timed(time, || sender.send_batch_until(&[post; 5], until))),
        6..8 => drop(watch.timed(time, || sender.send_long(&post, &long, until))),
        8..11 => drop(watch.timed(time, || sender.send_timeout(&post, time))),
        _ => drop(watch.call(|| sender.try_send(&post))),
    }
}
