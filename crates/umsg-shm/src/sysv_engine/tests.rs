//! Tests of the engine alone: a segment without a name, and threads of one process.

use super::segment::{Choice, Reply};
use super::segment::{Identity, Layout, Policy, Segment, create};
use super::wait::Enlisted;
use super::{Call, Engine, Refused, Taken, Why};
use crate::fault::Fault;
use crate::lock::tokens::ReceiverHeld;
use crate::sys::clock::{self, Deadline};
use crate::sys::thread;
use crate::sysv_engine::order::Want;
use crate::waiters::{self, List};
use std::os::fd::AsFd;
use std::time::Duration;

/// The number of rounds of a stream. Under Miri, each round takes a thousand times longer.
const ROUNDS: u64 = if cfg!(miri) { 10 } else { 3000 };

pub(crate) fn engine(qbytes: u64) -> Engine {
    let file = crate::sys::file::nameless("umsg-test").unwrap();
    let identity = Identity {
        id: 7,
        key: 0,
        mode: 0o600,
        uid: 0,
        gid: 0,
        qbytes,
        policy: Policy::default(),
    };
    let segment: Segment = create(file.as_fd(), Layout::new(1 << 20, 8192), &identity).unwrap();
    Engine::new(segment)
}

pub(crate) fn call(deadline: Deadline) -> Call<'static> {
    let mut call = Call::new(thread::current(), deadline);
    call.set_rights(1);
    call
}

pub(super) fn now() -> Call<'static> {
    call(Deadline::Passed)
}

fn soon() -> Call<'static> {
    call(Deadline::after(Duration::from_secs(20)))
}

/// Calls `take` with a buffer, and returns the type and the bytes of the message that it takes.
fn taken(
    take: impl FnOnce(&mut [u8]) -> Result<Taken, Refused>,
) -> Result<(i64, Vec<u8>), Refused> {
    let mut buffer = [0; 8192];
    let Taken { len, mtype } = take(&mut buffer)?;
    Ok((mtype, buffer[..len].to_vec()))
}

fn receive(engine: &Engine, want: Want) -> Result<(i64, Vec<u8>), Refused> {
    taken(|buffer| engine.receive(&now(), want, buffer, false))
}

#[test]
fn messages_come_by_type_or_in_order_of_arrival() {
    let engine = engine(16_384);
    for (mtype, message) in [(3, "a"), (1, "b"), (3, "c"), (2, "d")] {
        engine.send(&now(), mtype, message.as_bytes()).unwrap();
    }
    assert_eq!(receive(&engine, Want::Exactly(3)), Ok((3, b"a".to_vec())));
    assert_eq!(receive(&engine, Want::Any), Ok((1, b"b".to_vec())));
    assert_eq!(receive(&engine, Want::Except(3)), Ok((2, b"d".to_vec())));
    assert_eq!(receive(&engine, Want::Lowest(2)), Err(Refused::NotNow));
    assert_eq!(receive(&engine, Want::Lowest(9)), Ok((3, b"c".to_vec())));
    assert_eq!(receive(&engine, Want::Any), Err(Refused::NotNow));
    let counts = engine.counts(thread::current()).unwrap();
    assert_eq!((counts.messages, counts.bytes), (0, 0));
}

#[test]
fn a_glance_needs_no_lock() {
    let engine = engine(16_384);
    assert_eq!((engine.totals().0, engine.oldest_hint()), (0, None));
    let began = clock::realtime_coarse();
    for mtype in [3, 1] {
        engine.send(&now(), mtype, b"here").unwrap();
    }
    receive(&engine, Want::Exactly(1)).unwrap();
    let look = || {
        let counts = engine.counts_hint();
        let (messages, bytes) = (counts.messages, counts.bytes);
        (messages, bytes, engine.totals().0, engine.oldest_hint())
    };
    let before = look();
    assert_eq!((before.0, before.1, before.2), (1, 4, 2));
    assert!(
        before
            .3
            .is_some_and(|oldest| (began..=began + 600 * clock::SECOND).contains(&oldest))
    );
    let held = engine.with_lock(thread::current(), Deadline::Passed, |_, _| {
        // The other thread would wait for ever if it took the lock that this thread holds.
        std::thread::scope(|scope| Ok(scope.spawn(look).join().unwrap()))
    });
    assert_eq!(held, Ok(before));
}

