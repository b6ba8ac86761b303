//! One or a few rows of most suites, in half a minute. `cargo xtask bench-check` compares these rows with the figures that were accepted last. The
//! rows have the same names as in their own suites.

use super::{batch, everyday, mqueue, msg, pingpong, poll, ring, stream};
use crate::failure::Failure;
use crate::harness::Plan;
use crate::row::Row;

pub fn run(plan: &Plan) -> Result<Vec<Row>, Failure> {
    let parts = [
        mqueue::guard(plan)?,
        stream::guard(plan)?,
        batch::guard(plan)?,
        pingpong::guard(plan)?,
        poll::guard(plan)?,
        msg::guard(plan)?,
        ring::guard(plan),
        everyday::guard(plan),
    ];
    Ok(parts.into_iter().flatten().collect())
}
