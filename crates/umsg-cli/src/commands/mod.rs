//! One file per command: its arguments, its help and its actions.

mod answers;
pub mod bench_queue;
pub mod bridge;
pub mod close;
pub mod completions;
pub mod create;
mod create_sysv;
pub mod doctor;
mod doctor_problems;
mod doctor_text;
pub mod dump;
pub mod gc;
mod gc_found;
mod jobs;
pub mod limits;
pub mod load;
pub mod ls;
pub mod ls_ring;
mod ls_sysv;
pub mod man;
pub mod metrics;
pub mod patience;
pub mod peek;
mod policy;
pub mod recv;
pub mod redrive;
pub mod relay;
pub mod rm;
pub mod run;
mod sample;
pub mod send;
pub mod setup;
pub mod stat;
mod stat_ring;
mod stat_sysv;
pub mod top;
pub mod trace;
pub mod watch;
pub mod who;

use crate::cli::{Cli, Command};
use crate::failure::{Failure, Result};

pub fn perform(cli: &Cli) -> Result {
    match &cli.command {
        Command::Run(run) => run.perform(cli),
        Command::Create(create) => create.perform(cli),
        Command::Close(close) => close.perform(cli),
        Command::Rm(rm) => rm.perform(cli),
        Command::Gc(gc) => gc.perform(cli),
        Command::Doctor(doctor) => doctor.perform(cli),
        Command::Ls(ls) => ls.perform(cli),
        Command::Stat(stat) => stat.perform(cli),
        Command::Who(who) => who.perform(cli),
        Command::Send(send) => send.perform(cli),
        Command::Recv(recv) => recv.perform(cli),
        Command::Peek(peek) => peek.perform(cli),
        Command::Redrive(redrive) => redrive.perform(cli),
        Command::Dump(dump) => dump.perform(cli),
        Command::Load(load) => load.perform(cli),
        Command::Watch(watch) => watch.perform(cli),
        Command::Trace(trace) => match trace.perform(cli)? {
            0 => Ok(()),
            code => Err(Failure::Exited(code)),
        },
        Command::BenchQueue(bench) => bench.perform(cli),
        Command::Top(top) => top.perform(cli),
        Command::Metrics(metrics) => metrics.perform(cli),
        Command::Bridge(bridge) => bridge.perform(cli),
        Command::Relay(relay) => relay.perform(cli),
        Command::Limits(limits) => limits.perform(cli),
        Command::Setup(setup) => setup.perform(cli),
        Command::Man(man) => man.perform(),
        Command::Completions(completions) => completions.perform(),
    }
}
