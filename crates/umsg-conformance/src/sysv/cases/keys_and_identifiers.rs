//! `msgget`: keys, identifiers, and missing queues.

use libc::{IPC_CREAT, IPC_EXCL, IPC_PRIVATE};

use crate::errno::Errno;
use crate::sys;
use crate::sysv::backend::INDICES;
use crate::sysv::site::{Site, message};

subject_of_sysv! { $ keys_and_identifiers, keys_and_identifiers_cases:
    a_key_without_a_queue_is_enoent
    a_key_leads_to_the_queue_that_was_made_with_it
    ipc_creat_of_an_existing_queue_opens_it
    ipc_creat_and_ipc_excl_of_an_existing_queue_are_eexist
    ipc_excl_without_ipc_creat_opens
    every_number_but_zero_is_a_key
    ipc_private_makes_a_new_queue_each_time
    ipc_private_needs_no_ipc_creat
    a_private_queue_is_reached_by_its_identifier_only
    the_umask_is_ignored
    only_nine_bits_of_the_mode_count
    a_removed_queue_frees_its_key
    a_new_queue_of_the_same_key_has_another_identifier
    identifiers_are_a_sequence_number_and_an_index
    a_removed_index_is_not_used_again_at_once
    the_sequence_number_grows_when_the_indices_begin_again
    a_stale_identifier_is_einval_in_every_call
    a_queue_outlives_the_process_that_made_it
    an_identifier_works_in_a_process_that_never_asked_for_the_key
    more_queues_than_allowed_are_enospc
    an_existing_queue_opens_when_there_can_be_no_more
    many_queues_are_kept_apart
    the_next_queue_has_the_wanted_identifier
    a_wanted_identifier_whose_index_is_in_use_moves_to_the_next_index
}

fn a_key_without_a_queue_is_enoent(site: &Site) {
    let key = site.key();
    assert_eq!(site.get(key, 0), Err(Errno::ENOENT));
    assert_eq!(site.get(key, 0o600), Err(Errno::ENOENT));
    assert_eq!(site.get(key, IPC_EXCL | 0o600), Err(Errno::ENOENT));
}

fn a_key_leads_to_the_queue_that_was_made_with_it(site: &Site) {
    let (key, queue) = site.queue_with_key(0o600);
    let (other_key, other) = site.queue_with_key(0o600);
    assert_ne!(queue, other);
    assert_eq!(site.get(key, 0), Ok(queue));
    assert_eq!(site.get(other_key, 0o600), Ok(other));
    assert_eq!(queue.status().expect("its status").key, key);
}

fn ipc_creat_of_an_existing_queue_opens_it(site: &Site) {
    let (key, queue) = site.queue_with_key(0o600);
    assert_eq!(queue.send(1, "kept"), Ok(()));
    assert_eq!(site.get(key, IPC_CREAT | 0o644), Ok(queue));
    assert_eq!(queue.status().expect("its status").mode, 0o600);
    assert_eq!(queue.drain(), [message(1, "kept")]);
}

fn ipc_creat_and_ipc_excl_of_an_existing_queue_are_eexist(site: &Site) {
    let (key, _) = site.queue_with_key(0o600);
    let flags = IPC_CREAT | IPC_EXCL;
    assert_eq!(site.get(key, flags), Err(Errno::EEXIST));
    assert_eq!(site.get(key, flags | 0o600), Err(Errno::EEXIST));
}

fn ipc_excl_without_ipc_creat_opens(site: &Site) {
    let (key, queue) = site.queue_with_key(0o600);
    assert_eq!(site.get(key, IPC_EXCL), Ok(queue));
}

fn every_number_but_zero_is_a_key(site: &Site) {
    site.need_to_be_alone();
    for key in [1, -1, i32::MIN, i32::MAX] {
        assert_eq!(site.get(key, 0), Err(Errno::ENOENT), "key {key}");
        let queue = site.get(key, IPC_CREAT | 0o600).expect("a new queue");
        assert_eq!(site.get(key, 0), Ok(queue), "key {key}");
        assert_eq!(queue.status().expect("its status").key, key);
        assert_eq!(queue.remove(), Ok(()));
    }
}

fn ipc_private_makes_a_new_queue_each_time(site: &Site) {
    let [one, another] = [site.queue(), site.queue()];
    assert_ne!(one, another);
    assert_eq!(one.send(1, "one"), Ok(()));
    assert_eq!(another.receive(0), Err(Errno::ENOMSG));
}

