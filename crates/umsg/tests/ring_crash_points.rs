//! A real SIGKILL at every named point of a ring, and the checks afterwards.
//!
//! After the death of a sender, the owner gets all messages of the sender's finished sends, whole and in order, and at most one further message of
//! this sender. The owner also gets all messages of a bystander. No process is delayed, a newcomer can send, and the capacity of the ring is the same
//! as before. After the death of the owner, each sender gets an error, also a sender that was waiting for room. Another process can make a ring of
//! that name, and nothing is left behind.

mod chaos;
#[path = "ring_crash_points/mod.rs"]
mod parts;
mod support;

use chaos::killing::{Figures, Repairer, Rounds, STALL, STUCK, Way};
use chaos::points::{self, Face};
use parts::NAME;
use parts::owners::{OWNERS, Reign, create};
use parts::senders::{Lives, SENDERS, Scenario, flood, post};
use parts::stage::kill_a_sender;
use std::os::fd::AsFd;
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};
use support::child::{Child, Exit};
use support::place::Place;
use support::shared::Shared;
use support::{turn, wait_until};
use umsg::ring::{Options, Post, ReceiveError, Ring, SendError, Sender, Until};
use umsg_shm::crash;

fn kill_senders(names: &[&str]) {
    let _turn = turn();
    let mut figures = Figures::default();
    let wanted = |scenario: &&Scenario| names.contains(&scenario.name);
    for scenario in SENDERS.iter().filter(wanted) {
        for point in scenario.points {
            kill_often(scenario, point, &mut figures);
        }
    }
    figures.print(&names.join(", "));
}

fn kill_often(scenario: &Scenario, point: &str, figures: &mut Figures) {
    let what = format!("{} / {point}", scenario.name);
    let before = figures.kills_at(point);
    let mut rounds = Rounds::new();
    while let Some(round) = rounds.next(figures.kills_at(point) > before) {
        let nth = match point {
            // In these scenarios, a ring passes the points of growth only once.
            point if point.starts_with("GROW") => 1,
            _ => 1 + round * 3 % 7,
        };
        kill_a_sender(scenario, point, nth, Repairer::Anybody, figures);
    }
    assert!(figures.kills_at(point) > before, "{what}: no process dies");
    figures.judge_stalls(&what, |figures| {
        kill_a_sender(scenario, point, 1, Repairer::Anybody, figures);
    });
}

#[test]
fn a_sender_that_is_killed_at_any_point_leaves_a_whole_message_or_none_and_stops_no_process() {
    kill_senders(&[
        "sends to a sleeper",
        "sends to a receiver that waits for several",
        "sends batches",
    ]);
}

#[test]
fn a_sender_that_is_killed_keeps_nothing_from_a_poller() {
    kill_senders(&["sends to a poller", "passes descriptors"]);
}

#[test]
fn a_sender_that_is_killed_while_a_ring_overflows_or_is_full_loses_no_room() {
    kill_senders(&[
        "sends more than the entries",
        "sends to a full ring",
        "sends long messages",
    ]);
}

/// Sends without end, and waits for room. Ends when a send reports that the owner is dead, or that the ring is closed.
fn send_until_refused(place: &Place, in_batches: bool) -> i32 {
    let opened = wait_until(STUCK, || Sender::open_in(&place.namespace, NAME).is_ok());
    if !opened {
        return 1;
    }
    let Ok(sender) = Sender::open_in(&place.namespace, NAME) else {
        return 0;
    };
    loop {
        let posts = [post(1), post(2)];
        let sent = match in_batches {
            true => sender.send_batch(&posts),
            false => sender.send(&posts[0]),
        };
        match sent {
            Ok(()) => {}
            Err(SendError::Disabled) => std::thread::sleep(Duration::from_micros(100)),
            Err(SendError::OwnerDead | SendError::Closed) => return 0,
            Err(error) => panic!("{error}"),
        }
    }
}

/// Returns the number of files in the rings' directory.
fn left(place: &Place) -> usize {
    std::fs::read_dir(place.path().join("ring"))
        .unwrap()
        .count()
}

