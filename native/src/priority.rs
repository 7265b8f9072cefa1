//! How background work shares the processors.

use std::time::Duration;

use pyo3::prelude::*;

/// As long as Linux lets a turn be, in nanoseconds.
const LONG_TURN: u64 = 100_000_000;
/// Between two decisions who runs next, while this process works and while it doesn't.
const INTERVAL: Duration = Duration::from_micros(500);
const IDLE_INTERVAL: Duration = Duration::from_millis(20);
/// As many intervals without work: in one of them, readers may leave it no time.
const IDLE_AFTER: u32 = 200;

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

/// From now on, while this process works, have Linux decide every half a millisecond who runs on each
/// of these processors.
///
/// It decides when a thread wakes up or goes to sleep, and else at its ticks, which are up to ten
/// milliseconds apart. A thread of a reader that has just run is behind one of a job, which by its
/// niceness is due a few microseconds, and gets them all until the next tick. So a thread of this
/// one's priority wakes up on each processor and goes to sleep again: call this before that is
/// lowered. Nothing happens on other systems.
#[pyfunction]
pub fn take_turns_often(processors: Vec<usize>) {
    #[cfg(target_os = "linux")]
    for processor in processors.into_iter().filter(|&one| one < libc::CPU_SETSIZE as usize) {
        // Without the thread, readers wait a little longer.
        let _ = std::thread::Builder::new()
            .name("memwal-turns".into())
            .spawn(move || wake_up_on(processor));
    }
    #[cfg(not(target_os = "linux"))]
    let _ = processors;
}

#[cfg(target_os = "linux")]
fn wake_up_on(processor: usize) {
    // Safety: the kernel reads as many bytes as it is told the set has.
    unsafe {
        let mut only: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(processor, &mut only);
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const only);
    }
    let (mut used, mut idle) = (processor_time(), 0u32);
    loop {
        std::thread::sleep(if idle < IDLE_AFTER { INTERVAL } else { IDLE_INTERVAL });
        let now = processor_time();
        idle = if now - used < INTERVAL / 10 { idle.saturating_add(1) } else { 0 };
        used = now;
    }
}

/// What all threads of this process have taken so far.
#[cfg(target_os = "linux")]
fn processor_time() -> Duration {
    // Safety: the kernel writes one timespec.
    let taken = unsafe {
        let mut taken: libc::timespec = std::mem::zeroed();
        libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &raw mut taken);
        taken
    };
    Duration::new(taken.tv_sec as u64, taken.tv_nsec as u32)
}
