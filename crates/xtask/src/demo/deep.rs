//! A queue of the largest depth that the kernel allows root, created and filled by an unprivileged user.

use super::stage::{Namespace, Stage, answer};
use crate::failure::{Failure, Result};
use crate::interrupt;

/// The number of messages in the table that the kernel's authors published: 8 short of 65,536, root's limit.
const MESSAGES: &str = "65528";
const QUEUE: &str = "/deep";

pub fn show(stage: &Stage) -> Result<()> {
    println!("\n== 4. A queue of 65,528 messages, without root ==");
    let namespace = stage.unprivileged_namespace()?;
    if let Some(user) = namespace.user() {
        println!(
            "You are root, so this part runs as user {user}, in a namespace that belongs to him."
        );
    }
    let program = stage.compile("fill", include_str!("fill.c"))?;
    let arguments = [QUEUE, MESSAGES];
    match answer(&mut namespace.on_kernel(&program, &[QUEUE, MESSAGES, "unlink"])) {
        Err(Failure::Failed(refusal)) => {
            let reason = refusal
                .rsplit_once("mq_open: ")
                .map_or(&*refusal, |(_, reason)| reason);
            println!("kernel:  fill {QUEUE} {MESSAGES}\n         refused: {reason}");
        }
        Err(interrupted) => return Err(interrupted),
        // The kernel's limits on this machine were raised for all processes, so the kernel has not refused.
        Ok(filled) => println!(
            "kernel:  fill {QUEUE} {MESSAGES}\n         {}",
            filled.trim()
        ),
    }
    let filled = answer(&mut namespace.on_umsg(&program, &arguments))?;
    println!(
        "umsg:    umsg run -- fill {QUEUE} {MESSAGES}\n         {}",
        filled.trim()
    );
    tool(&namespace, &["ls"])?;
    tool(&namespace, &["peek", QUEUE])
}

/// Runs the command line tool and shows its output.
fn tool(namespace: &Namespace, arguments: &[&str]) -> Result<()> {
    println!("\n$ umsg {}", arguments.join(" "));
    let mut command = namespace.umsg(arguments);
    if interrupt::run(&mut command)?.success() {
        Ok(())
    } else {
        Err(Failure::new(format!("umsg {} failed", arguments.join(" "))))
    }
}
