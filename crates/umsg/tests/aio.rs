//! Queues with tokio: several tasks, several processes, and futures that are dropped.

mod support;

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::task::Poll;
use std::time::Duration;
use support::child::{Child, Exit};
use support::place::Place;
use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout;
use umsg::aio::{posix, sysv};
use umsg::sysv::Want;

const STUCK: Duration = Duration::from_secs(20);

fn one_thread() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

fn two_threads() -> Runtime {
    Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap()
}

#[test]
fn a_task_waits_for_a_message_of_another_process_and_for_room() {
    let place = Place::new();
    let (queue, back) = (place.create("/q", 2, 8), place.create("/back", 2, 8));
    let mut child = Child::run(|| {
        std::thread::sleep(Duration::from_millis(20));
        let (queue, back) = (place.open("/q"), place.open("/back"));
        for number in 0..100_u64 {
            queue.send(&number.to_ne_bytes(), 0).unwrap();
        }
        for number in 0..100_u64 {
            assert_eq!(back.receive_vec().unwrap().data, number.to_ne_bytes());
        }
        0
    });
    one_thread().block_on(async {
        let queue = posix::Queue::new(queue).unwrap();
        let back = posix::Queue::new(back).unwrap();
        for number in 0..100_u64 {
            let message = timeout(STUCK, queue.receive_vec()).await.unwrap().unwrap();
            assert_eq!(message.data, number.to_ne_bytes());
        }
        for number in 0..100_u64 {
            let message = number.to_ne_bytes();
            timeout(STUCK, back.send(&message, 0))
                .await
                .unwrap()
                .unwrap();
        }
    });
    child.expect(Exit::Code(0), "the other process");
}

#[test]
fn tasks_that_share_a_queue_get_messages_in_turn_and_none_twice() {
    const TASKS: usize = 4;
    const EACH: usize = 500;
    for runtime in [one_thread(), two_threads()] {
        let (_place, queue) = Place::new().with_queue("/q", 4, 8);
        let total = Arc::new(AtomicUsize::new(0));
        runtime.block_on(async {
            let queue = Arc::new(posix::Queue::new(queue).unwrap());
            let mut tasks = Vec::new();
            for task in 0..TASKS {
                let (receiving, sending) = (Arc::clone(&queue), Arc::clone(&queue));
                let total = Arc::clone(&total);
                tasks.push(tokio::spawn(async move {
                    for _ in 0..EACH {
                        let message = receiving.receive_vec().await.unwrap();
                        let number = u64::from_ne_bytes(message.data.try_into().unwrap());
                        total.fetch_add(number as usize, SeqCst);
                    }
                }));
                tasks.push(tokio::spawn(async move {
                    for number in 0..EACH {
                        let number = (task * EACH + number) as u64;
                        sending.send(&number.to_ne_bytes(), 0).await.unwrap();
                    }
                }));
            }
            for task in tasks {
                timeout(STUCK, task).await.unwrap().unwrap();
            }
            assert_eq!(queue.get_ref().attributes().messages, 0);
        });
        let all = TASKS * EACH;
        assert_eq!(total.load(SeqCst), all * (all - 1) / 2);
    }
}

#[test]
fn the_longest_waiter_is_served_first() {
    let (_place, queue) = Place::new().with_queue("/q", 4, 8);
    one_thread().block_on(async {
        let queue = Arc::new(posix::Queue::new(queue).unwrap());
        let order = Arc::new(std::sync::Mutex::new(Vec::new()));
        let mut tasks = Vec::new();
        for task in 0..5_u8 {
            let (queue, order) = (Arc::clone(&queue), Arc::clone(&order));
            tasks.push(tokio::spawn(async move {
                let message = queue.receive_vec().await.unwrap();
                order.lock().unwrap().push((task, message.data[0]));
            }));
            tokio::task::yield_now().await;
        }
        for message in 0..5_u8 {
            queue.send(&[message], 0).await.unwrap();
            tokio::task::yield_now().await;
        }
        for task in tasks {
            timeout(STUCK, task).await.unwrap().unwrap();
        }
        let expected: Vec<(u8, u8)> = (0..5).map(|task| (task, task)).collect();
        assert_eq!(*order.lock().unwrap(), expected);
    });
}

#[test]
fn a_future_that_is_dropped_loses_no_message_and_sends_none() {
    let (place, queue) = Place::new().with_queue("/q", 1, 8);
    let sender = place.open("/q");
    let brief = Duration::from_micros(200);
    one_thread().block_on(async {
        let queue = posix::Queue::new(queue).unwrap();
        let mut received = 0_u64;
        let thread = std::thread::spawn(move || {
            for number in 0..2000_u64 {
                sender.send(&number.to_ne_bytes(), 0).unwrap();
            }
        });
        while received < 2000 {
            if let Ok(message) = timeout(brief, queue.receive_vec()).await {
                assert_eq!(message.unwrap().data, received.to_ne_bytes());
                received += 1;
            }
        }
        thread.join().unwrap();
        queue.send(b"first", 0).await.unwrap();
        for _ in 0..100 {
            assert!(timeout(brief, queue.send(b"never", 0)).await.is_err());
        }
        assert_eq!(queue.receive_vec().await.unwrap().data, b"first");
        assert_eq!(queue.get_ref().attributes().messages, 0);
    });
}

