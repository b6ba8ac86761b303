//! Performs the same function on many queues, in several threads.

use std::num::NonZero;
use std::thread;

/// The maximum number of threads. Further threads would take longer to start than the time that they save.
const MOST: usize = 4;

/// Returns the results of `work` for all items, in their order. Each thread gets at least `least` items.
pub fn map<T: Send, R: Send>(
    items: &mut [T],
    least: usize,
    work: impl Fn(&mut T) -> R + Sync,
) -> Vec<R> {
    // The number of processors is not read if there are few items, because the standard library reads several files for it.
    let threads = match items.len() / least.max(1) {
        0 | 1 => 1,
        paying => paying.min(
            thread::available_parallelism()
                .map_or(1, NonZero::get)
                .min(MOST),
        ),
    };
    let share = items.len().div_ceil(threads).max(1);
    let work = &work;
    let some = |items: &mut [T]| items.iter_mut().map(work).collect::<Vec<R>>();
    let mut shares = items.chunks_mut(share);
    let own = shares.next().unwrap_or_default();
    thread::scope(|scope| {
        let others: Vec<_> = shares
            .map(|items| scope.spawn(move || some(items)))
            .collect();
        let mut results = some(own);
        for other in others {
            let more = other.join();
            results.extend(more.unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        }
        results
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_results_are_in_the_order_of_the_items() {
        for count in [0, 1, 2, 7, 8, 9, 1000] {
            for least in [0, 1, 3, 2000] {
                let mut items: Vec<usize> = (0..count).collect();
                let doubled: Vec<usize> = items.iter().map(|item| item * 2).collect();
                let results = map(&mut items, least, |item| {
                    *item *= 2;
                    *item
                });
                assert_eq!(results, doubled, "{count} {least}");
                assert_eq!(items, doubled, "{count} {least}");
            }
        }
    }
}
