use super::*;
use std::sync::Mutex;

static SEEN: Mutex<Vec<(What, u32, Vec<u8>)>> = Mutex::new(Vec::new());

fn keep(report: &Report) {
    let (pid, name) = (report.pid, report.name().to_vec());
    if name.first() == Some(&b'/') || report.what == What::Lost {
        SEEN.lock().unwrap().push((report.what, pid, name));
    }
}

fn take_seen() -> Vec<(What, u32, Vec<u8>)> {
    std::mem::take(&mut *SEEN.lock().unwrap())
}

/// Lets one test run at a time, because the receiver and the table belong to the process. Only the threads of that test are not muted: a thread of
/// another module's test could deliver the reports at any time.
fn alone() -> impl Drop {
    static ALONE: Mutex<()> = Mutex::new(());
    struct Quiet(#[allow(dead_code, reason = "held")] std::sync::MutexGuard<'static, ()>);
    impl Drop for Quiet {
        fn drop(&mut self) {
            set_receiver(None);
            tell();
            take_seen();
            mute_thread(true);
        }
    }
    let alone = Quiet(
        ALONE
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner()),
    );
    mute_thread(false);
    alone
}

#[test]
fn reports_are_told_after_they_were_noted_and_those_without_room_are_counted() {
    let _alone = alone();
    note(What::Expired, Subject::Named(b"/before"), 0, 0);
    set_receiver(Some(Receiver::new(keep)));
    let long = [&b"/"[..], &[b'x'; 300]].concat();
    note(What::Repaired, Subject::Named(b"/a"), 7, 0);
    note(What::HolderDied, Subject::Named(&long), 8, 0);
    assert!(SEEN.lock().unwrap().is_empty());
    tell();
    let seen = take_seen();
    assert_eq!(seen[0], (What::Repaired, 7, b"/a".to_vec()));
    assert_eq!(seen[1], (What::HolderDied, 8, long[..LONGEST].to_vec()));
    assert_eq!(seen.len(), 2);
    for _ in 0..ENTRIES + 3 {
        note(What::Expired, Subject::Named(b"/b"), 0, 0);
    }
    tell();
    let seen = take_seen();
    assert_eq!(seen.last().map(|seen| seen.0), Some(What::Lost));
    assert!(seen.len() > ENTRIES / 2);
    set_receiver(None);
    note(What::Expired, Subject::Named(b"/c"), 0, 0);
    tell();
    assert!(SEEN.lock().unwrap().is_empty());
}

#[test]
fn a_receiver_is_not_called_within_itself_and_its_own_events_are_dropped() {
    let _alone = alone();
    let tag = 4711_usize;
    set_receiver(Some(Receiver::new(move |report| {
        keep(report);
        note(What::Expired, Subject::Named(b"/own"), 0, 0);
        tell();
        SEEN.lock()
            .unwrap()
            .push((What::Lost, tag as u32, b"end".to_vec()));
    })));
    note(What::Expired, Subject::Named(b"/first"), 0, 0);
    tell();
    tell();
    let seen: Vec<_> = take_seen().into_iter().map(|seen| seen.2).collect();
    assert_eq!(seen, [b"/first".to_vec(), b"end".to_vec()]);
    // The thread notes events again.
    note(What::Expired, Subject::Named(b"/second"), 0, 0);
    tell();
    assert_eq!(take_seen()[0].2, b"/second");
}

#[test]
fn a_receiver_that_panics_leaves_its_thread_able_to_tell() {
    let _alone = alone();
    set_receiver(Some(Receiver::new(|report| {
        keep(report);
        assert_ne!(report.pid, 13, "wanted by this test");
    })));
    note(What::Expired, Subject::Named(b"/panics"), 13, 0);
    std::panic::catch_unwind(tell).unwrap_err();
    note(What::Expired, Subject::Named(b"/next"), 0, 0);
    tell();
    assert_eq!(
        take_seen().last().map(|seen| seen.2.clone()),
        Some(b"/next".to_vec())
    );
}

#[test]
fn an_entry_that_a_thread_of_the_parent_had_at_a_fork_is_free_in_the_child() {
    let entry = Entry::NEW;
    assert!(entry.take(FREE, WRITING, 7));
    // Another thread of process 7 leaves the entry alone.
    assert!(!entry.take(FREE, WRITING, 7) && !entry.take(READY, READING, 7));
    assert!(entry.take(FREE, WRITING, 8));
    entry.state.store(READY, Ordering::Release);
    assert!(!entry.take(FREE, WRITING, 9), "the report is kept");
    assert!(entry.take(READY, READING, 8));
    assert!(!entry.take(FREE, WRITING, 8));
    assert!(entry.take(FREE, WRITING, 9));
}

#[test]
fn the_receiver_changes_while_threads_tell() {
    const THREADS: u32 = 4;
    const ROUNDS: u32 = if cfg!(miri) { 20 } else { 2000 };
    static WRONG: AtomicU64 = AtomicU64::new(0);
    let _alone = alone();
    let receiver = |n: usize| {
        // The words belong together: a thread that found the words of two receivers would notice the mixture.
        let words = [n, !n, n];
        Receiver::new(move |_| {
            let is_right = words[1] == !words[0] && words[2] == words[0];
            WRONG.fetch_add(u64::from(!is_right), Ordering::Relaxed);
        })
    };
    set_receiver(Some(receiver(0)));
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                mute_thread(false);
                for _ in 0..ROUNDS {
                    note(What::Expired, Subject::Named(b"-"), 0, 0);
                    tell();
                }
            });
        }
        for n in 0..ROUNDS as usize {
            set_receiver(Some(receiver(n)));
            if n % 16 == 0 {
                set_receiver(None);
                set_first_receiver(receiver(n));
            }
        }
    });
    assert_eq!(WRONG.load(Ordering::Relaxed), 0);
}

#[test]
fn a_muted_thread_makes_no_events_and_leaves_those_of_others_to_them() {
    let _alone = alone();
    set_receiver(Some(Receiver::new(keep)));
    let in_muted_thread = |work: fn()| {
        let muted = std::thread::spawn(move || {
            mute_thread(true);
            work();
        });
        muted.join().unwrap();
    };
    // A muted thread notes no event, so another thread finds no report.
    in_muted_thread(|| note(What::Expired, Subject::Named(b"/own"), 0, 0));
    tell();
    assert!(take_seen().is_empty(), "an event of the muted thread");
    note(What::Expired, Subject::Named(b"/other"), 0, 0);
    in_muted_thread(tell);
    assert!(take_seen().is_empty(), "told by the muted thread");
    tell();
    assert_eq!(take_seen(), [(What::Expired, 0, b"/other".to_vec())]);
    let again = std::thread::spawn(|| {
        mute_thread(true);
        mute_thread(false);
        note(What::Expired, Subject::Named(b"/again"), 0, 0);
        tell();
    });
    again.join().unwrap();
    assert_eq!(take_seen(), [(What::Expired, 0, b"/again".to_vec())]);
}
