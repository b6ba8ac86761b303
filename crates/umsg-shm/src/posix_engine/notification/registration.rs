//! The registration of a process for a notification: registering, withdrawing, and queries about the process's own record.

use super::{EMPTY, INDEX, REGISTERED, Registered, What, ask_for_user, is_owner_dead};
use crate::consent::Shown;
use crate::crash::crash_point;
use crate::lock::STOPPED;
use crate::lock::deferred_wakes::DeferredWakes;
use crate::lock::tokens::ReceiverHeld;
use crate::posix_engine::segment::notice::{ARMED, FIRED, NOTICES, STATE, fired, raising};
use crate::posix_engine::segment::{MORE_NOTICES, Notice};
use crate::posix_engine::{Engine, Refused};
use crate::sync::{Ordering, fence};
use crate::sys::clock::Deadline;
use crate::sys::thread::Thread;
use crate::sys::{futex, liveness, process};
use std::time::Duration;

/// A request to register, with the kind of notification.
pub struct Claim {
    pub what: What,
    pub signal: u32,
    pub ticket: u64,
    /// The location of the process's consent to the signal in its page of consents.
    pub shown: Shown,
}

/// The reason why a process could not register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RegisterError {
    /// Another process is registered.
    Busy,
    /// All records belong to living processes that were notified and have not handled their notification yet.
    NoRecord,
    Refused(Refused),
}

/// The state of a process's own registration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The registration has not fired yet.
    Armed,
    /// The registration has fired. The values are the process id and the user id of the sender, or of the process that closed the queue for sending.
    Fired { pid: u32, uid: u32 },
    /// The registration has ended: it was removed, or its record is free or reused.
    Gone,
}

impl Engine {
    /// Registers this process for the next message that arrives in the empty queue. Returns the index of the record, and the record's word.
    pub fn register(&self, me: &Thread, claim: &Claim) -> Result<(u32, u32), RegisterError> {
        let mut outcome = Err(RegisterError::NoRecord);
        let patience = Deadline::after(Duration::from_nanos(STOPPED));
        liveness::register(self.segment());
        self.with_receiver_lock(me, patience, |receiving, wakes| {
            self.serve(receiving, wakes)?;
            outcome = self.register_locked(receiving, me, claim, wakes);
            Ok(())
        })
        .map_err(RegisterError::Refused)?;
        outcome
    }

    fn register_locked(
        &self,
        receiving: ReceiverHeld<'_>,
        me: &Thread,
        claim: &Claim,
        wakes: &mut DeferredWakes,
    ) -> Result<(u32, u32), RegisterError> {
        self.clear_dead_registration(receiving)?;
        let (index, notice) = self.free_notice(receiving)?;
        let birth = liveness::birth(self.segment(), || process::birth(me.pid()));
        let means = (claim.what as u32, claim.signal);
        notice.fill(
            receiving,
            (me.pid(), birth),
            means,
            claim.ticket,
            claim.shown,
        );
        crash_point!(NOTICE_FILLED);
        let registration = REGISTERED | (index * INDEX);
        self.set_registration(receiving, registration | EMPTY);
        // ATTENTION: as in `decide`, the fence orders the store of the flag before the reads of the stamps. Messages that are already in the queue do
        // not fire the registration, so blocked receivers take them first.
        fence(Ordering::SeqCst);
        match self.stays_filled(receiving, wakes) {
            Ok(false) => {}
            Ok(true) => self.set_registration(receiving, registration),
            Err(fault) => {
                self.set_registration(receiving, 0);
                return Err(RegisterError::Refused(fault.into()));
            }
        }
        crash_point!(NOTICE_DECIDED);
        // The record is armed last, because all processes see this step: a later message to the empty queue fires the registration.
        let armed = notice.arm(receiving);
        crash_point!(NOTICE_ARMED);
        Ok((index, armed))
    }

    /// Frees an armed record whose process is dead. Fails if the process lives.
    fn clear_dead_registration(&self, _: ReceiverHeld<'_>) -> Result<(), RegisterError> {
        for (_, notice) in self.notices() {
            let word = notice.word();
            if word & STATE != ARMED {
                continue;
            }
            if !is_owner_dead(self.segment(), notice) {
                return Err(RegisterError::Busy);
            }
            notice.free(word);
        }
        Ok(())
    }

