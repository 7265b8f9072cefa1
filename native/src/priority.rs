//! How background work shares the processors.

use pyo3::prelude::*;

/// As long as Linux lets a turn be, in nanoseconds.
const LONG_TURN: u64 = 100_000_000;

/// Let any other thread that wakes up interrupt this one and those that it starts from now on, which
/// have this niceness: a thread of Linux (6.12 and later) gives way at once to one whose turns are
/// shorter, where else it would go on for milliseconds. What share of time each gets stays the same.
///
/// Nothing happens on other systems, or where it is forbidden.
#[pyfunction]
pub fn take_long_turns(niceness: i32) {
    #[cfg(target_os = "linux")]
    // Safety: the kernel reads as many bytes as `size` says, and writes none.
    unsafe {
        let mut wanted: libc::sched_attr = std::mem::zeroed();
        wanted.size = size_of::<libc::sched_attr>() as u32;
        wanted.sched_policy = libc::SCHED_OTHER as u32;
        wanted.sched_nice = niceness;
        wanted.sched_runtime = LONG_TURN;
        libc::syscall(libc::SYS_sched_setattr, 0, &raw const wanted, 0);
    }
    #[cfg(not(target_os = "linux"))]
    let _ = niceness;
}
