//! Calls on System V queues. Errors are checked in the kernel's order. Source: ipc/msg.c.

use umsg::NamespaceError;
use umsg::sysv::raw::{self, Table, Which};
use umsg::sysv::{Change, Lease, OpenError, Queue, ReceiveError, Until, Want};

use super::listener::{Call, Gone};
use super::memory;
use super::serve::{Outcome, Server};
use super::waits::{End, Wait};
use super::watch::TICK;

/// The longest message text that is read together with its type, in bytes.
const SHORT: usize = 4096;

impl Server {
    pub fn msgget(&self, call: &Call) -> Result<Outcome, i32> {
        let [key, flags, ..] = call.arguments.map(|argument| argument as i32);
        let (_, queues) = self.caller(call)?;
        if !self.listener.waits(call) {
            return Ok(Outcome::Answered);
        }
        let creates = key == libc::IPC_PRIVATE || flags & libc::IPC_CREAT != 0;
        let id = queues.sysv.get(key, flags).map_err(|error| {
            self.explain("msgget", &error);
            match error {
                OpenError::Namespace(NamespaceError::NoQueuesDirectory { .. }) if creates => {
                    libc::EACCES
                }
                other => other.errno(),
            }
        })?;
        Ok(Outcome::Value(id.into()))
    }

    pub fn msgsnd(&self, call: &Call) -> Result<Outcome, i32> {
        let [id, message, length, flags, ..] = call.arguments;
        let (id, flags) = (id as i32, flags as i32);
        let length = usize::try_from(length).map_err(|_| libc::EINVAL);
        // Most messages are short, so one system call reads both type and text, in half of the time of two. If it fails, separate reads find out
        // which of the two can't be read.
        let whole = length
            .ok()
            .filter(|length| *length <= SHORT)
            .and_then(|length| {
                let mut text = vec![0; length];
                let from = message.wrapping_add(8);
                let mtype = memory::read_with(call.thread, message, &mut text, from).ok()?;
                Some((mtype, text))
            });
        let (mtype, text) = match whole {
            Some((mtype, text)) => (mtype, Some(text)),
            None => (memory::read(call.thread, message)?, None),
        };
        let (process, queues) = self.caller(call)?;
        let length = length?;
        let queue = queues.sysv.find_to_send(id, mtype, length)?;
        let text = match text {
            Some(text) => text,
            None => {
                let mut text = vec![0; length];
                memory::read_bytes(call.thread, message.wrapping_add(8), &mut text)?;
                text
            }
        };
        if !self.listener.waits(call) {
            return Ok(Outcome::Answered);
        }
        match queue.try_send(mtype, &text) {
            Ok(()) => {
                queue.name_sender(process);
                Ok(Outcome::Value(0))
            }
            Err(libc::EAGAIN) if flags & libc::IPC_NOWAIT == 0 => {
                self.wait(call, move |server, wait| {
                    server.wait_for_room(wait, &queues.sysv, process, id, mtype, &text);
                })?;
                Ok(Outcome::Answered)
            }
            Err(errno) => Err(errno),
        }
    }

    fn wait_for_room(
        &self,
        wait: &Wait,
        table: &Table,
        process: u32,
        id: i32,
        mtype: i64,
        text: &[u8],
    ) {
        let answer = loop {
            if !self.listener.waits(&wait.call) {
                return;
            }
            let sent = table.find(id).and_then(|queue| {
                queue.send(mtype, text, Until::Forever)?;
                queue.name_sender(process);
                Ok(())
            });
            match sent {
                Ok(()) => break Ok(0),
                Err(libc::EINTR) => {}
                Err(libc::EINVAL) => break Err(libc::EIDRM),
                Err(errno) => break Err(errno),
            }
            match wait.end() {
                Some(End::Errno(errno)) => break Err(errno),
                Some(End::Gone) => return,
                None => {}
            }
        };
        table.reap();
        // The answer fails only if the thread has died.
        let _ = self.listener.answer(&wait.call, answer);
    }

    pub fn msgrcv(&self, call: &Call) -> Result<Outcome, i32> {
        let [id, _, length, mtype, flags, _] = call.arguments;
        let (id, flags) = (id as i32, flags as i32);
        if length > i64::MAX as u64 || id < 0 {
            return Err(libc::EINVAL);
        }
        let which = Which::of(mtype.cast_signed(), flags)?;
        let (process, queues) = self.caller(call)?;
        let (want, truncate) = match which {
            Which::Want(want, truncate) => (want, truncate),
            Which::Copy(..) => return self.copy(call, &queues.sysv, id, which),
        };
        let queue = queues.sysv.find(id)?;
        let refusal = match queue.try_receive_lease(want) {
            Ok(lease) => {
                let _ = self.hand_over(call, &queue, process, lease, truncate);
                return Ok(Outcome::Answered);
            }
            Err(refusal) => refusal,
        };
        match refusal {
            ReceiveError::NoMessage | ReceiveError::Closed if flags & libc::IPC_NOWAIT != 0 => {
                Err(libc::ENOMSG)
            }
            ReceiveError::NoMessage | ReceiveError::Closed => {
                self.wait(call, move |server, wait| {
                    server.wait_for_message(wait, &queues.sysv, process, id, want, truncate);
                })?;
                Ok(Outcome::Answered)
            }
            ReceiveError::Removed => Err(libc::EINVAL),
            error => Err(error.errno()),
        }
    }

