//! The file of a snapshot: a written file can be read, an altered file is refused, and other versions are read as far as
//! possible.

mod support;

use proptest::prelude::*;
use std::io::{self, Write};
use std::time::{Duration, SystemTime};
use support::place::Place;
use support::written::{Written, sample};
use umsg::posix::{OnFull, OpenOptions, Peeked, Queue, Snapshot, SnapshotError, SnapshotPart};

fn read(bytes: &[u8]) -> Result<Snapshot, SnapshotError> {
    Snapshot::read(&mut &bytes[..])
}

#[track_caller]
fn refusal(bytes: &[u8]) -> SnapshotError {
    read(bytes).expect_err("a bad snapshot was read")
}

fn time(nanoseconds: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_nanos(nanoseconds)
}

#[track_caller]
fn assert_is(snapshot: &Snapshot, written: &Written) {
    let info = snapshot.info();
    assert_eq!(info.max_messages, written.max_messages as usize);
    assert_eq!(info.message_size, written.message_size as usize);
    assert_eq!(info.mode, written.mode);
    assert_eq!(info.messages, written.messages.len());
    assert_eq!(info.taken, time(written.taken));
    assert_eq!(info.on_full, OnFull::DropOldest);
    let nanoseconds = Duration::from_nanos(written.time_to_live);
    assert_eq!(info.time_to_live, Some(nanoseconds));
    assert_eq!(info.max_deliveries, Some(written.max_deliveries));
    assert_eq!(info.dead_letter, Some("/dead".into()));
    let name = info.name.as_deref().map(|name| name.as_encoded_bytes());
    assert_eq!(name.unwrap_or_default(), written.name);
    assert_eq!(snapshot.messages().len(), written.messages.len());
    for (message, saved) in snapshot.messages().zip(&written.messages) {
        assert_eq!(message.data, saved.data);
        assert_eq!((message.priority, message.pid), (saved.priority, saved.pid));
        assert_eq!(message.sent, time(saved.sent));
        assert_eq!(message.returns, saved.returns);
    }
}

/// Returns the checked-in file of version 1.0.
fn checked_in() -> Vec<u8> {
    digits(include_str!("data/snapshot-1.0.hex"))
}

/// Returns the bytes of a file that is written as lines of hexadecimal digits.
fn digits(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
    digits
        .chunks(2)
        .map(|two| u8::from_str_radix(std::str::from_utf8(two).unwrap(), 16).unwrap())
        .collect()
}

#[test]
fn the_file_of_version_1_0_is_read_and_written_as_it_was() {
    let bytes = checked_in();
    let snapshot = read(&bytes).unwrap();
    assert_is(&snapshot, &sample());
    assert_eq!(sample().bytes(), bytes);
    let mut again = Vec::new();
    assert_eq!(snapshot.write(&mut again).unwrap(), bytes.len() as u64);
    assert_eq!(again, bytes);
}

/// Returns a file of version 3.0: its last message is delayed by an hour, and its queue has all flags and settings that this version adds.
fn with_states() -> Written {
    let mut written = sample();
    written.version = (3, 0);
    written.added.extend(7_u32.to_le_bytes());
    written.added.extend(4_u32.to_le_bytes());
    for delay in [1_000_000_000, 60_000_000_000_u64] {
        written.added.extend(delay.to_le_bytes());
    }
    written.record_head = 32;
    for saved in &mut written.messages {
        saved.added = 0_u64.to_le_bytes().to_vec();
    }
    written.messages.rotate_left(1);
    let last = written.messages.last_mut().unwrap();
    last.added = 3_600_000_000_000_u64.to_le_bytes().to_vec();
    written
}

