//! Sending to a System V queue, receiving from it, and showing its contents.

use super::*;
use support::{end, start};

#[test]
fn messages_are_received_in_order_of_arrival_or_by_type() {
    let site = site_with_queue();
    for (message, mtype) in [("a", "5"), ("b", "3"), ("c", "9"), ("d", "3"), ("e", "5")] {
        send(&site, message, mtype);
    }
    let receive = |options: &[&str]| {
        site.umsg(&[&["recv", KEY], options].concat())
            .text()
            .to_owned()
    };
    assert_eq!(receive(&[]), "a\n");
    assert_eq!(receive(&["-t", "9"]), "c\n");
    assert_eq!(receive(&["--except", "3"]), "e\n");
    assert_eq!(receive(&["--lowest", "9"]), "b\n");
    assert_eq!(receive(&["--type", "4", "--all"]), "");
    assert_eq!(receive(&["--all"]), "d\n");
}

#[test]
fn a_message_of_no_type_that_is_wanted_is_waited_for_in_vain() {
    let site = site_with_queue();
    send(&site, "other", "1");
    let receive = |more: &[&str]| site.umsg(&[&["recv", KEY, "--type", "2"], more].concat());
    receive(&["--nonblocking"]).fails(
        3,
        &["the queue has no matching message; send a message first"],
    );
    receive(&["--timeout", "20ms"]).fails(3, &["timed out waiting for a message"]);
    let none = site.umsg(&["recv", KEY, "--type", "0"]);
    assert!(
        none.code == Some(2) && none.errors.contains("a positive integer"),
        "{none:?}"
    );
    assert_eq!(site.umsg(&["recv", KEY]).text(), "other\n");
}

#[test]
fn a_waiter_for_a_type_gets_it_when_it_is_sent() {
    let site = site_with_queue();
    let waiting = start(&mut site.command(&["recv", KEY, "--type", "2"]));
    site.wait_for(KEY, "blocked_receivers", 1);
    send(&site, "not this", "1");
    send(&site, "this", "2");
    assert_eq!(end(waiting).text(), "this\n");
    assert_eq!(site.umsg(&["recv", KEY]).text(), "not this\n");
}

#[test]
fn a_full_queue_is_waited_for_and_a_long_message_refused() {
    let site = Site::new();
    site.umsg(&["create", KEY, "--qbytes", "10"]).text();
    send(&site, "0123456789", "1");
    site.umsg(&["send", KEY, "x", "--nonblocking"])
        .fails(3, &["the queue is full; receive from the queue first"]);
    site.umsg(&["send", KEY, "x", "--timeout", "20ms"])
        .fails(3, &["timed out"]);
    let waiting = start(&mut site.command(&["send", KEY, "x", "--json"]));
    site.wait_for(KEY, "blocked_senders", 1);
    assert_eq!(site.umsg(&["recv", KEY]).text(), "0123456789\n");
    assert_eq!(
        end(waiting).json(),
        json!({"queue": KEY, "messages": 1, "bytes": 1})
    );
    site.umsg(&["send", KEY, "01234567890", "--timeout", "20ms"])
        .fails(
            3,
            &["has 11 bytes, and the queue has room for at most 10 bytes"],
        );
    let long = vec![b'x'; 8193];
    site.umsg_with_input(&["send", KEY], &long).fails(
        1,
        &["the queue's msgmax is 8192 bytes; raise msgmax with `umsg limits --msgmax`"],
    );
}

#[test]
fn a_waiter_is_told_that_the_queue_was_removed() {
    let site = site_with_queue();
    let waiting = start(&mut site.command(&["recv", KEY]));
    site.wait_for(KEY, "blocked_receivers", 1);
    site.umsg(&["rm", KEY]).text();
    end(waiting).fails(4, &["key:0x00001234: the queue was removed"]);
}

#[test]
fn lines_and_raw_bytes_go_through() {
    let site = site_with_queue();
    site.umsg_with_input(&["send", KEY, "--lines", "--type", "4"], b"one\n\ntwo")
        .text();
    assert_eq!(
        site.umsg(&["recv", KEY, "--count", "3"]).text(),
        "one\n\ntwo\n"
    );
    let bytes: Vec<u8> = (0..=255).cycle().take(8192).collect();
    site.umsg_with_input(&["send", KEY], &bytes).text();
    let received = site.umsg(&["recv", KEY, "--output", "raw"]);
    assert_eq!((received.code, received.output), (Some(0), bytes));
}

/// Removes the parts of a message that differ from run to run.
fn known(mut message: Value) -> Value {
    let fields = message.as_object_mut().unwrap();
    assert!(fields.remove("sender_pid").unwrap().as_u64() > Some(0));
    assert!(
        fields
            .remove("sent")
            .unwrap()
            .as_str()
            .unwrap()
            .ends_with('Z')
    );
    message
}

#[test]
fn peek_shows_messages_in_order_of_arrival_and_leaves_them() {
    let site = site_with_queue();
    send(&site, "first", "9");
    send(&site, "second", "1");
    let printed = site.umsg(&["peek", KEY]);
    let rows: Vec<Vec<&str>> = printed
        .text()
        .lines()
        .map(|line| line.split_whitespace().collect())
        .collect();
    assert_eq!(rows[0][..3], ["POSITION", "TYPE", "BYTES"]);
    assert_eq!(
        (rows[1][..3].to_vec(), rows[1].last()),
        (vec!["0", "9", "5"], Some(&"first"))
    );
    assert_eq!(
        (rows[2][..3].to_vec(), rows.len()),
        (vec!["1", "1", "6"], 3)
    );
    let one = site.umsg(&["peek", KEY, "--count", "1", "--json"]).json();
    let expected = json!({"queue": KEY, "position": 0, "type": 9, "size": 5, "deliveries": 0, "encoding": "utf-8", "data": "first"});
    assert_eq!(known(one), expected);
    assert_eq!(site.umsg(&["stat", KEY, "--json"]).json()["messages"], 2);
}

#[test]
fn a_message_may_be_cut() {
    let site = site_with_queue();
    send(&site, "123456", "7");
    send(&site, "123456", "7");
    assert_eq!(site.umsg(&["recv", KEY, "--truncate", "3"]).text(), "123\n");
    let cut = site
        .umsg(&["recv", KEY, "--truncate", "2", "--json"])
        .json();
    let expected = json!({"queue": KEY, "type": 7, "size": 6, "deliveries": 1, "encoding": "utf-8", "data": "12"});
    assert_eq!(known(cut), expected);
    site.umsg(&["recv", KEY, "--nonblocking"])
        .fails(3, &["no matching message"]);
}

#[test]
fn a_message_that_cant_be_printed_stays() {
    let site = site_with_queue();
    send(&site, "kept", "7");
    let outcome = site.umsg_into_full_disk(&["recv", KEY]);
    outcome.fails(
        1,
        &[
            "standard output: ",
            "the message is back in the queue, the first of its type (7)",
        ],
    );
    let again = site.umsg(&["recv", KEY, "--json"]).json();
    assert_eq!(
        (&again["data"], &again["deliveries"]),
        (&json!("kept"), &json!(2))
    );
}
