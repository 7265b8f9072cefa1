//! How many threads share a kernel's work.

use std::sync::OnceLock;
use std::thread::available_parallelism;

/// Asked of the system once: it takes as long as searching some thousand rows.
static PROCESSORS: OnceLock<usize> = OnceLock::new();

/// As many as pay, where one is worth starting for so much `work`.
pub fn threads_for(work: usize, a_thread: usize) -> usize {
    let processors = || available_parallelism().map_or(1, usize::from);
    (work / a_thread).clamp(1, *PROCESSORS.get_or_init(processors))
}
