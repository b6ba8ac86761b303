//! A program that uses message queues through nix, as Rust programs do. The program prints the result of each call, so that two runs can be compared.

use std::fmt::Debug;
use std::time::{Duration, SystemTime};

use nix::errno::Errno;
use nix::mqueue::{
    MQ_OFlag, MqAttr, MqdT, mq_attr_member_t, mq_close, mq_getattr, mq_open, mq_receive,
    mq_remove_nonblock, mq_send, mq_set_nonblock, mq_setattr, mq_timedreceive, mq_unlink,
};
use nix::sys::stat::Mode;
use nix::sys::time::TimeSpec;
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{ForkResult, fork};

const SIZE: mq_attr_member_t = 32;

fn say(what: &str, answer: impl Debug) {
    println!("{what}: {answer:?}");
}

fn mode() -> Mode {
    Mode::S_IWUSR | Mode::S_IRUSR | Mode::S_IRGRP | Mode::S_IROTH
}

fn create(name: &str, messages: mq_attr_member_t, flags: MQ_OFlag) -> nix::Result<MqdT> {
    let attributes = MqAttr::new(0, messages, SIZE, 0);
    mq_open(name, MQ_OFlag::O_CREAT | flags, mode(), Some(&attributes))
}

fn open(name: &str, flags: MQ_OFlag) -> nix::Result<MqdT> {
    mq_open(name, flags, Mode::empty(), None)
}

fn receive(queue: &MqdT) -> nix::Result<(String, u32)> {
    let (mut buffer, mut priority) = ([0; SIZE as usize], 0);
    let length = mq_receive(queue, &mut buffer, &mut priority)?;
    Ok((
        String::from_utf8_lossy(&buffer[..length]).into_owned(),
        priority,
    ))
}

fn receive_within(queue: &MqdT, patience: Duration) -> nix::Result<usize> {
    let (mut buffer, mut priority) = ([0; SIZE as usize], 0);
    let deadline = (SystemTime::now() + patience)
        .duration_since(SystemTime::UNIX_EPOCH)
        .expect("after 1970");
    mq_timedreceive(
        queue,
        &mut buffer,
        &mut priority,
        &TimeSpec::from_duration(deadline),
    )
}

fn attributes(queue: &MqdT) -> nix::Result<[mq_attr_member_t; 4]> {
    let got = mq_getattr(queue)?;
    Ok([got.flags(), got.maxmsg(), got.msgsize(), got.curmsgs()])
}

fn sending_and_receiving(name: &str) -> nix::Result<()> {
    let writer = create(name, 10, MQ_OFlag::O_WRONLY)?;
    say("send", mq_send(&writer, b"msg_1", 1));
    say("send higher", mq_send(&writer, b"msg_2", 2));
    say("send too long", mq_send(&writer, &[0; 33], 1));
    say(
        "send with an invalid priority",
        mq_send(&writer, b"x", 32768),
    );
    say("receive from a writer", receive(&writer));
    let reader = open(name, MQ_OFlag::O_RDONLY)?;
    say("attributes", attributes(&reader));
    say("send to a reader", mq_send(&reader, b"x", 1));
    say("receive", receive(&reader));
    say("receive", receive(&reader));
    say(
        "receive within 20 ms",
        receive_within(&reader, Duration::from_millis(20)),
    );
    mq_close(reader)?;
    mq_close(writer)
}

fn attributes_and_flags(name: &str) -> nix::Result<()> {
    let queue = open(name, MQ_OFlag::O_RDWR)?;
    say("as created", attributes(&queue));
    let wanted = MqAttr::new(
        mq_attr_member_t::from(MQ_OFlag::O_NONBLOCK.bits()),
        5,
        50,
        0,
    );
    say(
        "before setting",
        mq_setattr(&queue, &wanted).map(|old| [old.flags(), old.maxmsg(), old.msgsize()]),
    );
    say("after setting", attributes(&queue));
    say("receive without waiting", receive(&queue));
    say(
        "remove O_NONBLOCK",
        mq_remove_nonblock(&queue).map(|old| old.flags()),
    );
    say(
        "set O_NONBLOCK",
        mq_set_nonblock(&queue).map(|old| old.flags()),
    );
    let sent = (0..20)
        .take_while(|_| mq_send(&queue, b"fill", 0) == Ok(()))
        .count();
    say("sent until full", sent);
    say("attributes when full", attributes(&queue));
    mq_close(queue)
}

fn opening_and_unlinking(name: &str) -> nix::Result<()> {
    let again = create(name, 10, MQ_OFlag::O_RDWR | MQ_OFlag::O_EXCL);
    say("create what exists", again.map(drop));
    say("unlink", mq_unlink(name));
    say("unlink again", mq_unlink(name));
    say(
        "open what is gone",
        open(name, MQ_OFlag::O_RDONLY).map(drop),
    );
    say(
        "a name without a slash",
        open("queue", MQ_OFlag::O_RDONLY).map(drop),
    );
    say("no messages", create(name, 0, MQ_OFlag::O_RDWR).map(drop));
    Ok(())
}

/// Forks a child that receives messages from one inherited queue, and sends each back in capitals through another.
fn echoing(name: &str) -> nix::Result<()> {
    let back = format!("{name}-back");
    let (there, back_again) = (
        create(name, 1, MQ_OFlag::O_RDWR)?,
        create(&back, 1, MQ_OFlag::O_RDWR)?,
    );
    mq_unlink(name)?;
    mq_unlink(back.as_str())?;
    // SAFETY: this program has one thread.
    match unsafe { fork() }? {
        ForkResult::Child => {
            for _ in 0..100 {
                let (text, priority) = receive(&there)?;
                mq_send(&back_again, text.to_uppercase().as_bytes(), priority)?;
            }
            std::process::exit(0);
        }
        ForkResult::Parent { child } => {
            let mut echoed = 0;
            for round in 0..100_u32 {
                mq_send(&there, format!("round {round}").as_bytes(), round)?;
                echoed += u32::from(receive(&back_again)? == (format!("ROUND {round}"), round));
            }
            say("echoed", echoed);
            say(
                "the child ended well",
                matches!(waitpid(child, None)?, WaitStatus::Exited(_, 0)),
            );
        }
    }
    Ok(())
}

fn main() -> Result<(), Errno> {
    let name = std::env::args()
        .nth(1)
        .unwrap_or_else(|| "/umsg-nix-mqueue".to_string());
    let _ = mq_unlink(name.as_str());
    sending_and_receiving(&name)?;
    attributes_and_flags(&name)?;
    opening_and_unlinking(&name)?;
    echoing(&name)
}
