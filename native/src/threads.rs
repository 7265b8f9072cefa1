//! How many threads share a kernel's work.

use std::panic::resume_unwind;
use std::sync::OnceLock;
use std::thread::{self, available_parallelism};

/// Asked of the system once: it takes as long as searching some thousand rows.
static PROCESSORS: OnceLock<usize> = OnceLock::new();

/// The number of threads that pay, if one is worth starting for so much `work`.
pub fn threads_for(work: usize, a_thread: usize) -> usize {
    let processors = || available_parallelism().map_or(1, usize::from);
    (work / a_thread).clamp(1, *PROCESSORS.get_or_init(processors))
}

/// The results of `work` for each of so many shares of `items`, in their order; the first share runs
/// here, each of the others in a thread.
pub fn shared<T: Sync, R: Send>(
    items: &[T],
    shares: usize,
    work: impl Fn(&[T]) -> R + Sync,
) -> Vec<R> {
    let work = &work;
    let mut parts = items.chunks(items.len().div_ceil(shares).max(1));
    let first = parts.next().unwrap_or_default();
    thread::scope(|scope| {
        let others: Vec<_> = parts.map(|part| scope.spawn(move || work(part))).collect();
        let mut made = vec![work(first)];
        for other in others {
            made.push(other.join().unwrap_or_else(|panic| resume_unwind(panic)));
        }
        made
    })
}
