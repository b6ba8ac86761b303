//! Files of version 0.1 in this version. docs/compatibility.md says which files later versions read, and which they refuse.
//!
//! `data/` has a queue of each kind, and a System V snapshot; `snapshot.rs` reads the snapshot of a POSIX queue. A queue's file is sparse: its text
//! has the length, and then the lines of 32 bytes that are not zero, each line after its offset.

mod support;

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, symlink};
use std::path::Path;
use support::place::Place;
use umsg::posix::OpenOptions;
use umsg::sysv;

const POSIX: &str = include_str!("data/posix-queue-0.1.txt");
const SYSTEM_V: &str = include_str!("data/sysv-queue-0.1.txt");
const SNAPSHOT: &str = include_str!("data/sysv-snapshot-2.0.hex");

const KEY: i32 = 0x1234;
/// The messages of the POSIX queue, in order of delivery.
const BY_PRIORITY: [(&[u8], u32); 3] = [(b"urgent", 9), (&[b'x'; 200], 2), (b"plain", 0)];
/// The messages of the System V queue, in order of arrival.
const BY_ARRIVAL: [(&[u8], i64); 3] = [(b"first", 3), (&[b'y'; 200], 1), (b"", 2)];

fn digits(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
    let byte = |two: &[u8]| u8::from_str_radix(std::str::from_utf8(two).unwrap(), 16).unwrap();
    digits.chunks(2).map(byte).collect()
}

/// Writes the file of a queue from its text.
fn unpack(text: &str, path: &Path) -> File {
    let file = File::options().write(true).create_new(true).open(path);
    let file = file.unwrap();
    let (length, lines) = text.split_once('\n').unwrap();
    file.set_len(length.parse().unwrap()).unwrap();
    for line in lines.lines() {
        let (offset, bytes) = line.split_once(' ').unwrap();
        let offset = u64::from_str_radix(offset, 16).unwrap();
        file.write_all_at(&digits(bytes), offset).unwrap();
    }
    fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    file
}

/// Returns a namespace with the POSIX queue "/q" of version 0.1.
fn posix() -> (Place, File) {
    let place = Place::new();
    let file = unpack(POSIX, &place.path().join("mq/q"));
    (place, file)
}

/// Returns a namespace with the System V queue of version 0.1.
fn system_v() -> (Place, File) {
    let place = Place::new();
    let directory = place.path().join("msg");
    let file = unpack(SYSTEM_V, &directory.join("0"));
    symlink("0", directory.join("k-00001234")).unwrap();
    (place, file)
}

#[test]
fn a_posix_queue_of_version_0_1_is_read_and_used() {
    let (place, _) = posix();
    let queue = place.open("/q");
    for (data, priority) in BY_PRIORITY {
        let message = queue.try_receive_vec().unwrap();
        assert_eq!((&message.data[..], message.priority), (data, priority));
    }
    let attributes = queue.attributes();
    assert_eq!(
        (attributes.max_messages, attributes.message_size),
        (16, 256)
    );
    for round in 0..100 {
        queue.try_send(b"of this version", round).unwrap();
        assert_eq!(queue.try_receive_vec().unwrap().priority, round);
    }
}

#[test]
fn a_system_v_queue_of_version_0_1_is_read_and_used() {
    let (place, _) = system_v();
    let mut options = sysv::OpenOptions::new();
    let queue = options.namespace(&place.namespace).open(KEY).unwrap();
    for (data, mtype) in BY_ARRIVAL {
        let message = queue.try_receive_vec(sysv::Want::Any).unwrap();
        assert_eq!((&message.data[..], message.mtype), (data, mtype));
    }
    for round in 1..100 {
        queue.try_send(round, b"of this version").unwrap();
        let message = queue.try_receive_vec(sysv::Want::Exactly(round)).unwrap();
        assert_eq!(message.data, b"of this version");
    }
}

#[test]
fn a_system_v_snapshot_of_version_2_0_is_read_and_written_as_it_was() {
    let bytes = digits(SNAPSHOT);
    let snapshot = sysv::Snapshot::read(&mut &bytes[..]).unwrap();
    let messages: Vec<_> = snapshot
        .messages()
        .map(|message| (message.data.to_vec(), message.mtype))
        .collect();
    let expected = BY_ARRIVAL.map(|(data, mtype)| (data.to_vec(), mtype));
    assert_eq!(messages, expected);
    let mut again = Vec::new();
    snapshot.write(&mut again).unwrap();
    assert_eq!(again, bytes);
}

#[test]
fn a_queue_of_another_version_is_refused_with_both_versions() {
    // In both kinds of files, the version follows the magic number.
    let (place, file) = posix();
    file.write_all_at(&2_u32.to_le_bytes(), 8).unwrap();
    let mut options = OpenOptions::new();
    let options = options.read(true).write(true).namespace(&place.namespace);
    let error = options
        .open("/q")
        .expect_err("a queue of version 2 was opened");
    assert_eq!(error.errno(), libc::EINVAL);
    let text = error.to_string();
    assert!(
        text.contains("format 2,") && text.contains("only format 3"),
        "{text}"
    );

    let (place, file) = system_v();
    file.write_all_at(&1_u32.to_le_bytes(), 8).unwrap();
    let mut options = sysv::OpenOptions::new();
    let options = options.namespace(&place.namespace);
    let error = options
        .open(KEY)
        .expect_err("a queue of version 1 was opened");
    assert_eq!(error.errno(), libc::EINVAL);
    let text = error.to_string();
    assert!(
        text.contains("format 1,") && text.contains("only format 2"),
        "{text}"
    );
}

/// Makes the texts of `data/` again, for a release with another format: `cargo test -p umsg --test compatibility -- --ignored`.
#[test]
#[ignore = "prints new files"]
fn files_of_this_version_are_printed() {
    let place = Place::new();
    let queue = place.options(16, 256).open("/q").unwrap();
    let mut sent = BY_PRIORITY;
    sent.rotate_left(1);
    for (data, priority) in sent {
        queue.try_send(data, priority).unwrap();
    }
    let mut options = sysv::OpenOptions::new();
    let options = options.create(true).mode(0o600);
    let system_v = options.namespace(&place.namespace).open(KEY).unwrap();
    for (data, mtype) in BY_ARRIVAL {
        system_v.try_send(mtype, data).unwrap();
    }
    let mut snapshot = Vec::new();
    let taken = sysv::Snapshot::of(&system_v).unwrap();
    taken.write(&mut snapshot).unwrap();
    drop((queue, system_v));
    println!("posix-queue:\n{}", packed(&place.path().join("mq/q")));
    println!("sysv-queue:\n{}", packed(&place.path().join("msg/0")));
    println!("sysv-snapshot:");
    for line in snapshot.chunks(32) {
        println!("{}", hexadecimal(line));
    }
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Returns the text of a sparse file. Only the parts that have memory are read.
fn packed(path: &Path) -> String {
    use rustix::fs::{SeekFrom, seek};
    let file = File::open(path).unwrap();
    let mut text = format!("{}\n", file.metadata().unwrap().len());
    let mut offset = 0;
    while let Ok(start) = seek(&file, SeekFrom::Data(offset)) {
        let end = seek(&file, SeekFrom::Hole(start)).unwrap();
        let mut line = [0; 32];
        for at in (start..end).step_by(line.len()) {
            file.read_exact_at(&mut line, at).unwrap();
            if line != [0; 32] {
                text.push_str(&format!("{at:x} {}\n", hexadecimal(&line)));
            }
        }
        offset = end;
    }
    text
}
