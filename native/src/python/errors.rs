//! Python errors on their way through DataFusion, which keeps only their text.
//!
//! The newest exceptions are remembered by their text, so that Python code that catches
//! DataFusion's error can get the original object back (`recall`).

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;

use datafusion_common::{DataFusionError, Result};
use pyo3::exceptions::{PyKeyboardInterrupt, PyRuntimeError};
use pyo3::prelude::*;

use crate::python::attached::Call;

const REMEMBERED: usize = 32;

static RECENT: Mutex<VecDeque<(String, Py<PyAny>)>> = Mutex::new(VecDeque::new());

/// Run `work` attached to the interpreter; its exceptions and panics become errors.
pub fn with_python<T>(work: impl FnOnce(Python<'_>) -> PyResult<T>) -> Result<T> {
    guarded(|| {
        let call = Call::begin();
        let attached = |py: Python<'_>| work(py).map_err(|error| remember(py, error));
        let done = call.as_ref().and_then(|_| Python::try_attach(attached));
        done.unwrap_or_else(|| Err(external("the Python interpreter is shutting down".to_owned())))
    })
}

/// Run `work`; its panics become errors. One must never cross the FFI: it would abort the process.
pub fn guarded<T>(work: impl FnOnce() -> Result<T>) -> Result<T> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        Err(external(format!("panic in memwal_native: {}", panic_text(&*panic))))
    })
}

/// The newest exception whose text is part of `message`, if it is still remembered.
#[pyfunction]
pub fn recall(py: Python<'_>, message: &str) -> Option<Py<PyAny>> {
    let recent = RECENT.lock().ok()?;
    let newest_first = recent.iter().rev();
    newest_first
        .filter(|(text, _)| message.contains(text.as_str()))
        .map(|(_, exception)| exception.clone_ref(py))
        .next()
}

/// Remember an exception that DataFusion's own bindings are about to print with `{:?}`.
#[pyfunction(name = "remember")]
pub fn remember_raised(error: &Bound<'_, PyAny>) -> PyResult<()> {
    keep(error.repr()?.to_string(), error.clone().unbind());
    Ok(())
}

/// A Python error for what went wrong in Rust.
pub fn python_error(error: impl std::fmt::Display) -> PyErr {
    PyRuntimeError::new_err(error.to_string())
}

fn remember(py: Python<'_>, error: PyErr) -> DataFusionError {
    let text = error.to_string();
    let is_interrupt = error.is_instance_of::<PyKeyboardInterrupt>(py);
    // The locals of the frames would keep whole batches alive; failing to clear them is harmless.
    if let Some(traceback) = error.traceback(py) {
        let _ = py
            .import("traceback")
            .and_then(|module| module.call_method1("clear_frames", (traceback,)));
    }
    keep(text.clone(), error.into_value(py).into_any());
    if is_interrupt {
        let _ = interrupt_again(py); // last, as it comes in the next Python code
    }
    external(text)
}

/// DataFusion makes an ordinary exception of Ctrl-C, which programs catch and go on. So it comes once
/// more, in the first Python code that runs, unless a handler of the program's own may count it.
fn interrupt_again(py: Python<'_>) -> PyResult<()> {
    let signal = py.import("signal")?;
    let handler = signal.call_method1("getsignal", (signal.getattr("SIGINT")?,))?;
    if handler.is(&signal.getattr("default_int_handler")?) {
        py.import("_thread")?.call_method0("interrupt_main")?;
    }
    Ok(())
}

fn keep(text: String, error: Py<PyAny>) {
    // Dropped after the lock: dropping may run Python code.
    let mut forgotten = None;
    if let Ok(mut recent) = RECENT.lock() {
        if recent.len() == REMEMBERED {
            forgotten = recent.pop_front();
        }
        recent.push_back((text, error));
    }
    drop(forgotten);
}

fn external(text: String) -> DataFusionError {
    DataFusionError::External(text.into())
}

fn panic_text(panic: &(dyn std::any::Any + Send)) -> &str {
    if let Some(text) = panic.downcast_ref::<&str>() {
        return text;
    }
    panic.downcast_ref::<String>().map_or("unknown", String::as_str)
}
