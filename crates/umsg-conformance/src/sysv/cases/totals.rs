//! `msgctl` with `IPC_INFO` and `MSG_INFO`: limits, and the totals of all queues.

use libc::MSG_INFO;

use crate::errno::Errno;
use crate::sys::User;
use crate::sysv::backend::{IPC_INFO, Info};
use crate::sysv::site::{Queue, Site};

subject_of_sysv! { $ totals, totals_cases:
    ipc_info_says_the_limits
    msg_info_counts_queues_messages_and_bytes
    both_return_the_highest_index
    totals_follow_every_send_and_receive
    totals_of_several_processes_are_exact
    a_removed_queue_takes_its_messages_out_of_the_totals
    a_message_handed_over_is_not_counted
    everybody_may_ask
    queues_that_grant_nothing_are_counted
    other_limits_are_said
}

fn ipc_info_says_the_limits(site: &Site) {
    site.need_to_be_alone();
    let limits = Info {
        pool: 512_000,
        map: 16384,
        max: 8192,
        mnb: 16384,
        mni: 32000,
        ssz: 16,
        tql: 16384,
        seg: 65535,
    };
    assert_eq!(site.info(IPC_INFO), Ok((0, limits)));
    assert_eq!(site.queue().send(1, "x"), Ok(()));
    assert_eq!(site.info(IPC_INFO), Ok((0, limits)));
}

/// Returns the total numbers of queues, messages and bytes.
fn totals(site: &Site) -> (i32, i32, i32) {
    let (_, info) = site.info(MSG_INFO).expect("totals");
    (info.pool, info.map, info.tql)
}

fn msg_info_counts_queues_messages_and_bytes(site: &Site) {
    site.need_to_be_alone();
    assert_eq!(totals(site), (0, 0, 0));
    let [one, other] = [site.queue(), site.queue()];
    assert_eq!(totals(site), (2, 0, 0));
    assert_eq!(one.send(1, "123"), Ok(()));
    assert_eq!(other.send(1, "12345"), Ok(()));
    assert_eq!(other.send(1, ""), Ok(()));
    assert_eq!(totals(site), (2, 3, 8));
    let (_, info) = site.info(MSG_INFO).expect("totals");
    assert_eq!((info.max, info.mnb, info.mni), (8192, 16384, 32000));
    assert_eq!((info.ssz, info.seg), (16, 65535));
}

fn both_return_the_highest_index(site: &Site) {
    site.need_to_be_alone();
    let highest = || [IPC_INFO, MSG_INFO].map(|command| site.info(command).expect("it").0);
    assert_eq!(highest(), [0, 0]);
    let queues: Vec<Queue> = (0..5).map(|_| site.queue()).collect();
    assert_eq!(highest(), [4, 4]);
    assert_eq!(queues[2].remove(), Ok(()));
    assert_eq!(highest(), [4, 4]);
    assert_eq!(queues[4].remove(), Ok(()));
    assert_eq!(highest(), [3, 3]);
    for at in [0, 1, 3] {
        assert_eq!(queues[at].remove(), Ok(()));
    }
    assert_eq!(highest(), [0, 0]);
}

fn totals_follow_every_send_and_receive(site: &Site) {
    site.need_to_be_alone();
    let queue = site.queue();
    for count in 1..=100 {
        assert_eq!(queue.send(count, "seven.."), Ok(()));
        assert_eq!(totals(site), (1, count as i32, 7 * count as i32));
    }
    for count in (0..100).rev() {
        assert!(queue.receive(-100).is_ok());
        assert_eq!(totals(site), (1, count, 7 * count));
    }
}

fn totals_of_several_processes_are_exact(site: &Site) {
    site.need_to_be_alone();
    const EACH: i32 = 200;
    let queues = [(); 3].map(|()| site.queue());
    let children =
        queues.map(|queue| site.child(move || (0..EACH).all(|_| queue.send(1, "12").is_ok())));
    assert!(children.into_iter().all(|child| child.result()));
    assert_eq!(totals(site), (3, 3 * EACH, 6 * EACH));
    let children =
        queues.map(|queue| site.child(move || (0..EACH - 1).all(|_| queue.receive(0).is_ok())));
    assert!(children.into_iter().all(|child| child.result()));
    assert_eq!(totals(site), (3, 3, 6));
}

fn a_removed_queue_takes_its_messages_out_of_the_totals(site: &Site) {
    site.need_to_be_alone();
    let [one, other] = [site.queue(), site.queue()];
    assert_eq!(one.send(1, "123"), Ok(()));
    assert_eq!(other.send(1, "12345"), Ok(()));
    assert_eq!(one.remove(), Ok(()));
    assert_eq!(totals(site), (1, 1, 5));
}

fn a_message_handed_over_is_not_counted(site: &Site) {
    site.need_to_be_alone();
    let queue = site.queue();
    let receiver = site.blocked(|| queue.receive_waiting(0));
    assert_eq!(queue.send(1, "four"), Ok(()));
    assert_eq!(totals(site), (1, 0, 0));
    assert!(receiver.result().is_ok());
    assert_eq!(totals(site), (1, 0, 0));
}

/// Returns whether a stranger sees the right totals. The only queue has this mode and one message.
fn asked_by_a_stranger(site: &Site, mode: i32) -> Result<bool, Errno> {
    site.need_to_be_alone();
    assert_eq!(site.queue_of_mode(mode).send(1, "four"), Ok(()));
    site.as_user(User::NOBODY, || {
        site.info(IPC_INFO)?;
        Ok(totals(site) == (1, 1, 4))
    })
}

fn everybody_may_ask(site: &Site) {
    assert_eq!(asked_by_a_stranger(site, 0o604), Ok(true));
}

fn queues_that_grant_nothing_are_counted(site: &Site) {
    site.need_sight_of_closed_queues();
    assert_eq!(asked_by_a_stranger(site, 0o600), Ok(true));
}

fn other_limits_are_said(site: &Site) {
    site.need_to_be_alone();
    site.ask(site.backend().limit_queues(77)).expect("a limit");
    for command in [IPC_INFO, MSG_INFO] {
        assert_eq!(site.info(command).expect("it").1.mni, 77);
    }
}