fn ipc_private_needs_no_ipc_creat(site: &Site) {
    let queue = site.get(IPC_PRIVATE, 0o600).expect("a new queue");
    assert_ne!(site.get(IPC_PRIVATE, IPC_EXCL | 0o600), Ok(queue));
    assert_eq!(queue.status().expect("its status").key, 0);
}

fn a_private_queue_is_reached_by_its_identifier_only(site: &Site) {
    let queue = site.queue();
    assert_eq!(queue.send(7, "mine"), Ok(()));
    let other = site.get(IPC_PRIVATE, 0o600).expect("a new queue");
    assert_ne!(other, queue);
    let child = site.child(|| site.at(queue.id()).receive(7));
    assert_eq!(child.result(), Ok(message(7, "mine")));
}

fn the_umask_is_ignored(site: &Site) {
    sys::umask(0o777);
    let queue = site.queue_of_mode(0o666);
    assert_eq!(queue.status().expect("its status").mode, 0o666);
}

fn only_nine_bits_of_the_mode_count(site: &Site) {
    let queue = site.queue_of_mode(0o4755);
    assert_eq!(queue.status().expect("its status").mode, 0o755);
}

fn a_removed_queue_frees_its_key(site: &Site) {
    let (key, queue) = site.queue_with_key(0o600);
    assert_eq!(queue.remove(), Ok(()));
    assert_eq!(site.get(key, 0), Err(Errno::ENOENT));
    assert!(site.get(key, IPC_CREAT | IPC_EXCL | 0o600).is_ok());
}

fn a_new_queue_of_the_same_key_has_another_identifier(site: &Site) {
    let (key, queue) = site.queue_with_key(0o600);
    assert_eq!(queue.send(1, "old"), Ok(()));
    let mut identifiers = vec![queue.id()];
    for _ in 0..200 {
        let old = site.get(key, 0).expect("the queue");
        assert_eq!(old.remove(), Ok(()));
        let new = site.get(key, IPC_CREAT | 0o600).expect("a new queue");
        assert!(!identifiers.contains(&new.id()), "{new:?} comes again");
        identifiers.push(new.id());
        assert_eq!(new.receive(0), Err(Errno::ENOMSG));
    }
}

fn identifiers_are_a_sequence_number_and_an_index(site: &Site) {
    for _ in 0..100 {
        let queue = site.queue();
        let status = queue.status().expect("its status");
        assert_eq!(queue.id() / INDICES, status.sequence as i32);
        assert_eq!(queue.remove(), Ok(()));
    }
}

fn a_removed_index_is_not_used_again_at_once(site: &Site) {
    site.need_to_be_alone();
    for index in 0..64 {
        let queue = site.queue();
        assert_eq!(queue.id(), index);
        assert_eq!(queue.remove(), Ok(()));
    }
}

fn the_sequence_number_grows_when_the_indices_begin_again(site: &Site) {
    site.need_to_be_alone();
    for at in 0..200 {
        let queue = site.queue();
        assert_eq!(queue.id(), at / 64 * INDICES + at % 64);
        assert_eq!(queue.remove(), Ok(()));
    }
    // A new queue never gets the index of an existing queue.
    let kept: Vec<_> = (0..10).map(|_| site.queue()).collect();
    let first = kept[0].id() % INDICES;
    for _ in 0..100 {
        let queue = site.queue();
        let index = queue.id() % INDICES;
        assert!(!(first..first + 10).contains(&index), "{queue:?}");
        assert_eq!(queue.remove(), Ok(()));
    }
}

fn a_stale_identifier_is_einval_in_every_call(site: &Site) {
    let queue = site.queue();
    assert_eq!(queue.send(1, "lost"), Ok(()));
    let unchanged = queue.status().expect("its status").unchanged();
    assert_eq!(queue.remove(), Ok(()));
    for _ in 0..2 {
        assert_eq!(queue.send(1, "x"), Err(Errno::EINVAL));
        assert_eq!(queue.send_waiting(1, "x"), Err(Errno::EINVAL));
        assert_eq!(queue.receive(0), Err(Errno::EINVAL));
        assert_eq!(queue.receive_waiting(0), Err(Errno::EINVAL));
        assert_eq!(queue.copy(0), Err(Errno::EINVAL));
        assert_eq!(queue.status(), Err(Errno::EINVAL));
        assert_eq!(queue.set(&unchanged), Err(Errno::EINVAL));
        assert_eq!(queue.remove(), Err(Errno::EINVAL));
        // The second round repeats the checks after a new queue may have got the index of the removed one.
        site.queue();
    }
}