#[test]
fn the_file_of_version_3_0_is_read_and_written_as_it_was() {
    let bytes = digits(include_str!("data/snapshot-3.0.hex"));
    assert_eq!(with_states().bytes(), bytes);
    let snapshot = read(&bytes).unwrap();
    assert_is(&snapshot, &with_states());
    let info = snapshot.info();
    assert!(info.remove_on_last_close && info.close_with_last_producer && info.send_closed);
    assert_eq!((info.fair_priorities, info.delayed), (Some(4), 1));
    let [first, most] = [1, 60].map(Duration::from_secs);
    assert_eq!(info.retry_delay, Some((first, most)));
    let delays = snapshot.messages().map(|message| message.delay);
    let delays: Vec<_> = delays.collect();
    assert_eq!(delays, [None, None, None, Some(Duration::from_secs(3600))]);
    let mut again = Vec::new();
    snapshot.write(&mut again).unwrap();
    assert_eq!(again, bytes);
}

#[test]
fn states_that_no_queue_has_are_refused() {
    let mut written = with_states();
    written.added[4..8].copy_from_slice(&65_536_u32.to_le_bytes());
    assert!(matches!(
        refusal(&written.bytes()),
        SnapshotError::Damaged { .. }
    ));
    let mut written = with_states();
    written.added.truncate(16);
    assert!(matches!(
        refusal(&written.bytes()),
        SnapshotError::Damaged { .. }
    ));
    let mut written = with_states();
    written.record_head = 24;
    assert!(matches!(
        refusal(&written.bytes()),
        SnapshotError::Damaged { .. }
    ));
}

/// Returns the bytes of a history: docs/snapshot.md. The message was dropped from /jobs, and its sender's user is unknown.
fn history() -> Vec<u8> {
    let mut bytes = Vec::new();
    for word in [1_u32, 3, 4242, 0, 7, 2, 5, 0] {
        bytes.extend(word.to_le_bytes());
    }
    for time in [
        5_000_000_000,
        0,
        7_000_000_000,
        1_799_999_999_000_000_000_u64,
    ] {
        bytes.extend(time.to_le_bytes());
    }
    bytes.extend(b"/jobs");
    bytes.resize(320, 0);
    bytes
}

/// Adds a history to the first and to the last message of a file. The heads of the other messages get empty room for a history.
fn with_histories(mut written: Written) -> Written {
    written.record_head += 320;
    let last = written.messages.len() - 1;
    for (position, saved) in written.messages.iter_mut().enumerate() {
        match [0, last].contains(&position) {
            true => saved.added.extend(history()),
            false => saved.added.extend([0; 320]),
        }
    }
    written
}

/// Returns a file of version 1.2.
fn of_version_1_2() -> Written {
    let mut written = with_histories(sample());
    written.version = (1, 2);
    written
}

#[test]
fn histories_are_read_and_written_with_and_without_delays() {
    for written in [of_version_1_2(), with_histories(with_states())] {
        let bytes = written.bytes();
        let snapshot = read(&bytes).unwrap();
        assert_is(&snapshot, &written);
        let saved: Vec<_> = snapshot.messages().collect();
        for (position, message) in saved.iter().enumerate() {
            let Some(history) = message.history() else {
                assert!([1, 2].contains(&position));
                continue;
            };
            assert_eq!(history.source.as_deref(), Some("/jobs".as_ref()));
            assert_eq!((history.uid, history.deliveries), (None, 7));
            assert_eq!(history.sent, time(5_000_000_000));
            assert_eq!(history.last_delivery, Some(time(7_000_000_000)));
            assert_eq!((history.pid, history.first_delivery), (4242, None));
        }
        let is_delayed = written.version.0 == 3;
        assert_eq!(saved[3].delay.is_some(), is_delayed);
        let mut again = Vec::new();
        snapshot.write(&mut again).unwrap();
        assert_eq!(again, bytes);
    }
}

#[test]
fn a_history_with_an_impossible_name_is_refused() {
    for (mut written, at) in [(of_version_1_2(), 24), (with_histories(with_states()), 32)] {
        written.messages[3].added[at..][..4].copy_from_slice(&257_u32.to_le_bytes());
        let error = refusal(&written.bytes());
        let is_damage = matches!(
            error,
            SnapshotError::Damaged {
                part: SnapshotPart::Message(3),
                ..
            }
        );
        assert!(is_damage, "{error}");
    }
}