#[test]
fn room_is_counted_in_bytes_and_in_messages() {
    let engine = engine(10);
    engine.send(&now(), 1, &[0; 8]).unwrap();
    assert_eq!(engine.send(&now(), 1, &[0; 3]), Err(Refused::NotNow));
    engine.send(&now(), 1, &[0; 2]).unwrap();
    for _ in 2..10 {
        engine.send(&now(), 1, &[]).unwrap();
    }
    assert_eq!(engine.send(&now(), 1, &[]), Err(Refused::NotNow));
}

#[test]
fn a_message_of_any_length_comes_back_as_it_was() {
    let engine = engine(1 << 20);
    let lens = (0..200).step_by(if cfg!(miri) { 40 } else { 1 });
    let messages: Vec<Vec<u8>> = lens.map(|n| vec![n as u8; n * n % 8193]).collect();
    for message in &messages {
        engine.send(&now(), 5, message).unwrap();
    }
    for message in messages {
        assert_eq!(receive(&engine, Want::Any), Ok((5, message)));
    }
}

#[test]
fn threads_that_receive_by_their_own_type_bounce_messages() {
    let engine = engine(16_384);
    std::thread::scope(|scope| {
        for mtype in 1..=4 {
            let engine = &engine;
            scope.spawn(move || {
                let partner = if mtype % 2 == 1 { mtype + 1 } else { mtype - 1 };
                let mut buffer = [0; 8];
                for round in 0..ROUNDS {
                    if mtype % 2 == 1 {
                        engine.send(&soon(), partner, &round.to_ne_bytes()).unwrap();
                    }
                    let taken = engine
                        .receive(&soon(), Want::Exactly(mtype), &mut buffer, false)
                        .unwrap();
                    assert_eq!((taken.len, u64::from_ne_bytes(buffer)), (8, round));
                    if mtype % 2 == 0 {
                        engine.send(&soon(), partner, &round.to_ne_bytes()).unwrap();
                    }
                }
            });
        }
    });
    let counts = engine.counts(thread::current()).unwrap();
    assert_eq!((counts.messages, counts.receivers), (0, 0));
}

#[test]
fn a_full_queue_streams() {
    let engine = engine(64);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                for n in 0..ROUNDS {
                    engine.send(&soon(), 1, &n.to_ne_bytes()).unwrap();
                }
            });
        }
        let mut sum = 0;
        let mut buffer = [0; 8];
        for _ in 0..2 * ROUNDS {
            engine
                .receive(&soon(), Want::Any, &mut buffer, false)
                .unwrap();
            sum += u64::from_ne_bytes(buffer);
        }
        assert_eq!(sum, (ROUNDS - 1) * ROUNDS);
    });
}

#[test]
fn a_receiver_with_too_small_a_buffer_is_refused_and_the_next_one_gets_the_message() {
    let engine = engine(16_384);
    std::thread::scope(|scope| {
        let waits = |size: usize| {
            let before = engine.counts(thread::current()).unwrap().receivers;
            let engine = &engine;
            let waiter =
                scope.spawn(move || engine.receive(&soon(), Want::Any, &mut vec![0; size], false));
            while engine.counts(thread::current()).unwrap().receivers == before {
                std::thread::yield_now();
            }
            waiter
        };
        let (short, long) = (waits(3), waits(10));
        engine.send(&now(), 4, &[1; 10]).unwrap();
        assert_eq!(
            short.join().unwrap(),
            Err(Refused::Own(Why::TooSmall { len: 10 }))
        );
        assert_eq!(long.join().unwrap(), Ok(Taken { len: 10, mtype: 4 }));
    });
}

#[test]
fn removal_ends_all_waiting() {
    let engine = engine(8);
    engine.send(&now(), 1, &[0; 8]).unwrap();
    std::thread::scope(|scope| {
        let sender = scope.spawn(|| engine.send(&soon(), 1, &[0; 8]));
        let receiver =
            scope.spawn(|| engine.receive(&soon(), Want::Exactly(2), &mut [0; 8], false));
        loop {
            let counts = engine.counts(thread::current()).unwrap();
            if (counts.senders, counts.receivers) == (1, 1) {
                break;
            }
            std::thread::yield_now();
        }
        let removed = engine.remove(thread::current(), |_| Ok::<(), ()>(()));
        assert_eq!(removed, Ok(Ok(())));
        assert_eq!(sender.join().unwrap(), Err(Refused::Own(Why::Removed)));
        assert_eq!(receiver.join().unwrap(), Err(Refused::Own(Why::Removed)));
    });
    assert_eq!(receive(&engine, Want::Any), Err(Refused::Own(Why::Removed)));
}

