//! Makes a call on a queue by the plain C names. Cases execute this program to see the state after an exec.
//!
//! `mq_probe attributes FD` prints the answer of `mq_getattr`, `mq_probe receive FD` receives a message, and `mq_probe send NAME TEXT` opens a
//! queue and sends a message.

use std::ffi::CString;
use std::process::ExitCode;

use umsg_conformance::backend::{Answer, Backend, Called};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let answer = match arguments[..] {
        ["attributes", fd] => attributes(fd),
        ["receive", fd] => receive(fd),
        ["send", name, text] => send(name, text),
        _ => {
            eprintln!("usage: mq_probe attributes FD | receive FD | send NAME TEXT");
            return ExitCode::from(2);
        }
    };
    match answer {
        Ok(text) => println!("{text}"),
        Err(failure) => println!("{failure:?}"),
    }
    ExitCode::SUCCESS
}

fn number(text: &str) -> i32 {
    text.parse().expect("a descriptor")
}

fn attributes(fd: &str) -> Answer<String> {
    Ok(format!("{:?}", Called::kernel().attributes(number(fd))?))
}

fn receive(fd: &str) -> Answer<String> {
    let mut buffer = vec![0; 8192];
    let (length, priority) = Called::kernel().receive(number(fd), &mut buffer)?;
    Ok(format!(
        "{} of priority {priority}",
        String::from_utf8_lossy(&buffer[..length])
    ))
}

fn send(name: &str, text: &str) -> Answer<String> {
    let name = CString::new(name).expect("no NUL");
    let queue = Called::kernel().open(&name, libc::O_WRONLY, 0, None)?;
    Called::kernel().send(queue, text.as_bytes(), 0)?;
    Ok("sent".to_string())
}
