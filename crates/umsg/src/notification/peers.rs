//! The signals of other processes of this user: a sender raises them itself, if the other process proves its registration.
//!
//! A record in a queue only says where the proof is. The signal, the value and the process id come from the proof page, which only this user's
//! processes can write ([`umsg_shm::proof`]). A process that gives up its user, or has the real id of another, believes no page that it
//! believed before. So no process gains the right to signal another: its own user could have sent the signal.
//!
//! A process keeps the pages of some others mapped. A send may run in a signal handler, so this takes no memory of malloc's, and no thread
//! waits: a sender that finds the table of pages in use leaves the signal to the other process.

use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicU64, Ordering};

use umsg_shm::memory::MappedProofs;
use umsg_shm::posix_engine::segment::Notice;
use umsg_shm::posix_engine::{Engine, Outcome, armed};
use umsg_shm::sys::liveness::life_of;
use umsg_shm::sys::stack::roomy;
use umsg_shm::sys::{process, thread};

/// The number of pages that a process keeps.
const MOST: usize = 8;

/// The page of another process, and what was checked of it.
struct Peer {
    /// The epoch of this process in which that was done, and its effective user.
    epoch: u64,
    user: u32,
    life: u32,
    /// The process, and its page. None if the page is another user's.
    proofs: Option<(u32, MappedProofs)>,
}

struct Peers(UnsafeCell<[Option<Peer>; MOST]>);

// SAFETY: only the holder of a `Turn` accesses it.
unsafe impl Sync for Peers {}

static PEERS: Peers = Peers(UnsafeCell::new([const { None }; MOST]));

/// The epoch of the process in which a thread uses the table; 0 for none.
static TURN: AtomicU64 = AtomicU64::new(0);

/// The right to use the table.
struct Turn;

impl Turn {
    fn take() -> Option<Turn> {
        let epoch = process::epoch();
        // Acquire: the table is as the last turn left it.
        match TURN.compare_exchange(0, epoch, Ordering::Acquire, Ordering::Relaxed) {
            Ok(_) => Some(Turn),
            Err(holder) if holder != epoch => {
                // A thread of the parent used the table during the fork, and this child has no such thread. Its last change may be half done.
                TURN.compare_exchange(holder, epoch, Ordering::Acquire, Ordering::Relaxed)
                    .ok()?;
                // SAFETY: this thread has the turn. The old contents are not dropped.
                unsafe { PEERS.0.get().write([const { None }; MOST]) };
                Some(Turn)
            }
            Err(_) => None,
        }
    }

    fn peers(&mut self) -> &mut [Option<Peer>; MOST] {
        // SAFETY: there is one turn at a time, and it is borrowed as long as the table is.
        unsafe { &mut *PEERS.0.get() }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        // Release: pairs with the acquire in `take`.
        TURN.store(0, Ordering::Release);
    }
}

/// Raises the signal of a fired registration of another process, if that process proves it. False if the process has to raise it itself.
#[cold]
pub(super) fn raise(engine: &Engine, index: u32, notice: &Notice, word: u32) -> bool {
    let (number, life) = (notice.proof(), life_of(notice.owner().1));
    let (Some(life), Some(queue)) = (life.filter(|_| number != 0), engine.identity()) else {
        return false;
    };
    let (real, user) = process::users();
    let Some(mut turn) = Turn::take().filter(|_| real == user) else {
        return false;
    };
    let Some((pid, proofs)) = find(turn.peers(), engine, (life, user)) else {
        return false;
    };
    let (ticket, me) = (notice.ticket(), thread::current().pid());
    let Some(slot) = proofs.page().slot(number) else {
        return false;
    };
    let Outcome::Fired { pid: sender, uid } = engine.outcome(index, armed(word)) else {
        return false;
    };
    let Some(proof) = slot.take(ticket, queue, me) else {
        return false;
    };
    let raised = process::raise_in(*pid, (proof.signal, proof.value), (sender, uid));
    // EAGAIN: the limit of pending signals, at which the kernel drops the notification, too.
    if raised.is_err_and(|errno| errno.raw_os_error() != libc::EAGAIN) {
        slot.put_back(ticket, me);
        return false;
    }
    slot.finish(ticket, me);
    engine.acknowledge_notice(index, armed(word));
    true
}

/// Finds the page of a process that lives, and maps it if that was not done.
fn find<'a>(
    peers: &'a mut [Option<Peer>; MOST],
    engine: &Engine,
    (life, user): (u32, u32),
) -> Option<&'a (u32, MappedProofs)> {
    let epoch = process::epoch();
    let is_it = |peer: &Peer| (peer.epoch, peer.user, peer.life) == (epoch, user, life);
    let found = peers
        .iter()
        .position(|peer| peer.as_ref().is_some_and(is_it));
    let position = match found {
        Some(position) => position,
        None => {
            let place = peers.iter().position(|peer| !is_of_use(peer, epoch));
            // Otherwise a page that has to make room: any.
            let position = place.unwrap_or(life as usize % MOST);
            peers[position] = roomy(|| look_for(engine, (life, user)));
            position
        }
    };
    let is_dead =
        |peer: &Peer| matches!(&peer.proofs, Some((_, proofs)) if !proofs.page().is_alive());
    if peers[position].as_ref().is_some_and(is_dead) {
        peers[position] = None;
    }
    peers[position].as_ref()?.proofs.as_ref()
}

fn is_of_use(peer: &Option<Peer>, epoch: u64) -> bool {
    peer.as_ref().is_some_and(|peer| {
        let is_alive = |(_, proofs): &(u32, MappedProofs)| proofs.page().is_alive();
        peer.epoch == epoch && peer.proofs.as_ref().is_some_and(is_alive)
    })
}

/// Maps the page of a process and checks it. None if the page says nothing yet.
fn look_for(engine: &Engine, (life, user): (u32, u32)) -> Option<Peer> {
    let peer = |proofs| Peer {
        epoch: process::epoch(),
        user,
        life,
        proofs,
    };
    let Some(proofs) = engine.host()?.proofs_of(life) else {
        return Some(peer(None));
    };
    if !proofs.page().is_alive() {
        return None;
    }
    let (pid, home) = proofs.page().process();
    // The id is valid here, and that of a process of this user. A process with the right to signal all others, which its user does not
    // have, lends that right to no other process.
    let is_right = home != 0
        && home == process::home()
        && process::shown_user(pid) == Some(user)
        && (user == 0 || !process::may_signal_all());
    Some(peer(is_right.then_some((pid, proofs))))
}