#[test]
fn a_batch_waits_for_room_for_all_of_it() {
    struct Three;
    impl super::Batch for Three {
        fn count(&self) -> usize {
            3
        }
        fn at(&self, index: usize) -> (i64, &[u8]) {
            (index as i64 + 1, &[9; 8])
        }
    }
    let engine = engine(24);
    engine.send(&now(), 7, &[0; 8]).unwrap();
    assert_eq!(engine.send_batch(&now(), &Three), Err(Refused::NotNow));
    std::thread::scope(|scope| {
        let sender = scope.spawn(|| engine.send_batch(&soon(), &Three));
        while engine.counts(thread::current()).unwrap().senders == 0 {
            std::thread::yield_now();
        }
        assert_eq!(receive(&engine, Want::Any), Ok((7, vec![0; 8])));
        assert_eq!(sender.join().unwrap(), Ok(()));
    });
    for mtype in 1..=3 {
        assert_eq!(receive(&engine, Want::Any), Ok((mtype, vec![9; 8])));
    }
}

#[test]
fn a_leased_message_has_one_holder_until_it_comes_back_to_its_place() {
    let engine = engine(16_384);
    for message in [b"first", b"later"] {
        engine.send(&now(), 1, message).unwrap();
    }
    let me = thread::current();
    let handle = engine.lease(&now(), Want::Any).unwrap();
    assert_eq!((handle.len, handle.deliveries), (5, 1));
    assert_eq!(engine.counts(me).unwrap().messages, 1);
    assert_eq!(engine.give_back(me, &handle), Ok(true));
    assert_eq!(engine.give_back(me, &handle), Ok(false));
    let handle = engine.lease(&now(), Want::Any).unwrap();
    assert_eq!(handle.deliveries, 2);
    assert_eq!(engine.acknowledge(me, &handle), Ok(true));
    assert_eq!(receive(&engine, Want::Any), Ok((1, b"later".to_vec())));
    assert_eq!(receive(&engine, Want::Any), Err(Refused::NotNow));
}

#[test]
fn a_waiter_that_a_dead_process_left_unserved_is_served_at_the_end_of_a_slice() {
    let engine = engine(8);
    std::thread::scope(|scope| {
        let receiver =
            scope.spawn(|| engine.receive(&soon(), Want::Exactly(2), &mut [0; 8], false));
        while engine.counts(thread::current()).unwrap().receivers == 0 {
            std::thread::yield_now();
        }
        let sent = engine.with_lock(thread::current(), Deadline::Passed, |receiving, _| {
            let (slot, _) = engine.fill(receiving, thread::current(), 2, b"unserved", 0)?;
            let sequence = engine.commit(receiving, slot)?;
            engine.order().push_back(receiving, slot, 2, sequence)?;
            engine.fixed().control.count_queued(receiving, 1, 8);
            Ok(())
        });
        assert_eq!(sent, Ok(()));
        assert_eq!(receiver.join().unwrap(), Ok(Taken { len: 8, mtype: 2 }));
        engine.send(&now(), 1, &[1; 8]).unwrap();
        let sender = scope.spawn(|| engine.send(&soon(), 3, &[3; 8]));
        while engine.counts(thread::current()).unwrap().senders == 0 {
            std::thread::yield_now();
        }
        let received = engine.with_lock(thread::current(), Deadline::Passed, |receiving, wakes| {
            let found = engine.find(receiving, Want::Any, wakes)?;
            Ok(engine.remove_and_free(receiving, found)?)
        });
        assert_eq!((received, sender.join().unwrap()), (Ok(()), Ok(())));
    });
    assert_eq!(receive(&engine, Want::Any), Ok((3, vec![3; 8])));
}

#[test]
fn corrupt_bytes_of_a_withdrawn_offer_are_no_damage() {
    for is_withdrawn in [true, false] {
        let engine = engine(8);
        let call = soon();
        let mut rounds = 0;
        let mut enlist = |receiving: ReceiverHeld<'_>, wakes: &mut _| {
            rounds += 1;
            if rounds > 1 {
                return Ok(Enlisted::Done("again"));
            }
            let choice = Choice::Message {
                want: Want::Any,
                longest: 8,
            };
            let waiter = engine.claim_record(receiving, &call, choice)?.unwrap();
            assert!(engine.reply(receiving, waiter, Reply::Message, wakes));
            Ok(Enlisted::Waiting(waiter))
        };
        let outcome = engine.wait_for(&call, List::Receivers, &mut enlist, &mut |me| {
            assert!(!is_withdrawn || waiters::unsettle(me.node()));
            Err(Refused::Fault(Fault::Damaged))
        });
        let expected = match is_withdrawn {
            true => Ok("again"),
            false => Err(Refused::Fault(Fault::Damaged)),
        };
        assert_eq!(outcome, expected);
    }
}