#[test]
fn a_file_of_version_3_with_any_byte_altered_or_cut_short_is_refused() {
    let bytes = with_histories(with_states()).bytes();
    for at in 0..bytes.len() {
        let mut altered = bytes.clone();
        altered[at] ^= 0x81;
        refusal(&altered);
        match refusal(&bytes[..at]) {
            SnapshotError::Truncated { at: end, .. } => assert_eq!(end, at as u64),
            other => panic!("{at}: {other}"),
        }
    }
}

/// Files whose checksums are right, with values that no queue has.
#[test]
fn hostile_states_give_a_sound_queue() {
    let place = Place::new();
    let mut options = OpenOptions::new();
    options.read(true).write(true).namespace(&place.namespace);
    let longest = u64::MAX.to_le_bytes();
    let hostile: [fn(&mut Written); 5] = [
        // All flags, and a first retry delay beyond the longest.
        |w| w.added[..4].fill(0xff),
        |w| w.added[8..16].fill(0xff),
        |w| w.added[16..24].fill(0xff),
        // The delayed message is the first one. Its count of returns is higher than a queue counts, and all bits of some fields of its history are
        // set.
        |w| {
            w.messages.rotate_right(1);
            w.messages[0].returns = u32::MAX;
            w.messages[0].added[8..][4..24].fill(0xff);
        },
        |w| {
            w.messages
                .iter_mut()
                .for_each(|saved| saved.added[..8].fill(0xff))
        },
    ];
    for (number, change) in hostile.into_iter().enumerate() {
        let mut written = with_histories(with_states());
        (written.max_messages, written.time_to_live) = (4, 0);
        written.messages[3].added[..8].copy_from_slice(&longest);
        change(&mut written);
        let snapshot = read(&written.bytes()).unwrap_or_else(|error| panic!("{number}: {error}"));
        let name = format!("/hostile-{number}");
        let queue = snapshot.restore(&name, &options).unwrap();
        let diagnosis = umsg::posix::diagnose(&place.namespace, &name).unwrap();
        assert!(
            diagnosis.is_healthy(),
            "{number}: {:#?}",
            diagnosis.problems
        );
        let counts = queue.attributes();
        assert_eq!(counts.messages + counts.delayed, 4, "{number}");
        while queue.try_receive_vec().is_ok() {}
        let delayed = if number == 4 { 4 } else { 1 };
        assert_eq!(queue.attributes().delayed, delayed, "{number}");
    }
}

#[test]
fn what_a_later_minor_version_adds_is_passed_over() {
    let mut later = with_states();
    later.version.1 = 9;
    later.added.extend(b"a field");
    later.record_head = 32 + 5;
    for saved in &mut later.messages {
        saved.added.extend(b"added");
    }
    assert_is(&read(&later.bytes()).unwrap(), &with_states());
    let mut later = sample();
    later.version.1 = 9;
    later.added = b"a field that this version does not know".to_vec();
    later.record_head = 24 + 5;
    for saved in &mut later.messages {
        saved.added = b"added".to_vec();
    }
    assert_is(&read(&later.bytes()).unwrap(), &sample());
}

#[test]
fn another_major_version_is_refused_by_its_number() {
    for found in [0, 2, u16::MAX] {
        let mut other = sample();
        other.version.0 = found;
        let error = refusal(&other.bytes());
        assert_eq!(error.errno(), libc::EINVAL);
        let said = format!("format {found}");
        assert!(error.to_string().contains(&said), "{error}");
    }
}

#[test]
fn a_file_with_any_byte_altered_is_refused() {
    let bytes = sample().bytes();
    for at in 0..bytes.len() {
        for change in [0x01, 0x80, 0xff] {
            let mut altered = bytes.clone();
            altered[at] ^= change;
            let error = refusal(&altered);
            let right = match at {
                0..8 => matches!(error, SnapshotError::NotASnapshot),
                8..10 => matches!(error, SnapshotError::OtherVersion { .. }),
                // A length that was altered may point beyond the end of the file.
                _ => matches!(
                    error,
                    SnapshotError::Damaged { .. } | SnapshotError::Truncated { .. }
                ),
            };
            assert!(right, "byte {at}: {error}");
        }
    }
}

