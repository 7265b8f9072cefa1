//! Counts threads of this library that run Python code: the interpreter can wait for them when
//! it exits: it would abort with one of them attached, or about to be.

use std::sync::Once;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use pyo3::prelude::*;

const PAUSE: Duration = Duration::from_millis(1);

/// Calls that run, or are about to see whether they may.
static CALLS: AtomicUsize = AtomicUsize::new(0);
static CLOSED: AtomicBool = AtomicBool::new(false);
static OPENED: Once = Once::new();

/// One call into Python, for as long as it lives.
pub struct Call(());

impl Call {
    /// None when the interpreter is exiting.
    pub fn begin() -> Option<Self> {
        // Counted first: who closes after the look below waits for this call.
        CALLS.fetch_add(1, Ordering::SeqCst);
        let call = Self(());
        (!CLOSED.load(Ordering::SeqCst)).then_some(call)
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        // None is counted where this call has forked.
        let _ =
            CALLS.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |calls| calls.checked_sub(1));
    }
}

/// See to it that a fork, which has no threads of its parent, begins without their calls.
pub fn open() {
    OPENED.call_once(|| {
        // SAFETY: the function does nothing but store a number, which any forked child may do.
        unsafe { libc::pthread_atfork(None, None, Some(forked)) };
    });
}

unsafe extern "C" fn forked() {
    CALLS.store(0, Ordering::SeqCst);
}

/// Let no thread call into Python any more, and wait until none does, so many seconds at most;
/// whether none does. The end of another interpreter than the main one means nothing here.
#[pyfunction]
pub fn shut_down(py: Python<'_>, seconds: f64) -> bool {
    if !in_main_interpreter(py) {
        return true;
    }
    CLOSED.store(true, Ordering::SeqCst);
    let nobody = || CALLS.load(Ordering::SeqCst) == 0;
    if nobody() {
        return true;
    }
    let patience = Duration::try_from_secs_f64(seconds).unwrap_or_default();
    let start = Instant::now();
    py.detach(|| {
        while !nobody() && start.elapsed() < patience {
            sleep(PAUSE);
        }
        nobody()
    })
}

fn in_main_interpreter(_: Python<'_>) -> bool {
    // SAFETY: the caller is attached, so there is a current interpreter.
    unsafe { pyo3::ffi::PyInterpreterState_GetID(pyo3::ffi::PyInterpreterState_Get()) == 0 }
}
