//! Python objects that plans and streams own.
//!
//! The host drops these in threads of its own, which must not wait for the interpreter: its holder
//! may wait for them. So a thread of this library drops the objects, soon.

use std::mem::ManuallyDrop;
use std::sync::Mutex;
use std::thread::sleep;
use std::time::Duration;

use pyo3::prelude::*;

use crate::host::runtime::runtime;
use crate::python::errors::{guarded, with_python};

/// Objects of several queries are dropped together: right away, the next query would wait for the
/// interpreter, a tenth of a short one's time.
const PAUSE: Duration = Duration::from_millis(20);

static DROPPED: Mutex<Vec<Py<PyAny>>> = Mutex::new(vec![]);

pub struct Held<T = PyAny>(ManuallyDrop<Py<T>>);

impl<T> Held<T> {
    pub fn new(object: Bound<'_, T>) -> Self {
        Self(ManuallyDrop::new(object.unbind()))
    }

    pub fn bind<'py>(&self, py: Python<'py>) -> &Bound<'py, T> {
        self.0.bind(py)
    }

    pub fn into_bound(self, py: Python<'_>) -> Bound<'_, T> {
        let mut whole = ManuallyDrop::new(self);
        // SAFETY: taken once, as `whole` is never dropped.
        unsafe { ManuallyDrop::take(&mut whole.0) }.into_bound(py)
    }
}

impl<T> Drop for Held<T> {
    fn drop(&mut self) {
        // SAFETY: taken once, as this is the end of it.
        let object = unsafe { ManuallyDrop::take(&mut self.0) }.into_any();
        let Ok(mut dropped) = DROPPED.lock() else {
            return;
        };
        dropped.push(object);
        // If there are objects already, the call that they have started drops this one too.
        if dropped.len() == 1 {
            let _ = guarded(|| runtime().map(|runtime| runtime.spawn_blocking(let_go)));
        }
    }
}

/// Nothing is dropped when the interpreter is exiting.
fn let_go() {
    sleep(PAUSE);
    let _ = with_python(|py| {
        // One by one, without the lock: dropping may run Python code.
        while let Some(object) = DROPPED.lock().ok().and_then(|mut dropped| dropped.pop()) {
            drop(object.into_bound(py));
        }
        Ok(())
    });
}
