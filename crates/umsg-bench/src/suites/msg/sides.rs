//! One workload on all sides, in rounds that alternate.

use super::SUITE;
use crate::backends::typed::TypedQueue;
use crate::backends::typed::dropin::DropinQueue;
use crate::backends::typed::kernel::KernelQueue;
use crate::backends::typed::umsg::{InsideLock, UmsgQueue};
use crate::failure::Failure;
use crate::harness::{Plan, Samples, Side};
use crate::row::{Better, Row};

/// A measurement that runs on each side of the comparison: umsg's queue, the kernel's queue, and the drop-in.
pub trait Workload {
    /// The findings of one round.
    type Found;

    fn round<Q: TypedQueue>(&self) -> Result<Self::Found, Failure>;
}

/// Whether umsg is also measured with its wake-ups inside the lock. Without sleepers, there are no wake-ups to compare.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Ablation {
    Include,
    LeaveOut,
}

/// The results of the rounds of all sides.
pub struct Sides<T> {
    pub umsg: Side<T>,
    pub inside_lock: Side<T>,
    pub kernel: Side<T>,
    pub dropin: Side<T>,
    ablation: Ablation,
}

impl<T> Sides<T> {
    /// Measures a workload on all sides. The kernel gets a separate workload, because its queues may have less room.
    pub fn measure<W: Workload<Found = T>>(
        plan: &Plan,
        name: &str,
        workload: &W,
        kernels: &W,
        ablation: Ablation,
    ) -> Result<Self, Failure> {
        let mut sides = Self {
            umsg: Side::new(),
            inside_lock: Side::new(),
            kernel: Side::new(),
            dropin: Side::absent(plan.no_dropin()),
            ablation,
        };
        for round in 0..plan.rounds {
            plan.progress(&format!("{SUITE}: {name}"), round);
            sides.umsg.round(|| workload.round::<UmsgQueue>());
            sides.kernel.round(|| kernels.round::<KernelQueue>());
            sides.dropin.round(|| workload.round::<DropinQueue>());
            if ablation == Ablation::Include {
                sides.inside_lock.round(|| workload.round::<InsideLock>());
            }
        }
        match sides.umsg.failure {
            Some(failure) => Err(Failure::new(format!("{name}: {failure}"))),
            None => Ok(sides),
        }
    }

    /// Makes the row of one figure, with the columns of all sides.
    pub fn row(
        &self,
        name: impl Into<String>,
        unit: &'static str,
        better: Better,
        figure: impl Fn(&T) -> f64 + Copy,
    ) -> Row {
        let (umsg, kernel) = (self.umsg.each(figure), self.kernel.each(figure));
        let mut row = Row::compare(SUITE, name, unit, better, &umsg, &kernel)
            .column("dropin", self.dropin.each(figure).median());
        if self.ablation == Ablation::Include {
            let inside = self.inside_lock.each(figure);
            let gain = gain(&umsg, &inside);
            row = row
                .column("wake_inside_lock", inside.median())
                .column("outside_gains_%", gain);
        }
        row.spreads(&umsg, &kernel)
            .reason("kernel", self.kernel.failure.as_ref())
            .reason("drop-in", self.dropin.failure.as_ref())
            .reason("wake-up inside the lock", self.inside_lock.failure.as_ref())
    }

    /// Adds the CPU time of umsg and of the kernel to a row, as columns.
    pub fn with_cpu(&self, row: Row, cpu: impl Fn(&T) -> f64 + Copy) -> Row {
        row.column("umsg_cpu_ns", self.umsg.each(cpu).median())
            .column("kernel_cpu_ns", self.kernel.each(cpu).median())
            .note("cpu: of all threads, a message")
    }
}

/// Returns the percentage by which a rate is higher with the wake-ups outside of the lock.
fn gain(outside: &Samples, inside: &Samples) -> Option<f64> {
    let rates = outside.median().zip(inside.median());
    rates.map(|(outside, inside)| 100.0 * (outside / inside - 1.0))
}