#[test]
fn damage_is_found_in_the_message_where_it_is() {
    let bytes = sample().bytes();
    let first = 92;
    let ends = [first + 28 + 6, first + 56 + 6];
    for (position, at) in [(0, first + 24), (1, ends[0] + 8), (2, ends[1] + 50)] {
        let mut altered = bytes.clone();
        altered[at] ^= 0x20;
        let begins = [first, ends[0], ends[1]][position];
        match refusal(&altered) {
            SnapshotError::Damaged { part, at, .. } => {
                assert_eq!(part, SnapshotPart::Message(position as u64));
                assert_eq!(at, begins as u64);
            }
            other => panic!("{other}"),
        }
    }
}

#[test]
fn a_file_cut_short_anywhere_is_refused_with_its_length() {
    let bytes = sample().bytes();
    for len in 0..bytes.len() {
        match refusal(&bytes[..len]) {
            SnapshotError::Truncated { at, .. } => assert_eq!(at, len as u64),
            other => panic!("{len}: {other}"),
        }
    }
}

#[test]
fn a_file_that_goes_on_after_its_end_is_refused() {
    let mut bytes = sample().bytes();
    bytes.push(0);
    let error = refusal(&bytes);
    assert!(
        error.to_string().contains("bytes follow the trailer"),
        "{error}"
    );
    let twice = sample().bytes().repeat(2);
    refusal(&twice);
}

#[test]
fn messages_that_changed_places_are_refused() {
    let mut written = sample();
    written.messages = vec![written.messages[0].clone(), written.messages[3].clone()];
    written.messages[1].data = b"sturdy".to_vec();
    let bytes = written.bytes();
    let (header, record) = (92, 24 + 6 + 4);
    let mut swapped = bytes.clone();
    swapped[header..header + record].copy_from_slice(&bytes[header + record..][..record]);
    swapped[header + record..][..record].copy_from_slice(&bytes[header..][..record]);
    let error = refusal(&swapped);
    assert!(error.to_string().contains("position 0"), "{error}");
}

#[test]
fn a_header_that_contradicts_itself_is_refused_although_its_checksum_is_right() {
    let wrong: [fn(&mut Written); 12] = [
        |w| w.max_messages = 0,
        |w| w.max_messages = 1_048_577,
        |w| w.message_size = 0,
        |w| w.message_size = (16 << 20) + 1,
        |w| w.message_size = 5,
        |w| w.mode = 0o10_000,
        |w| w.record_head = 23,
        |w| w.name = vec![b'/'; 257],
        |w| w.dead_letter = vec![b'/'; 257],
        |w| w.on_full = 3,
        |w| w.messages[2].priority = 32_768,
        |w| w.counts = Some((4, 75)),
    ];
    for (number, change) in wrong.into_iter().enumerate() {
        let mut written = sample();
        change(&mut written);
        let error = refusal(&written.bytes());
        expect_error!(
            error,
            SnapshotError::Damaged { .. },
            libc::EBADMSG,
            "{number}"
        );
    }
}

#[test]
fn what_is_no_snapshot_is_said_to_be_none() {
    for bytes in [&b"#!/bin/sh\n"[..], b"\x7fELF", b"x", &[0; 4096]] {
        let error = refusal(bytes);
        assert!(matches!(error, SnapshotError::NotASnapshot), "{error}");
    }
}

#[test]
fn errors_of_readers_and_writers_come_through() {
    struct Broken;
    impl Write for Broken {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(io::Error::from_raw_os_error(libc::ENOSPC))
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    impl io::Read for Broken {
        fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
            Err(io::Error::from_raw_os_error(libc::EISDIR))
        }
    }
    let (_place, queue) = Place::new().with_queue("/q", 4, 4);
    let error = queue.snapshot(&mut Broken).unwrap_err();
    expect_error!(error, SnapshotError::Write(_), libc::ENOSPC);
    let error = Snapshot::read(&mut Broken).unwrap_err();
    expect_error!(error, SnapshotError::Read(_), libc::EISDIR);
}

