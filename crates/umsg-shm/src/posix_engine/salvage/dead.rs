//! Removes dead waiters.

use super::Engine;
use crate::counters::Event;
use crate::fault::Fault;
use crate::lock::tokens::ReceiverHeld;
use crate::waiters::{self, List, State, Waiters};

impl Engine {
    /// Removes the nodes of dead waiters from all lists. The next walk over the offers withdraws the offers to dead receivers.
    pub(super) fn remove_dead(
        &self,
        receiving: ReceiverHeld<'_>,
        knows_threads: bool,
    ) -> Result<(), Fault> {
        for (_, node) in Waiters::of(self.segment()).all() {
            let is_dead = waiters::state(node) != State::Free;
            match List::of(node) {
                List::Receivers if waiters::is_deserted(self.segment(), node, knows_threads) => {
                    Waiters::of(self.segment()).remove(receiving, node)?;
                }
                List::Senders if waiters::is_deserted(self.segment(), node, knows_threads) => {
                    // The call counts the death of a thread that the kernel has marked.
                    let is_counted = waiters::has_died(node);
                    self.withdraw_sender(receiving, node)?;
                    if is_counted {
                        continue;
                    }
                }
                // The node has left its list. If its thread died before it read the result, this call frees the node.
                List::None if waiters::state(node) == State::Waiting => {
                    waiters::is_deserted(self.segment(), node, knows_threads);
                    continue;
                }
                _ => continue,
            }
            if is_dead {
                self.segment().fixed().counters.count(Event::WaiterDied);
            }
        }
        Ok(())
    }
}
