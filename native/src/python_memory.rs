//! Arrays whose memory is Python's: who drops the last part of one, in whatever thread, calls into the
//! interpreter, which must not exit meanwhile, nor have exited.

use std::ffi::c_void;

use arrow::ffi::FFI_ArrowArray;

use crate::attached::Call;

/// `ArrowArray` of Arrow's C data interface, which has all fields in the open.
#[repr(C)]
#[derive(Clone, Copy)]
struct CArray {
    length: i64,
    null_count: i64,
    offset: i64,
    n_buffers: i64,
    n_children: i64,
    buffers: *mut *const c_void,
    children: *mut *mut Self,
    dictionary: *mut Self,
    release: Option<unsafe extern "C" fn(*mut Self)>,
    private_data: *mut c_void,
}

/// The same array, which is left in memory when the interpreter is exiting.
pub fn kept_at_exit(array: FFI_ArrowArray) -> FFI_ArrowArray {
    // SAFETY: both have the layout of the C data interface; ownership moves along.
    let inner = unsafe { std::mem::transmute::<FFI_ArrowArray, CArray>(array) };
    let outer = CArray { release: Some(release), private_data: std::ptr::null_mut(), ..inner };
    let outer = CArray { private_data: Box::into_raw(Box::new(inner)).cast(), ..outer };
    // SAFETY: as above; what `outer` points to lives until its release, which comes once.
    unsafe { std::mem::transmute::<CArray, FFI_ArrowArray>(outer) }
}

unsafe extern "C" fn release(outer: *mut CArray) {
    // SAFETY: the interface calls this once, with what `kept_at_exit` has made.
    unsafe {
        (*outer).release = None;
        let mut inner = Box::from_raw((*outer).private_data.cast::<CArray>());
        let call = Call::begin();
        if let (Some(release), Some(_)) = (inner.release, &call) {
            release(&raw mut *inner);
        }
    }
}