    fn wait_for_message(
        &self,
        wait: &Wait,
        table: &Table,
        process: u32,
        id: i32,
        want: Want,
        truncate: bool,
    ) {
        let errno = loop {
            if !self.listener.waits(&wait.call) {
                return;
            }
            let queue = match table.find(id) {
                Ok(queue) => queue,
                Err(libc::EINVAL) => break libc::EIDRM,
                Err(errno) => break errno,
            };
            match queue.receive_lease_until(want, Until::Forever) {
                Ok(lease) => {
                    let _ = self.hand_over(&wait.call, &queue, process, lease, truncate);
                    return;
                }
                Err(ReceiveError::Interrupted) => {}
                // msgrcv(2) has no error for a queue that is closed for sending, so the call continues to wait.
                Err(ReceiveError::Closed) => std::thread::sleep(TICK),
                Err(error) => break error.errno(),
            }
            match wait.end() {
                Some(End::Errno(errno)) => break errno,
                Some(End::Gone) => return,
                None => {}
            }
        };
        table.reap();
        let _ = self.listener.answer(&wait.call, Err(errno));
    }

    /// Copies a message to the program. When the kernel has accepted the answer, removes the message from the queue; otherwise the message returns to
    /// the queue. If the message can't be copied, it is lost, as in the kernel.
    fn hand_over(
        &self,
        call: &Call,
        queue: &Queue,
        process: u32,
        lease: Lease<'_>,
        truncate: bool,
    ) -> Result<(), Gone> {
        let [_, buffer, room, ..] = call.arguments;
        if !self.listener.waits(call) {
            return Err(Gone);
        }
        let length = (lease.len() as u64).min(room) as usize;
        if length < lease.len() && !truncate {
            // The lease is dropped before the answer, so that the message is back in the queue before the program makes its next call.
            drop(lease);
            return self.listener.answer(call, Err(libc::E2BIG));
        }
        let mtype = lease.mtype();
        let copied = memory::write_parts(
            call.thread,
            &[
                ((&raw const mtype).cast(), size_of::<i64>(), buffer),
                (lease.as_ptr(), length, buffer.wrapping_add(8)),
            ],
        );
        queue.name_receiver(process);
        self.listener.answer(call, copied.map(|()| length as i64))?;
        // The acknowledgement of a lease without a time limit fails only if the queue is corrupted. The next call reports this.
        let _ = lease.acknowledge();
        Ok(())
    }

    /// Answers msgrcv(2) with MSG_COPY: copies a message, which stays in the queue.
    fn copy(&self, call: &Call, table: &Table, id: i32, which: Which) -> Result<Outcome, i32> {
        let [_, buffer, room, ..] = call.arguments;
        let queue = table.find(id)?;
        let mut text = vec![0; (room as usize).min(queue.msgmax())];
        let received = queue.try_receive(&mut text, which)?;
        if !self.listener.waits(call) {
            return Ok(Outcome::Answered);
        }
        memory::write_parts(
            call.thread,
            &[
                ((&raw const received.mtype).cast(), size_of::<i64>(), buffer),
                (text.as_ptr(), received.len, buffer.wrapping_add(8)),
            ],
        )?;
        Ok(Outcome::Value(received.len as i64))
    }

    pub fn msgctl(&self, call: &Call) -> Result<Outcome, i32> {
        let [id, command, data, ..] = call.arguments;
        let (id, command) = (id as i32, command as i32);
        if id < 0 || command < 0 {
            return Err(libc::EINVAL);
        }
        let (_, queues) = self.caller(call)?;
        let table = &queues.sysv;
        match command {
            libc::IPC_RMID => {
                if self.listener.waits(call) {
                    table.remove(id)?;
                }
                Ok(Outcome::Value(0))
            }
            libc::IPC_SET => {
                let wanted = memory::read(call.thread, data)?;
                if self.listener.waits(call) {
                    table.set(id, &Change::of(&wanted))?;
                }
                Ok(Outcome::Value(0))
            }
            libc::IPC_STAT | libc::MSG_STAT | raw::MSG_STAT_ANY => {
                let (answer, entry) = table.stat(id, command)?;
                let mut filled = memory::no_description();
                entry.fill(&mut filled);
                if !self.listener.waits(call) {
                    return Ok(Outcome::Answered);
                }
                memory::write(call.thread, data, &filled)?;
                Ok(Outcome::Value(answer.into()))
            }
            libc::IPC_INFO | libc::MSG_INFO => {
                let info = table.info(command)?;
                if !self.listener.waits(call) {
                    return Ok(Outcome::Answered);
                }
                memory::write(call.thread, data, &info.in_c())?;
                Ok(Outcome::Value(info.highest_index.into()))
            }
            _ => Err(libc::EINVAL),
        }
    }
}