/// Kills an owner at a point. Returns the time after which all senders knew.
fn kill_an_owner(reign: &Reign, point: &str) -> Duration {
    let place = Place::new();
    if reign.after_another {
        let mut first = Child::run(|| {
            std::mem::forget(create(&place));
            0
        });
        first.expect(Exit::Code(0), point);
    }
    let mut senders = [false, false, true]
        .map(|in_batches| Child::run(|| send_until_refused(&place, in_batches)));
    let mut owner = Child::run(|| {
        crash::arm(point, reign.nth);
        (reign.reign)(&place);
        0
    });
    owner.expect(Exit::Signal(libc::SIGKILL), point);
    let dead = Instant::now();
    for sender in &mut senders {
        sender.expect(Exit::Code(0), point);
    }
    let took = dead.elapsed();
    eprintln!("owner / {point}: senders knew after {took:.1?}");
    expect_another_owner(&place, point);
    took
}

/// Fails unless another process can make a working ring of the dead owner's name, and nothing is left behind.
fn expect_another_owner(place: &Place, point: &str) {
    let mut ring = Options::new().create_in(&place.namespace, NAME).unwrap();
    let sender = Sender::open_in(&place.namespace, NAME).unwrap();
    let file = std::fs::File::open("/dev/null").unwrap();
    sender
        .send_fd(&Post::new(7), file.as_fd(), Until::Now)
        .unwrap();
    let message = ring.try_receive().unwrap();
    assert_eq!((message.user_data, message.descriptor.is_some()), (7, true));
    assert_eq!(left(place), 2, "{point}: a name and a doorbell");
    drop(ring);
    assert_eq!(left(place), 0, "{point}: something is left behind");
}

#[test]
fn an_owner_that_is_killed_at_any_point_is_missed_by_its_senders_and_replaced() {
    let _turn = turn();
    for reign in OWNERS {
        for point in reign.points {
            // A busy machine may give no CPU time to a sender or to this process. One of several tries has to meet the limit.
            let is_short = || kill_an_owner(reign, point) < STALL;
            let is_told = (0..3).any(|_| is_short());
            assert!(is_told, "{point}: senders are not told");
        }
    }
}

#[test]
fn of_many_that_find_an_owner_dead_one_gets_the_name_and_keeps_it() {
    let place = Place::in_turn();
    for _ in 0..20 {
        let mut first = Child::run(|| {
            std::mem::forget(create(&place));
            0
        });
        first.expect(Exit::Code(0), "the first owner");
        let go = Shared::<Lives>::new();
        let mut heirs: Vec<Child> = (0..4)
            .map(|_| {
                Child::run(|| {
                    while go[0].end.load(SeqCst) == 0 {
                        std::hint::spin_loop();
                    }
                    match Options::new().create_in(&place.namespace, NAME) {
                        Ok(ring) => {
                            go[0].pid.store(std::process::id(), SeqCst);
                            go[0].sent.fetch_add(1, SeqCst);
                            std::mem::forget(ring);
                            loop {
                                std::thread::sleep(STUCK);
                            }
                        }
                        Err(_) => 0,
                    }
                })
            })
            .collect();
        go[0].end.store(1, SeqCst);
        let ended = |heirs: &mut Vec<Child>| {
            let ends = heirs.iter_mut().map(|heir| heir.wait(Duration::ZERO));
            ends.filter(|end| end.is_some()).count()
        };
        assert!(
            wait_until(STUCK, || ended(&mut heirs) == 3),
            "several heirs"
        );
        assert!(
            wait_until(STUCK, || go[0].sent.load(SeqCst) == 1),
            "no heir"
        );
        let ring = Sender::open_in(&place.namespace, NAME).unwrap();
        assert_eq!(ring.status().owner, go[0].pid.load(SeqCst));
    }
}

#[test]
fn every_point_of_a_ring_is_killed_at() {
    let senders = SENDERS.iter().flat_map(|scenario| scenario.points).copied();
    let mut killed: Vec<&str> = senders
        .chain(OWNERS.iter().flat_map(|reign| reign.points).copied())
        .collect();
    for file in ["salvage_killed.rs", "real_time.rs"] {
        killed.extend(points::killed_in(file));
    }
    // The test a_sender_that_is_killed_while_it_repairs_is_itself_repaired kills at these points, which it finds by itself.
    let repairs = points::of_repairs(Face::Ring);
    killed.extend(repairs.iter().map(|point| &point[..]));
    points::expect_all(Face::Ring, &killed);
}

