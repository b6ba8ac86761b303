//! The proofs of this process's registrations by a signal: [`umsg_shm::proof`].
//!
//! The page is made with the first registration, in the namespace of its queue. Registrations with queues of other namespaces have no proof.

use umsg_shm::memory::MappedProofs;
use umsg_shm::posix_engine::Engine;
use umsg_shm::proof::{Proof, ProofPage, Reclaimed, Slot};
use umsg_shm::sys::liveness::{Liveness as _, UNREGISTERED};
use umsg_shm::sys::process;
use umsg_shm::sys::thread::Thread;

/// The proof of a registration.
#[derive(Clone, Copy)]
pub(super) struct Proven {
    slot: &'static Slot,
    ticket: u64,
    /// The number of the slot.
    pub(super) number: u32,
}

impl Proven {
    /// Returns whether a sender that lives is about to raise the signal.
    pub(super) fn is_taken(self) -> bool {
        self.slot.taker(self.ticket).is_some_and(is_alive)
    }

    /// Frees the slot, unless a living sender is about to raise the signal.
    pub(super) fn reclaim(self) -> Reclaimed {
        match self.slot.reclaim(self.ticket) {
            Reclaimed::Taken(by) if !is_alive(by) => {
                match self.slot.reclaim_from_dead(self.ticket, by) {
                    true => Reclaimed::Own,
                    false => Reclaimed::Raised,
                }
            }
            reclaimed => reclaimed,
        }
    }
}

fn is_alive(sender: u32) -> bool {
    !process::is_dead(sender, 0)
}

/// The proof page of this process. The table's lock guards it.
#[derive(Default)]
pub(super) enum Proofs {
    #[default]
    Untried,
    None,
    Page {
        /// The liveness id under which senders find it.
        life: u32,
        page: &'static ProofPage,
        /// The thread id of the helper that stands for the life of the process; 0 for none.
        server: u32,
    },
}

impl Proofs {
    /// Writes a proof, if there is room and the queue is in the namespace of the page.
    pub(super) fn offer(&mut self, engine: &Engine, proof: &Proof) -> Option<Proven> {
        if let Proofs::Untried = self {
            *self = Proofs::make(engine);
        }
        let Proofs::Page { life, page, .. } = *self else {
            return None;
        };
        let is_here = engine.segment().own() == life;
        let number = is_here.then(|| page.offer(proof))??;
        Some(Proven {
            slot: page.slot(number)?,
            ticket: proof.ticket,
            number,
        })
    }

    #[cold]
    fn make(engine: &Engine) -> Proofs {
        let life = engine.segment().own();
        let home = process::home();
        let made = engine.host().and_then(|host| host.make_proofs());
        match made {
            Some(made) if life != UNREGISTERED && home != 0 => {
                let made: &'static MappedProofs = Box::leak(Box::new(made));
                made.page().introduce(std::process::id(), home);
                Proofs::Page {
                    life,
                    page: made.page(),
                    server: 0,
                }
            }
            _ => Proofs::None,
        }
    }

    /// Has the thread of a helper, which ends with the process, stand for its life, if none does. A helper calls this before each sleep: a
    /// function of the program that it called may have locked a robust mutex.
    pub(super) fn serve(&mut self, me: &Thread) {
        let Proofs::Page { page, server, .. } = self else {
            return;
        };
        if *server == me.tid() {
            page.name_life(me);
        } else if *server == 0 && page.stand_for_life(me) {
            *server = me.tid();
        }
    }
}