fn a_queue_outlives_the_process_that_made_it(site: &Site) {
    let key = site.key();
    let maker = site.child(|| {
        let queue = site.get(key, IPC_CREAT | 0o600).expect("a new queue");
        assert_eq!(queue.send(3, "left behind"), Ok(()));
        i64::from(queue.id())
    });
    let id = maker.result() as i32;
    assert_eq!(site.get(key, 0), Ok(site.at(id)));
    assert_eq!(site.at(id).receive(0), Ok(message(3, "left behind")));
}

fn an_identifier_works_in_a_process_that_never_asked_for_the_key(site: &Site) {
    let maker = site.child(|| i64::from(site.queue().id()));
    let queue = site.at(maker.result() as i32);
    assert_eq!(queue.send(1, "by number"), Ok(()));
    assert_eq!(queue.counts(), (1, 9));
}

fn more_queues_than_allowed_are_enospc(site: &Site) {
    site.need_to_be_alone();
    site.ask(site.backend().limit_queues(3)).expect("a limit");
    let queues = [site.queue(), site.queue(), site.queue()];
    assert_eq!(site.get(IPC_PRIVATE, 0o600), Err(Errno::ENOSPC));
    assert_eq!(site.get(site.key(), IPC_CREAT | 0o600), Err(Errno::ENOSPC));
    assert_eq!(site.get(site.key(), 0), Err(Errno::ENOENT));
    assert_eq!(queues[1].remove(), Ok(()));
    site.queue();
    assert_eq!(site.get(IPC_PRIVATE, 0o600), Err(Errno::ENOSPC));
}

fn an_existing_queue_opens_when_there_can_be_no_more(site: &Site) {
    site.need_to_be_alone();
    let (key, queue) = site.queue_with_key(0o600);
    site.ask(site.backend().limit_queues(1)).expect("a limit");
    assert_eq!(site.get(key, IPC_CREAT | 0o600), Ok(queue));
    let flags = IPC_CREAT | IPC_EXCL | 0o600;
    assert_eq!(site.get(key, flags), Err(Errno::EEXIST));
}

fn many_queues_are_kept_apart(site: &Site) {
    let queues: Vec<_> = (0..150).map(|_| site.queue_with_key(0o600)).collect();
    for (number, (_, queue)) in (1..).zip(&queues) {
        assert_eq!(queue.send(number, number.to_string()), Ok(()));
    }
    for (number, (key, queue)) in (1..).zip(&queues) {
        assert_eq!(site.get(*key, 0), Ok(*queue));
        assert_eq!(queue.drain(), [message(number, number.to_string())]);
        assert_eq!(queue.remove(), Ok(()));
    }
}

fn the_next_queue_has_the_wanted_identifier(site: &Site) {
    site.need_to_be_alone();
    let first = site.queue();
    let wanted = 5 * INDICES + 40;
    site.ask(site.backend().want_id(wanted as u32))
        .expect("a choice");
    let key = site.key();
    assert_eq!(site.get(key, 0), Err(Errno::ENOENT));
    let queue = site.get(key, IPC_CREAT | 0o600).expect("a queue");
    assert_eq!(queue.id(), wanted);
    assert_eq!(queue.status().expect("its status").sequence, 5);
    assert_eq!(queue.send(1, "kept"), Ok(()));
    assert_eq!(
        site.get(key, 0).expect("the queue").drain(),
        [message(1, "kept")]
    );
    // The chosen identifier applies to one queue. The next queue gets the usual next identifier.
    assert_eq!(site.queue().id(), first.id() + 1);
}

fn a_wanted_identifier_whose_index_is_in_use_moves_to_the_next_index(site: &Site) {
    site.need_to_be_alone();
    let first = site.queue();
    let want = |id: i32| {
        site.ask(site.backend().want_id(id as u32))
            .expect("a choice");
        site.queue().id()
    };
    assert_eq!(want(7 * INDICES + first.id()), 7 * INDICES + first.id() + 1);
    assert_eq!(want(7 * INDICES + first.id()), 7 * INDICES + first.id() + 2);
    let last = site.queue();
    assert_eq!(last.id(), first.id() + 3);
    assert_eq!(last.remove(), Ok(()));
    assert_eq!(want(last.id()), last.id());
}
