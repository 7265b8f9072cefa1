//! Arrays whose memory is Python's: who drops the last part of one, in whatever thread, calls into the
//! interpreter, which must not exit meanwhile, nor have exited.

use std::mem::forget;
use std::ptr::null_mut;

use arrow::ffi::FFI_ArrowArray;

use crate::python::attached::Call;

/// The same array, which is left in memory when the interpreter is exiting.
pub fn kept_at_exit(mut array: FFI_ArrowArray) -> FFI_ArrowArray {
    // SAFETY: one of the two releases what they share: `array`'s own release is replaced below.
    let inner = Box::new(unsafe { std::ptr::read(&raw const array) });
    array.release = Some(release);
    array.private_data = Box::into_raw(inner).cast();
    array
}

unsafe extern "C" fn release(outer: *mut FFI_ArrowArray) {
    // SAFETY: the interface calls this once, with what `kept_at_exit` has made.
    let inner = unsafe {
        (*outer).release = None;
        Box::from_raw((*outer).private_data.cast::<FFI_ArrowArray>())
    };
    // SAFETY: as above.
    unsafe { (*outer).private_data = null_mut() };
    match Call::begin() {
        Some(_call) => drop(inner),
        None => forget(inner),
    }
}