/// Polls a future once. Returns whether the future is pending.
async fn waits<F: Future>(mut future: Pin<&mut F>) -> bool {
    let poll = std::future::poll_fn(|context| Poll::Ready(future.as_mut().poll(context)));
    poll.await.is_pending()
}

#[test]
fn a_task_that_sends_gets_the_room_of_a_leased_message() {
    // While the only message is leased, there are neither messages nor room.
    let (place, queue) = Place::new().with_queue("/q", 1, 8);
    let other = place.open("/q");
    one_thread().block_on(async {
        let queue = posix::Queue::new(queue).unwrap();
        for _ in 0..20 {
            other.try_send(b"first", 0).unwrap();
            let lease = other.try_receive_lease().unwrap();
            let brief = Duration::from_millis(1);
            let in_vain = timeout(brief, queue.send(b"never", 0)).await;
            assert!(in_vain.is_err(), "the task has found no room");
            let mut sending = pin!(queue.send(b"second", 0));
            assert!(waits(sending.as_mut()).await);
            lease.acknowledge().unwrap();
            let sent = timeout(STUCK, sending).await;
            sent.expect("the task learns of the room").unwrap();
            assert_eq!(other.try_receive(&mut [0; 8]).unwrap().len, 6);
        }
    });
}

#[test]
fn a_task_that_sends_gets_the_room_of_a_leased_message_of_a_system_v_queue() {
    let (place, queue) = Place::new().with_sysv_queue(7);
    let other = place.open_sysv(7);
    let all = vec![0; other.status().unwrap().entry.qbytes as usize];
    let halves = all.split_at(all.len() / 2);
    one_thread().block_on(async {
        let queue = sysv::Queue::new(queue).unwrap();
        for _ in 0..20 {
            other.try_send(1, halves.0).unwrap();
            other.try_send(1, halves.1).unwrap();
            let lease = || other.try_receive_lease(Want::Any).unwrap();
            let leases = [lease(), lease()];
            let brief = Duration::from_millis(1);
            let in_vain = timeout(brief, queue.send(1, b"never")).await;
            assert!(in_vain.is_err(), "the task has found no room");
            let mut sending = pin!(queue.send(1, b"second"));
            assert!(waits(sending.as_mut()).await);
            for lease in leases {
                lease.acknowledge().unwrap();
            }
            let sent = timeout(STUCK, sending).await;
            sent.expect("the task learns of the room").unwrap();
            assert_eq!(other.try_receive(Want::Any, &mut [0; 8]).unwrap().len, 6);
        }
    });
}

#[test]
fn tasks_wait_for_the_types_that_they_want() {
    let (place, queue) = Place::new().with_sysv_queue(7);
    let mut child = Child::run(|| {
        let queue = place.open_sysv(7);
        std::thread::sleep(Duration::from_millis(20));
        for mtype in (1..=5).rev() {
            for _ in 0..20 {
                queue.send(mtype, &[mtype as u8]).unwrap();
            }
        }
        0
    });
    two_threads().block_on(async {
        let queue = Arc::new(sysv::Queue::new(queue).unwrap());
        let tasks = (1..=5_i64).map(|mtype| {
            let queue = Arc::clone(&queue);
            tokio::spawn(async move {
                for _ in 0..20 {
                    let mut buffer = [0; 8];
                    let received = queue
                        .receive(Want::Exactly(mtype), &mut buffer)
                        .await
                        .unwrap();
                    assert_eq!((received.mtype, i64::from(buffer[0])), (mtype, mtype));
                }
            })
        });
        for task in tasks.collect::<Vec<_>>() {
            timeout(STUCK, task).await.unwrap().unwrap();
        }
    });
    child.expect(Exit::Code(0), "the sender");
}

#[test]
fn a_task_waits_for_as_much_room_as_it_needs_and_learns_of_a_removal() {
    let (place, queue) = Place::new().with_sysv_queue(7);
    let other = place.open_sysv(7);
    one_thread().block_on(async {
        let queue = Arc::new(sysv::Queue::new(queue).unwrap());
        let long = vec![0; other.status().unwrap().entry.qbytes as usize / 2 - 10];
        queue.send(1, &long).await.unwrap();
        queue.send(1, &long).await.unwrap();
        let sending = Arc::clone(&queue);
        let len = long.len();
        let task = tokio::spawn(async move { sending.send(2, &vec![0; len]).await });
        tokio::time::sleep(Duration::from_millis(5)).await;
        assert!(!task.is_finished(), "a few bytes are not enough");
        other.receive(Want::Any, &mut vec![0; len]).unwrap();
        timeout(STUCK, task).await.unwrap().unwrap().unwrap();
        let receiving = Arc::clone(&queue);
        let task = tokio::spawn(async move { receiving.receive(Want::Exactly(9), &mut []).await });
        tokio::time::sleep(Duration::from_millis(5)).await;
        other.remove().unwrap();
        let outcome = timeout(STUCK, task).await.unwrap().unwrap();
        assert_eq!(outcome, Err(umsg::sysv::ReceiveError::Removed));
    });
}
