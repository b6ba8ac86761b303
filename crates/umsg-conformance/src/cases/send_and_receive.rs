//! Each sent message is received once, unchanged, and in order.

use crate::errno::Errno;
use crate::site::{Site, message};

subject! { $ send_and_receive, send_and_receive_cases:
    what_is_sent_is_received
    a_message_of_no_bytes_is_a_message
    a_message_of_exactly_the_message_size_fits
    a_message_one_byte_too_long_is_refused
    a_refused_message_is_not_in_the_queue
    a_buffer_longer_than_needed_is_filled_as_far_as_the_message_goes
    a_buffer_shorter_than_the_message_size_is_refused_even_for_a_short_message
    a_buffer_shorter_than_the_message_size_is_refused_even_on_an_empty_queue
    a_refused_buffer_leaves_the_message_in_the_queue
    a_failed_receive_leaves_the_buffer_alone
    the_priority_need_not_be_asked_for
    messages_of_one_priority_come_in_the_order_sent
    an_empty_nonblocking_queue_has_nothing_for_now
    a_full_nonblocking_queue_takes_nothing_for_now
    a_queue_holds_exactly_as_many_messages_as_it_says
    room_for_one_more_after_one_is_received
    every_byte_value_survives
    every_length_survives
    thousands_of_messages_go_through_a_small_queue
    a_queue_of_one_message_works
    a_descriptor_for_reading_can_not_send
    a_descriptor_for_writing_can_not_receive
    a_receive_sees_what_another_process_sent
    messages_of_several_processes_each_arrive_once
}

/// Returns bytes that depend on the seed and on their position, so that a test notices misplaced bytes.
fn pattern(seed: usize, length: usize) -> Vec<u8> {
    (0..length)
        .map(|at| (seed * 31 + at * 7 + at / 251) as u8)
        .collect()
}

fn what_is_sent_is_received(site: &Site) {
    let queue = site.queue(4, 64);
    assert_eq!(queue.send(b"hello", 3), Ok(()));
    assert_eq!(queue.messages(), 1);
    assert_eq!(queue.receive(), Ok(message("hello", 3)));
    assert_eq!(queue.messages(), 0);
}

fn a_message_of_no_bytes_is_a_message(site: &Site) {
    let queue = site.nonblocking(4, 8);
    assert_eq!(queue.send(b"", 1), Ok(()));
    assert_eq!(queue.send(b"", 2), Ok(()));
    assert_eq!(queue.messages(), 2);
    assert_eq!(queue.receive(), Ok(message("", 2)));
    assert_eq!(queue.receive(), Ok(message("", 1)));
    assert_eq!(queue.receive(), Err(Errno::EAGAIN));
}

fn a_message_of_exactly_the_message_size_fits(site: &Site) {
    for size in [1, 7, 64, 1000, 8192] {
        let queue = site.queue(1, size);
        let data = pattern(1, size as usize);
        assert_eq!(queue.send(&data, 0), Ok(()));
        assert_eq!(queue.receive(), Ok(message(&data, 0)));
    }
}

fn a_message_one_byte_too_long_is_refused(site: &Site) {
    for size in [1, 7, 64, 1000, 8191] {
        let queue = site.queue(1, size);
        assert_eq!(
            queue.send(pattern(1, size as usize + 1), 0),
            Err(Errno::EMSGSIZE)
        );
        assert_eq!(queue.send(pattern(1, 100_000), 0), Err(Errno::EMSGSIZE));
    }
}

fn a_refused_message_is_not_in_the_queue(site: &Site) {
    let queue = site.nonblocking(2, 8);
    assert_eq!(queue.send(b"much too long", 0), Err(Errno::EMSGSIZE));
    assert_eq!(queue.messages(), 0);
    assert_eq!(queue.receive(), Err(Errno::EAGAIN));
}

fn a_buffer_longer_than_needed_is_filled_as_far_as_the_message_goes(site: &Site) {
    let queue = site.queue(2, 8);
    assert_eq!(queue.send(b"abc", 9), Ok(()));
    let mut buffer = [0xee; 100];
    assert_eq!(queue.receive_into(&mut buffer), Ok((3, 9)));
    assert_eq!(&buffer[..3], b"abc");
    assert!(buffer[3..].iter().all(|&byte| byte == 0xee));
}

