//! Corrupted lease records.

use super::*;

/// The offset of the lease records in a queue for 10 messages: section 1 of docs/format.md.
const HOLDING: u64 = 1024;
const HOLDS: u64 = 589_824;
const HOLD: u64 = 48;

/// Makes all calls that use the corrupted lease records. Every call has to return, with any result.
fn use_in_place(queue: &Queue) {
    let soon = std::time::Duration::from_millis(1);
    let mut held = Vec::new();
    let mut rooms = Vec::new();
    for round in 0..4 {
        let _ = queue.send_timeout(&[round; 90], u32::from(round), soon);
        rooms.extend(queue.try_reserve(90));
        rooms.extend(queue.reserve_timeout(1, soon));
        held.extend(queue.try_receive_lease());
        held.extend(queue.receive_lease_timeout(soon));
        for lease in &held {
            let _ = (lease.limit(std::time::Duration::ZERO), lease.to_vec());
        }
        let _ = (queue.attributes(), queue.messages(20));
        if let Some(room) = rooms.pop() {
            let _ = room.commit(3);
        }
        if let Some(lease) = held.pop() {
            let _ = lease.acknowledge();
        }
        let _ = queue.try_receive(&mut [0; 100]);
        let _ = queue.status();
    }
}

#[test]
fn corrupted_lease_records_make_errors_and_nothing_worse() {
    let mut random = support::Random::new(7);
    for round in 0..150 {
        let (place, queue) = Place::new().with_queue("/q", 10, 100);
        for number in 0..6 {
            queue.try_send(&[number; 100], 2).unwrap();
        }
        let held: Vec<_> = (0..3).map(|_| queue.try_receive_lease().unwrap()).collect();
        let room = queue.try_reserve(100).unwrap();
        let file = fs::File::options()
            .read(true)
            .write(true)
            .open(place.path().join("mq/q"))
            .unwrap();
        let word = |offset| {
            let mut word = [0; 4];
            file.read_exact_at(&mut word, offset).unwrap();
            u32::from_ne_bytes(word)
        };
        // This process has three leases and one reservation, so their records are in use.
        let states: Vec<u32> = (0..5).map(|index| word(HOLDS + index * HOLD)).collect();
        assert_eq!(states, [2, 2, 2, 1, 0]);
        assert_eq!(word(HOLDS + 16), std::process::id());

        let mut scribbles = Vec::new();
        for _ in 0..=random.below(3) {
            let offset = match random.below(3) {
                0 => HOLDING + random.below(20) * 4,
                _ => HOLDS + random.below(5 * HOLD / 4) * 4,
            };
            let value = match random.below(4) {
                0 => random.next() as u32,
                1 => u32::MAX >> random.below(32),
                _ => random.below(7) as u32,
            };
            file.write_all_at(&value.to_ne_bytes(), offset).unwrap();
            scribbles.push((offset, value));
        }
        eprintln!("{round}: {scribbles:?}");
        in_child(|| {
            use_in_place(&place.open("/q"));
            0
        });
        // The calls of the process that holds the leases return, too, and so does a repair.
        drop((held, room));
        use_in_place(&queue);
    }
}