/// Points, each with its scenario. The deaths at these points leave different states behind.
const DEADLY: &[(&str, &str)] = &[
    ("sends to a sleeper", "SEND_PUBLISHED"),
    ("sends to a sleeper", "RING_SILENCED"),
    ("sends to a poller", "RING_DUE"),
    ("sends batches", "BATCH_STAMPED"),
    ("sends batches", "BATCH_PUBLISHED"),
    ("sends long messages", "ARENA_SPLIT"),
    ("sends more than the entries", "GROW_DOUBLED"),
    ("sends more than the entries", "GROW_COUNTED"),
    ("sends to a full ring", "PARK_FILLED"),
    ("sends to a full ring", "WAIT_LISTED"),
];

fn named(name: &str) -> &'static Scenario {
    let scenario = SENDERS.iter().find(|scenario| scenario.name == name);
    scenario.unwrap_or_else(|| panic!("no scenario: {name}"))
}

#[test]
fn a_sender_that_is_killed_while_it_repairs_is_itself_repaired() {
    let _turn = turn();
    let mut figures = Figures::default();
    for (name, point) in DEADLY {
        let scenario = named(name);
        let way = Shared::<Way>::new();
        kill_a_sender(scenario, point, 1, Repairer::Watched(&way), &mut figures);
        for second in way.points() {
            kill_a_sender(scenario, point, 1, Repairer::DiesAt(second), &mut figures);
        }
    }
    for point in points::of_repairs(Face::Ring) {
        assert!(figures.kills_at(&point) > 0, "no repairer dies at {point}");
    }
    figures.print("killed repairers");
}

#[test]
fn what_dead_senders_left_is_kept_when_the_ring_is_made_again() {
    let _turn = turn();
    let mut figures = Figures::default();
    for (name, point) in DEADLY {
        kill_a_sender(named(name), point, 1, Repairer::MakesAnew, &mut figures);
    }
    figures.print("made anew after a death");
}

/// Creates a ring whose owner receives nothing before it gets the order.
fn create_large(place: &Place) -> Ring {
    let mut options = Options::new();
    options.entries(8).overflow(4000);
    options.create_in(&place.namespace, NAME).unwrap()
}

#[test]
fn an_owner_that_is_killed_while_it_repairs_is_missed_and_replaced() {
    let _turn = turn();
    let by_receivers = |point: &String| point.starts_with("REPAIR_");
    let seconds = points::of_repairs(Face::Ring);
    for second in seconds.iter().filter(|point| by_receivers(point)) {
        let place = Place::new();
        let lives = Shared::<Lives>::new();
        let mut owner = Child::run(|| {
            let mut ring = create_large(&place);
            let told = wait_until(STUCK, || lives[1].end.load(SeqCst) != 0);
            assert!(told, "the owner was forgotten");
            crash::arm(second, 1);
            let _ = ring.drain(|_| ());
            0
        });
        let made = wait_until(STUCK, || Sender::open_in(&place.namespace, NAME).is_ok());
        assert!(made, "no ring");
        let mut victim = Child::run(|| {
            let sender = Sender::open_in(&place.namespace, NAME).unwrap();
            crash::arm("GROW_COUNTED", 1);
            flood(&sender, &lives[0]);
            0
        });
        victim.expect(Exit::Signal(libc::SIGKILL), "GROW_COUNTED");
        lives[1].end.store(1, SeqCst);
        owner.expect(Exit::Signal(libc::SIGKILL), second);
        expect_another_owner(&place, second);
    }
}

#[test]
fn a_descriptor_whose_sender_died_before_its_message_blocks_no_other() {
    let place = Place::in_turn();
    let mut ring = Options::new().create_in(&place.namespace, NAME).unwrap();
    let file = std::fs::File::open("/dev/null").unwrap();
    let mut victim = Child::run(|| {
        let sender = Sender::open_in(&place.namespace, NAME).unwrap();
        crash::arm("RING_PASSED", 1);
        let _ = sender.send_fd(&Post::new(1), file.as_fd(), Until::Now);
        0
    });
    victim.expect(Exit::Signal(libc::SIGKILL), "the sender");
    assert_eq!(ring.try_receive().unwrap_err(), ReceiveError::Empty);
    let sender = ring.sender();
    sender
        .send_fd(&Post::new(2), file.as_fd(), Until::Now)
        .unwrap();
    let message = ring.try_receive().unwrap();
    assert_eq!((message.user_data, message.descriptor.is_some()), (2, true));
}