fn a_buffer_shorter_than_the_message_size_is_refused_even_for_a_short_message(site: &Site) {
    let queue = site.queue(2, 8);
    assert_eq!(queue.send(b"abc", 0), Ok(()));
    assert_eq!(queue.receive_into(&mut [0; 7]), Err(Errno::EMSGSIZE));
    assert_eq!(queue.receive_into(&mut []), Err(Errno::EMSGSIZE));
}

fn a_buffer_shorter_than_the_message_size_is_refused_even_on_an_empty_queue(site: &Site) {
    let queue = site.queue(2, 8);
    assert_eq!(queue.receive_into(&mut [0; 7]), Err(Errno::EMSGSIZE));
    assert_eq!(queue.receive_into(&mut []), Err(Errno::EMSGSIZE));
}

fn a_refused_buffer_leaves_the_message_in_the_queue(site: &Site) {
    let queue = site.queue(2, 8);
    assert_eq!(queue.send(b"abc", 4), Ok(()));
    assert_eq!(queue.receive_into(&mut [0; 3]), Err(Errno::EMSGSIZE));
    assert_eq!(queue.receive(), Ok(message("abc", 4)));
}

fn a_failed_receive_leaves_the_buffer_alone(site: &Site) {
    let queue = site.nonblocking(2, 8);
    let mut buffer = [0xee; 8];
    assert_eq!(queue.receive_into(&mut buffer), Err(Errno::EAGAIN));
    assert_eq!(buffer, [0xee; 8]);
}

fn the_priority_need_not_be_asked_for(site: &Site) {
    let queue = site.queue(2, 8);
    assert_eq!(queue.send(b"abc", 9), Ok(()));
    let mut buffer = [0; 8];
    let received = site.ask(
        site.backend()
            .receive_ignoring_priority(queue.fd(), &mut buffer),
    );
    assert_eq!(received, Ok(3));
    assert_eq!(&buffer[..3], b"abc");
}

fn messages_of_one_priority_come_in_the_order_sent(site: &Site) {
    let queue = site.nonblocking(10, 8);
    for number in 0..10 {
        assert_eq!(queue.send([number], 5), Ok(()));
    }
    let received: Vec<u8> = queue
        .drain()
        .iter()
        .map(|message| message.data[0])
        .collect();
    assert_eq!(received, (0..10).collect::<Vec<u8>>());
}

fn an_empty_nonblocking_queue_has_nothing_for_now(site: &Site) {
    let queue = site.nonblocking(2, 8);
    assert_eq!(queue.receive(), Err(Errno::EAGAIN));
    assert_eq!(queue.send(b"one", 0), Ok(()));
    assert_eq!(queue.receive(), Ok(message("one", 0)));
    assert_eq!(queue.receive(), Err(Errno::EAGAIN));
}

fn a_full_nonblocking_queue_takes_nothing_for_now(site: &Site) {
    let queue = site.nonblocking(2, 8);
    assert_eq!(queue.send(b"one", 0), Ok(()));
    assert_eq!(queue.send(b"two", 0), Ok(()));
    assert_eq!(queue.send(b"three", 9), Err(Errno::EAGAIN));
    assert_eq!(queue.send(b"", 0), Err(Errno::EAGAIN));
    assert_eq!(queue.drain(), [message("one", 0), message("two", 0)]);
}

fn a_queue_holds_exactly_as_many_messages_as_it_says(site: &Site) {
    for depth in 1..=10 {
        let queue = site.nonblocking(depth, 8);
        assert_eq!(queue.fill(), depth as usize);
        assert_eq!(queue.messages(), depth);
        assert_eq!(queue.drain().len(), depth as usize);
    }
}

fn room_for_one_more_after_one_is_received(site: &Site) {
    let queue = site.nonblocking(3, 8);
    queue.fill();
    for _ in 0..100 {
        assert!(queue.receive().is_ok());
        assert_eq!(queue.send(b"y", 0), Ok(()));
        assert_eq!(queue.send(b"z", 0), Err(Errno::EAGAIN));
    }
}

