//! Tests each kind of queue: the fields of a message on the other machine.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};
use umsg::{ring, sysv};

use crate::receive;
use crate::support::*;

#[test]
fn messages_keep_bytes_priorities_order_and_age() {
    let Some(program) = nats_server() else { return };
    let server = Server::start(&program, "");
    let (mut here, mut there) = (Machine::new(), Machine::new());
    let (out, into) = (
        here.queue("/out", 1000, 4096),
        there.queue("/in", 1000, 4096),
    );
    let began = SystemTime::now();
    for (n, priority) in [(0, 0), (1, 32_767), (2, 0), (3, 5), (4, 32_767)] {
        out.send(&[n; 4000][..usize::from(n) * 900], priority)
            .unwrap();
    }
    let ended = SystemTime::now();
    std::thread::sleep(Duration::from_millis(300));
    there.declare(&server.url(), IMPORT);
    here.declare(
        &server.url(),
        &EXPORT.replace("subject =", "subject_by = \"priority\"\nsubject ="),
    );
    here.start();
    wait_for(
        "export",
        || out.attributes().messages == 0 && out.attributes().leased == 0,
        || here.logged(),
    );
    there.start();
    wait_for(
        "import",
        || into.attributes().messages == 5,
        || there.logged(),
    );
    let seen = into.peek(0).unwrap().unwrap();
    // The time of a send is accurate to a few milliseconds.
    let near = Duration::from_millis(100);
    assert!(
        (began - near..ended + near).contains(&seen.sent),
        "the age travels: {began:?} {:?} {ended:?}",
        seen.sent
    );
    for (n, priority) in [(1, 32_767), (4, 32_767), (3, 5), (0, 0), (2, 0)] {
        let message = receive(&into);
        assert_eq!(
            (message.priority, message.data.len()),
            (priority, n as usize * 900)
        );
        assert!(message.data.iter().all(|byte| *byte == n as u8));
    }
    let subjects = with_client(&server.url(), async |js| {
        let stream = js.get_stream("S").await.unwrap();
        let mut subjects = BTreeMap::new();
        for sequence in 1..=5 {
            let message = stream.get_raw_message(sequence).await.unwrap();
            *subjects.entry(message.subject.to_string()).or_insert(0) += 1;
        }
        subjects
    });
    let wanted = [("s.p.0", 2), ("s.p.32767", 2), ("s.p.5", 1)];
    assert_eq!(
        subjects,
        wanted.map(|(name, count)| (name.to_owned(), count)).into()
    );
}

#[test]
fn types_of_system_v_queues_and_fields_of_rings_are_restored() {
    let Some(program) = nats_server() else { return };
    let server = Server::start(&program, "");
    let (mut here, mut there) = (Machine::new(), Machine::new());
    let sysv = |machine: &Machine| {
        sysv::OpenOptions::new()
            .create(true)
            .namespace(&machine.namespace)
            .open(7)
            .unwrap()
    };
    let (out, into) = (sysv(&here), sysv(&there));
    let mut end = ring::Options::new()
        .longest(1000)
        .create_in(&there.namespace, "/r")
        .unwrap();
    let part = |name: &str, direction: &str, queue: &str, stream: &str| {
        let subject = if direction == "export" {
            format!("subject = {stream:?}\n")
        } else {
            String::new()
        };
        format!(
            "[[bridge]]\nname = {name:?}\ndirection = {direction:?}\nqueue = {queue:?}\nstream = {stream:?}\n{subject}create_stream = {{ subjects = [{stream:?}, \"{stream}.>\"], storage = \"memory\" }}\n"
        )
    };
    let typed = part("types", "export", "key:7", "T") + "subject_by = \"type\"\n";
    here.declare(
        &server.url(),
        &(typed + &part("ring", "export", "ring:/r", "R")),
    );
    there.declare(
        &server.url(),
        &(part("types", "import", "key:7", "T") + &part("ring", "import", "ring:/r", "R")),
    );
    here.start();
    there.start();
    for mtype in [i64::MAX, 1, 7] {
        out.send(mtype, &mtype.to_le_bytes()).unwrap();
    }
    let source = || ring::Sender::open_in(&here.namespace, "/r");
    wait_for("ring", || source().is_ok(), || here.logged());
    let source = source().unwrap();
    source
        .send(&ring::Post::new(u64::MAX).res(-5).flags(9).payload(b"short"))
        .unwrap();
    source
        .send_long(&ring::Post::new(1), &[3; 900], ring::Until::Forever)
        .unwrap();
    for mtype in [i64::MAX, 1, 7] {
        let message = into.receive_vec_timeout(sysv::Want::Any, LONG).unwrap();
        assert_eq!(
            (message.mtype, message.data),
            (mtype, mtype.to_le_bytes().to_vec())
        );
    }
    let one = end.receive_vec_timeout(LONG).unwrap();
    assert_eq!(
        (one.user_data, one.res, one.flags, &*one.payload),
        (u64::MAX, -5, 9, &b"short"[..])
    );
    let other = end.receive_vec_timeout(LONG).unwrap();
    assert_eq!((other.user_data, &*other.payload), (1, &[3; 900][..]));
}

#[test]
fn queues_of_the_kernel_take_part() {
    use nix::mqueue::{MQ_OFlag, MqAttr, mq_close, mq_open, mq_receive, mq_send, mq_unlink};
    use nix::sys::stat::Mode;

    let Some(program) = nats_server() else { return };
    let server = Server::start(&program, "");
    let mut machine = Machine::new();
    let [from, to] =
        ["a", "b"].map(|end| format!("/umsg-bridge-test-{}-{end}", std::process::id()));
    let open = |name: &str, flags| {
        let attributes = MqAttr::new(0, 5, 100, 0);
        mq_open(
            name,
            flags | MQ_OFlag::O_CREAT,
            Mode::S_IRWXU,
            Some(&attributes),
        )
        .unwrap()
    };
    let (source, sink) = (
        open(&from, MQ_OFlag::O_WRONLY),
        open(&to, MQ_OFlag::O_RDONLY | MQ_OFlag::O_NONBLOCK),
    );
    struct Unlink([String; 2]);
    impl Drop for Unlink {
        fn drop(&mut self) {
            for name in &self.0 {
                let _ = mq_unlink(&**name);
            }
        }
    }
    let _unlink = Unlink([from.clone(), to.clone()]);
    let export = EXPORT.replace("\"/out\"", &format!("\"kernel:{from}\""));
    let import = IMPORT.replace("\"/in\"", &format!("\"kernel:{to}\""));
    machine.declare(&server.url(), &(export + &import));
    machine.start();
    // The number of messages exceeds the capacity of both queues.
    for n in 0..20_u32 {
        mq_send(&source, &n.to_le_bytes(), n % 3).unwrap();
    }
    let mut seen = Vec::new();
    let mut buffer = [0; 100];
    wait_for(
        "messages",
        || {
            let mut priority = 0;
            while let Ok(len) = mq_receive(&sink, &mut buffer, &mut priority) {
                let n = u32::from_le_bytes(buffer[..len].try_into().unwrap());
                assert_eq!(priority, n % 3);
                seen.push(n);
            }
            seen.len() == 20
        },
        || machine.logged(),
    );
    seen.sort_unstable();
    assert_eq!(seen, (0..20).collect::<Vec<_>>());
    mq_close(source).unwrap();
    mq_close(sink).unwrap();
}
