//! Tests of the page of consents, and of the name that attests it. Consents between processes are tested with queues.

use super::name_of;
use super::page::{PLACES, Page, Signal};
use std::sync::atomic::{AtomicBool, Ordering};

const QUEUE: (u64, u64) = (3, 4);

fn page() -> Box<Page> {
    // SAFETY: the type consists of atomics, for which zeroes are valid.
    unsafe { Box::new(std::mem::zeroed()) }
}

fn signal(ticket: u64) -> Signal {
    Signal {
        number: ticket as i32,
        value: ticket as usize * 7,
    }
}

#[test]
fn a_page_shows_the_registrations_that_it_has_and_no_others() {
    let page = page();
    assert_eq!(page.consent(0, 0, (0, 0)), None);
    let index = page.add(1, QUEUE, signal(1)).unwrap();
    assert_eq!(page.consent(index, 1, QUEUE), Some(signal(1)));
    assert_eq!(page.consent(index, 2, QUEUE), None);
    assert_eq!(page.consent(index, 1, (3, 5)), None);
    assert_eq!(page.consent(index + 1, 1, QUEUE), None);
    assert_eq!(page.consent(usize::MAX, 1, QUEUE), None);
    page.remove(index, 2);
    assert_eq!(page.consent(index, 1, QUEUE), Some(signal(1)));
    page.remove(index, 1);
    assert_eq!(page.consent(index, 1, QUEUE), None);
    page.remove(usize::MAX, 1);
}

#[test]
fn a_full_page_takes_no_more_registrations_until_one_ends() {
    let page = page();
    for ticket in 1..=PLACES as u64 {
        assert_eq!(
            page.add(ticket, QUEUE, signal(ticket)),
            Some(ticket as usize - 1)
        );
    }
    assert_eq!(page.add(1000, QUEUE, signal(1000)), None);
    page.remove(4, 5);
    assert_eq!(page.add(1000, QUEUE, signal(1000)), Some(4));
}

#[test]
fn a_reader_never_sees_the_words_of_another_registration() {
    const ROUNDS: u64 = if cfg!(miri) { 200 } else { 100_000 };
    let (page, is_over) = (page(), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for ticket in 1..=ROUNDS {
                assert_eq!(page.add(ticket, QUEUE, signal(ticket)), Some(0));
                page.remove(0, ticket);
            }
            is_over.store(true, Ordering::Relaxed);
        });
        let mut ticket = 1;
        while !is_over.load(Ordering::Relaxed) {
            for ahead in 0..64 {
                if let Some(found) = page.consent(0, ticket + ahead, QUEUE) {
                    assert_eq!(found, signal(ticket + ahead));
                    ticket += ahead;
                    break;
                }
            }
            ticket = (ticket + 1) % (ROUNDS + 1);
        }
    });
}

#[test]
fn only_the_page_of_that_process_and_its_namespaces_has_a_helper() {
    let page = page();
    page.begin(10, 77);
    assert_eq!(page.helper(10, 77), None, "nothing attests it");
    page.set_helper(12);
    assert_eq!(page.helper(10, 77), Some(12));
    assert_eq!(page.helper(11, 77), None);
    assert_eq!(page.helper(10, 78), None);
    page.set_helper(10);
    assert_eq!(page.helper(10, 77), None, "the first thread");
}

#[test]
fn a_name_has_a_slash_and_another_file_has_another_name() {
    let name = name_of(5, (1, 2));
    assert_eq!(&name[..5], b"umsg/");
    assert!(name.iter().all(u8::is_ascii_graphic));
    for other in [name_of(6, (1, 2)), name_of(5, (2, 2)), name_of(5, (1, 3))] {
        assert_ne!(name, other);
    }
}
