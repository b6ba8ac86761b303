//! The options that select the calls to show.

use std::time::Duration;

use clap::Args;
use glob::Pattern;
use umsg_trace::Function;

use super::line::Call;
use super::symbols;
use crate::values;

/// The options that select calls. A call must satisfy all of them.
#[derive(Args, Debug)]
pub struct Filter {
    /// Show only the calls of these functions, such as mq_send,mq_receive
    #[arg(long, value_name = "NAMES", value_delimiter = ',', value_parser = function)]
    calls: Vec<Function>,
    /// Show only calls on queues whose names match this pattern: `*` is any text, `?` one character; id:N is a System V queue
    #[arg(long, value_name = "PATTERN", value_parser = values::pattern)]
    queue: Option<Pattern>,
    /// Show only calls that failed
    #[arg(long)]
    failed: bool,
    /// Show only calls that failed with one of these errors, such as EAGAIN,EINTR
    #[arg(long, value_name = "NAMES", value_delimiter = ',', value_parser = error)]
    errors: Vec<i32>,
    /// Show only calls that took longer than this time, such as 10us or 1ms
    #[arg(long, value_name = "TIME", value_parser = values::duration)]
    slower_than: Option<Duration>,
}

impl Filter {
    pub fn wants(&self, call: &Call) -> bool {
        let is_named = self.calls.is_empty() || self.calls.contains(&call.function);
        let queue = self.queue.as_ref();
        let is_on_queue = queue.is_none_or(|pattern| pattern.matches(&call.queue()));
        let failed = call.numbers.result == -1;
        let is_error = self.errors.is_empty() || self.errors.contains(&call.numbers.errno);
        let is_slow = self.slower_than.is_none_or(|least| call.took() > least);
        is_named && is_on_queue && (failed || !self.failed) && is_error && is_slow
    }
}

fn function(name: &str) -> Result<Function, String> {
    Function::named(name).ok_or_else(|| {
        let names: Vec<&str> = Function::ALL.iter().map(|it| it.name()).collect();
        format!("give functions of {}", names.join(", "))
    })
}

fn error(name: &str) -> Result<i32, String> {
    symbols::errno_named(name)
        .ok_or_else(|| "give the names of errors, such as EAGAIN or ETIMEDOUT".to_owned())
}