/// If each abandoned node cost a slice, the message would come later than the receiver's deadline.
#[test]
fn nodes_that_a_thread_has_jumped_away_from_hold_up_a_message_together_as_long_as_one() {
    if cfg!(miri) {
        // Under Miri, the wait for a lock does not end with a slice.
        return;
    }
    let engine = engine(16_384);
    let choice = || Choice::Message {
        want: Want::Any,
        longest: 8192,
    };
    for _ in 0..50 {
        assert!(
            engine
                .claim_record(ReceiverHeld::in_test(), &now(), choice())
                .unwrap()
                .is_some()
        );
    }
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(20));
            engine.send(&now(), 1, b"m").unwrap();
        });
        let call = call(Deadline::after(Duration::from_millis(4500)));
        let received = engine.receive(&call, Want::Any, &mut [0; 8192], false);
        assert!(received.is_ok(), "{:?}", received.err());
    });
}

fn try_receive(engine: &Engine, want: Want) -> Result<(i64, Vec<u8>), Refused> {
    taken(|buffer| engine.try_receive(&now(), want, buffer, false))
}

#[test]
fn a_receive_that_does_not_wait_lets_the_blocked_senders_message_in() {
    let engine = engine(1);
    engine.try_send(&now(), 1, b"a").unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| engine.send(&soon(), 2, b"b").unwrap());
        while engine.counts(thread::current()).unwrap().senders == 0 {
            std::thread::yield_now();
        }
        assert_eq!(try_receive(&engine, Want::Any), Ok((1, b"a".to_vec())));
        let admitted = try_receive(&engine, Want::Any);
        assert_eq!(admitted, Ok((2, b"b".to_vec())), "of the blocked sender");
    });
}

#[test]
fn a_receive_that_does_not_wait_cuts_a_message_only_if_it_is_told_to() {
    let engine = engine(16);
    engine.try_send(&now(), 1, b"long").unwrap();
    let mut buffer = [0; 2];
    let mut receive = |truncate| engine.try_receive(&now(), Want::Any, &mut buffer, truncate);
    let refused = Refused::Own(Why::TooSmall { len: 4 });
    assert_eq!(receive(false).err(), Some(refused), "it was cut");
    assert_eq!(receive(true).unwrap().len, 2);
    assert_eq!(&buffer, b"lo");
}

#[test]
fn a_call_that_does_not_wait_is_judged_by_the_rights_of_its_time() {
    let engine = engine(16);
    engine.try_send(&now(), 1, b"a").unwrap();
    let mut outdated = now();
    outdated.set_rights(2);
    let refused = Some(Refused::Own(Why::Rejudge));
    let sent = engine.try_send(&outdated, 1, b"b");
    assert_eq!(sent.err(), refused, "a send");
    let received = engine.try_receive(&outdated, Want::Any, &mut [0; 8], false);
    assert_eq!(received.err(), refused, "a receive");
    assert_eq!(try_receive(&engine, Want::Any), Ok((1, b"a".to_vec())));
    assert_eq!(try_receive(&engine, Want::Any), Err(Refused::NotNow));
}

#[test]
fn a_call_that_does_not_wait_is_refused_while_another_thread_keeps_the_lock() {
    let engine = engine(16);
    std::thread::scope(|scope| {
        let (tell, told) = std::sync::mpsc::channel();
        let (done, end) = std::sync::mpsc::channel();
        let engine = &engine;
        scope.spawn(move || {
            let lock = &engine.fixed().control.lock;
            let held = lock.lock_if_free(thread::current(), &engine.segment);
            tell.send(()).unwrap();
            end.recv().unwrap();
            held.unwrap().unlock();
        });
        told.recv().unwrap();
        let sent = engine.try_send(&now(), 1, b"a");
        assert_eq!(sent, Err(Refused::NotNow), "a send");
        let received = try_receive(engine, Want::Any);
        assert_eq!(received, Err(Refused::NotNow), "a receive");
        done.send(()).unwrap();
    });
}