fn every_byte_value_survives(site: &Site) {
    let queue = site.queue(1, 256);
    let data: Vec<u8> = (0..=255).collect();
    assert_eq!(queue.send(&data, 0), Ok(()));
    assert_eq!(queue.receive(), Ok(message(&data, 0)));
}

fn every_length_survives(site: &Site) {
    let queue = site.queue(2, 1100);
    for length in 0..=1100 {
        let data = pattern(length, length);
        assert_eq!(queue.send(&data, 0), Ok(()));
        assert_eq!(queue.receive(), Ok(message(&data, 0)), "{length} bytes");
    }
}

fn thousands_of_messages_go_through_a_small_queue(site: &Site) {
    let queue = site.nonblocking(7, 64);
    let (mut sent, mut received) = (0, 0);
    while received < 20_000 {
        for _ in 0..=sent % 7 {
            if queue.send(pattern(sent, sent % 65), 0) == Ok(()) {
                sent += 1;
            }
        }
        for _ in 0..=received % 5 {
            if let Ok(got) = queue.receive() {
                assert_eq!(got, message(pattern(received, received % 65), 0));
                received += 1;
            }
        }
    }
    assert_eq!(queue.drain().len(), sent - received);
}

fn a_queue_of_one_message_works(site: &Site) {
    let queue = site.nonblocking(1, 1);
    for number in 0..1000_u32 {
        assert_eq!(queue.send([number as u8], number), Ok(()));
        assert_eq!(queue.send(b"x", 0), Err(Errno::EAGAIN));
        assert_eq!(queue.receive(), Ok(message([number as u8], number)));
        assert_eq!(queue.receive(), Err(Errno::EAGAIN));
    }
}

fn a_descriptor_for_reading_can_not_send(site: &Site) {
    let name = site.name("access");
    site.queue_called(&name, 2, 8);
    let reader = site.open(&name, libc::O_RDONLY).expect("opening it");
    assert_eq!(reader.send(b"x", 0), Err(Errno::EBADF));
    assert_eq!(reader.messages(), 0);
}

fn a_descriptor_for_writing_can_not_receive(site: &Site) {
    let name = site.name("access");
    let queue = site.queue_called(&name, 2, 8);
    assert_eq!(queue.send(b"x", 0), Ok(()));
    let writer = site.open(&name, libc::O_WRONLY).expect("opening it");
    assert_eq!(writer.receive(), Err(Errno::EBADF));
    assert_eq!(writer.messages(), 1);
}

fn a_receive_sees_what_another_process_sent(site: &Site) {
    let name = site.name("processes");
    let queue = site.queue_called(&name, 2, 64);
    let child = site.child(|| {
        let queue = site.open(&name, libc::O_WRONLY)?;
        queue.send(pattern(3, 50), 7)
    });
    assert_eq!(child.result(), Ok(()));
    assert_eq!(queue.receive(), Ok(message(pattern(3, 50), 7)));
}

fn messages_of_several_processes_each_arrive_once(site: &Site) {
    const SENDERS: u8 = 3;
    const EACH: u16 = 500;
    let queue = site.queue(4, 8);
    let senders: Vec<_> = (0..SENDERS)
        .map(|sender| {
            site.child(move || {
                for number in 0..EACH {
                    let [low, high] = number.to_le_bytes();
                    queue.send([sender, low, high], 0)?;
                }
                Ok(())
            })
        })
        .collect();
    let mut next = [0; SENDERS as usize];
    for _ in 0..u16::from(SENDERS) * EACH {
        let got = queue.receive().expect("a message").data;
        let number = u16::from_le_bytes([got[1], got[2]]);
        assert_eq!(number, next[usize::from(got[0])], "sender {}", got[0]);
        next[usize::from(got[0])] += 1;
    }
    for sender in senders {
        assert_eq!(sender.result(), Ok(()));
    }
    assert_eq!(queue.messages(), 0);
}