#[test]
fn a_queue_that_may_not_be_received_from_gives_no_snapshot() {
    let place = Place::new();
    drop(place.create("/q", 4, 4));
    let sender = OpenOptions::new()
        .write(true)
        .namespace(&place.namespace)
        .open("/q")
        .unwrap();
    let mut file = Vec::new();
    assert_eq!(sender.snapshot(&mut file).unwrap_err().errno(), libc::EBADF);
    assert_eq!(file, b"");
    assert_eq!(sender.messages(1).unwrap_err().errno(), libc::EBADF);
}

fn filled(place: &Place, messages: &[(Vec<u8>, u32)], size: u32) -> Queue {
    let queue = place.create("/q", messages.len().max(1) as u32, size);
    for (data, priority) in messages {
        queue.try_send(data, *priority).unwrap();
    }
    queue
}

/// Returns the contents that a queue must have after these messages were sent.
fn in_order(messages: &[(Vec<u8>, u32)]) -> Vec<(Vec<u8>, u32)> {
    let mut order = messages.to_vec();
    order.sort_by_key(|(_, priority)| std::cmp::Reverse(*priority));
    order
}

fn plain(messages: &[Peeked]) -> Vec<(Vec<u8>, u32)> {
    let plain = messages.iter();
    plain.map(|m| (m.data.clone(), m.priority)).collect()
}

/// Returns the messages of a queue, without their ids, which differ between queues.
fn unnumbered(queue: &Queue) -> Vec<Peeked> {
    let mut messages = queue.messages(usize::MAX).unwrap();
    messages.iter_mut().for_each(|message| message.id = None);
    messages
}

fn messages(size: usize) -> impl Strategy<Value = Vec<(Vec<u8>, u32)>> {
    let priority = prop_oneof![Just(0), Just(1), 0..32_768_u32];
    prop::collection::vec(
        (prop::collection::vec(any::<u8>(), 0..=size), priority),
        0..60,
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn a_queue_comes_back_as_it_was(
        (size, sent) in prop_oneof![Just(1_usize), Just(16), Just(80), Just(900)]
            .prop_flat_map(|size| (Just(size), messages(size))),
        named in any::<bool>(),
    ) {
        let place = Place::new();
        let queue = filled(&place, &sent, size as u32);
        let mut file = Vec::new();
        let info = if named {
            let snapshot = Snapshot::of(&queue).unwrap().named("/q");
            snapshot.write(&mut file).unwrap();
            snapshot.info()
        } else {
            queue.snapshot(&mut file).unwrap()
        };
        let before = queue.messages(usize::MAX).unwrap();
        prop_assert_eq!(plain(&before), in_order(&sent));
        prop_assert_eq!(queue.attributes().messages, sent.len());

        let snapshot = read(&file).unwrap();
        prop_assert_eq!(&snapshot.info(), &info);
        let mut options = OpenOptions::new();
        options.read(true).write(true).namespace(&place.namespace);
        let copy = snapshot.restore("/copy", &options).unwrap();
        prop_assert_eq!(unnumbered(&copy), unnumbered(&queue));
        prop_assert_eq!(copy.mode(), queue.mode());
        prop_assert_eq!(copy.attributes(), queue.attributes());
        for (data, priority) in in_order(&sent) {
            let received = copy.receive_vec().unwrap();
            prop_assert_eq!((received.data, received.priority), (data, priority));
        }
        prop_assert_eq!(copy.attributes().messages, 0);
    }

    #[test]
    fn arbitrary_bytes_behind_a_right_beginning_are_refused(
        mut tail in prop::collection::vec(any::<u8>(), 0..400),
        keep in 0..200_usize,
    ) {
        let whole = sample().bytes();
        let mut bytes = whole[..keep].to_vec();
        bytes.append(&mut tail);
        prop_assert!(bytes == whole || read(&bytes).is_err());
    }
}