    /// Finds a free record, or the record of a dead process.
    fn free_notice(&self, receiving: ReceiverHeld<'_>) -> Result<(u32, &Notice), RegisterError> {
        let state = |notice: &Notice| notice.word() & STATE;
        // Acquire, in `word`: the process that freed a record no longer accesses it.
        let is_free = |notice: &Notice| ![ARMED, FIRED].contains(&state(notice));
        if let Some(free) = self.notices().find(|(_, notice)| is_free(notice)) {
            return Ok(free);
        }
        if let Some(dead) = self
            .notices()
            .find(|(_, notice)| is_owner_dead(self.segment(), notice))
        {
            dead.1.free(dead.1.word());
            return Ok(dead);
        }
        self.provide_notice(receiving)
    }

    /// Allocates memory for more records, and returns the first of the new records.
    #[cold]
    fn provide_notice(&self, receiving: ReceiverHeld<'_>) -> Result<(u32, &Notice), RegisterError> {
        let used = self.more_notices();
        if used >= MORE_NOTICES {
            return Err(RegisterError::NoRecord);
        }
        let more = self
            .segment()
            .populate_notices(used as u32)
            .map_err(|fault| RegisterError::Refused(fault.into()))?;
        let receiver = &self.segment().fixed().receiver;
        receiver.set_more_notices(receiving, more);
        let index = (NOTICES + used) as u32;
        let notice = self.notice(index).ok_or(RegisterError::NoRecord)?;
        Ok((index, notice))
    }

    /// Withdraws a registration without the lock; senders notice the withdrawal in the record's word. Returns false if the registration has already
    /// ended.
    pub fn withdraw(&self, index: u32, armed: u32) -> bool {
        let withdrawn = self.notice(index).is_some_and(|notice| notice.free(armed));
        crash_point!(NOTICE_WITHDRAWN);
        withdrawn
    }

    /// Returns the armed registration. The process may be dead.
    pub fn registered(&self) -> Option<Registered> {
        let mut all = self.registrations();
        all.find_map(|(registered, is_notified)| (!is_notified).then_some(registered))
    }

    /// Iterates over all registrations. The second value is true for a fired registration.
    pub fn registrations(&self) -> impl Iterator<Item = (Registered, bool)> {
        self.notices().filter_map(|(index, notice)| {
            let (word, (pid, birth)) = (notice.word(), notice.owner());
            let registered = || Registered {
                index,
                what: What::of(notice),
                signal: notice.means().1,
                pid,
                birth,
                word,
            };
            match word & STATE {
                ARMED => Some((registered(), false)),
                FIRED => Some((registered(), true)),
                _ => None,
            }
        })
    }

    /// Returns the state of this process's own registration.
    pub fn outcome(&self, index: u32, armed: u32) -> Outcome {
        let Some(notice) = self.notice(index) else {
            return Outcome::Gone;
        };
        match notice.word() {
            // The word is `raising` while another thread raises the signal. That thread then frees the record.
            word if [armed, raising(armed)].contains(&word) => Outcome::Armed,
            word if word == fired(armed) => {
                let (pid, uid) = ask_for_user(notice);
                Outcome::Fired { pid, uid }
            }
            _ => Outcome::Gone,
        }
    }

    /// Frees the record after the process has handled the notification. The sender that fired the record may wait until the record is free.
    pub fn acknowledge_notice(&self, index: u32, armed: u32) {
        crash_point!(NOTICE_RAISED);
        if let Some(notice) = self.notice(index) {
            // The process wakes threads only if a sender waits. A wake-up without a waiting sender could wake a thread of this process that sleeps on
            // the word until the record is fired.
            if notice.free_fired(fired(armed)) {
                futex::wake(notice.futex(), i32::MAX);
            }
        }
    }

    /// Returns the futex on which the registered process sleeps, and the value that the futex has until the registration is fired.
    pub fn notice_word(&self, index: u32, armed: u32) -> Option<(&crate::sync::AtomicU32, u32)> {
        let notice = self.notice(index)?;
        let value = match notice.word() == raising(armed) {
            true => raising(armed),
            false => armed,
        };
        Some((notice.futex(), value))
    }
}
