//! Tests the output without a terminal: `--json`, `--batch`, and errors.

use std::collections::HashMap;
use std::io::{BufRead, BufReader};

use serde_json::Value;

use crate::support::{NOBODY, Site, end, give_to, set_mode, start};
use crate::{cells_of, open_orders, with_all_kinds};

#[test]
fn without_a_terminal_the_error_names_the_other_ways() {
    let (site, _ring) = with_all_kinds();
    site.umsg(&["top"])
        .fails(1, &["not a terminal", "--json", "--batch"]);
    for (arguments, code) in [
        (&["top", "--json", "--batch"][..], 2),
        (&["top", "--sort", "nothing"], 2),
        (&["top", "--tree", "--json"], 2),
        (&["top", "--batch", "--dir", "/nowhere"], 1),
    ] {
        assert_eq!(site.umsg(arguments).code, Some(code), "{arguments:?}");
    }
    let none = site.umsg(&["top", "--batch", "-n", "0"]);
    assert_eq!(none.code, Some(2), "{none:?}");
    assert!(none.errors.contains("give a number from 1 up"), "{none:?}");
}

#[test]
fn the_printed_figures_are_those_of_the_library() {
    let (site, ring) = with_all_kinds();
    let outcome = site.umsg(&["top", "--json", "-n", "1"]);
    let refresh = outcome.json();
    let by_name: HashMap<&str, &Value> = refresh["queues"]
        .as_array()
        .unwrap()
        .iter()
        .map(|queue| (queue["queue"].as_str().unwrap(), queue))
        .collect();
    let queue = open_orders(&site);
    let (seen, shown) = (queue.glance(), by_name["/orders"]);
    for (field, number) in [
        ("messages", seen.attributes.messages as u64),
        ("capacity", seen.attributes.max_messages as u64),
        ("bytes", seen.attributes.bytes),
        ("sent", seen.sent),
        ("removed", seen.removed),
        ("memory", seen.memory),
        ("uid", seen.uid.into()),
        ("blocked_senders", seen.blocked_senders as u64),
    ] {
        assert_eq!(shown[field], number, "{field}");
    }
    assert_eq!(shown["fill"], 0.75);
    assert_eq!(by_name["key:0x00000012"]["messages"], 3);
    assert_eq!(by_name["key:0x00000012"]["bytes"], 16);
    assert_eq!(by_name["ring:/jobs"]["messages"], ring.status().messages);
    assert_eq!(by_name["ring:/jobs"]["receiver_alive"], true);
    assert!(shown["sent_per_second"].is_null(), "no refresh before");

    let table = site.umsg(&[
        "top", "--batch", "-n", "2", "--every", "50ms", "--sort", "messages",
    ]);
    let text = table.text();
    assert_eq!(text.matches("umsg top  ").count(), 2, "{text}");
    assert_eq!(cells_of(text, "/orders")[..3], ["3", "4", "75%"], "{text}");
    let mut last = text.lines().filter(|line| line.starts_with("ring:/jobs"));
    assert_eq!(
        cells_of(last.next_back().unwrap(), "ring:/jobs")[3..5],
        ["0", "0"]
    );
    let place = |name| text.find(name).unwrap();
    assert!(
        place("/orders ") < place("ring:/jobs "),
        "3 messages, and 2"
    );
}

#[test]
fn a_refresh_a_line_shows_rates_and_goes_on_until_the_reader_ends() {
    let site = Site::new();
    site.umsg(&["create", "/q"]).text();
    let mut child = start(&mut site.command(&["top", "--json", "--every", "50ms"]));
    let mut output = BufReader::new(child.stdout.take().unwrap());
    let mut next = || {
        let mut line = String::new();
        output.read_line(&mut line).unwrap();
        serde_json::from_str::<Value>(&line).unwrap()
    };
    assert!(next()["interval_seconds"].is_null());
    site.umsg(&["send", "/q", "four"]).text();
    let refresh = loop {
        let refresh = next();
        if refresh["queues"][0]["sent"] == 1 {
            break refresh;
        }
    };
    let (queue, seconds) = (&refresh["queues"][0], &refresh["interval_seconds"]);
    let per_second = |field: &str| queue[field].as_f64().unwrap() * seconds.as_f64().unwrap();
    assert!((per_second("sent_per_second") - 1.0).abs() < 1e-6);
    assert!((per_second("sent_bytes_per_second") - 4.0).abs() < 1e-6);
    assert_eq!(per_second("removed_per_second"), 0.0);
    drop(output);
    assert_eq!(end(child).code, Some(0));
}

#[test]
fn queues_of_other_users_are_shown_as_denied() {
    umsg_testkit::needs_root!();
    let (site, _ring) = with_all_kinds();
    site.umsg(&["create", "/mine", "--mode", "666"]).text();
    set_mode(site.path(), 0o1777);
    give_to(&site.path().join("mq/mine"), NOBODY);
    let outcome = site.umsg_as_nobody(&["top", "--json", "-n", "1"]).unwrap();
    let refresh = outcome.json();
    assert_eq!(refresh["queues"][0]["queue"], "/mine");
    let denied: Vec<&Value> = refresh["left_out"].as_array().unwrap().iter().collect();
    assert_eq!(denied.len(), 3, "{refresh}");
    assert!(
        denied.iter().all(|queue| queue["why"] == "permission"),
        "{refresh}"
    );
    let outcome = site.umsg_as_nobody(&["top", "--batch", "-n", "1"]).unwrap();
    assert!(outcome.text().contains("/orders: denied"), "{outcome:?}");
}
