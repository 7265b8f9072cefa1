//! A mounted table as the host sees it: quick to ask when a query's filters are plain.
//!
//! `FFI_TableProvider` answers each offer of filters and each scan by rebuilding the host's session
//! on this side, with all its functions and its whole configuration: about 1.3 ms a query. Only
//! filters that call functions need that. So the table of functions gets two shorter ones, which
//! hand over to the ones they replace when a filter can't be read without the host's functions.
//!
//! The fields in question, and the session, are private to `datafusion-ffi`. The layouts of one
//! version are repeated here, so tables get the short functions only where `quick_tables` says that
//! the host is of that version; `memwal_sql/session/version.py` knows it. Others ask the long way.
//! The host aborts if a panic reaches it, so what can panic here is guarded.

use std::ffi::c_void;
use std::mem::offset_of;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use async_ffi::{FfiFuture, FutureExt};
use datafusion_catalog::TableProvider;
use datafusion_common::{DataFusionError, Result};
use datafusion_expr::{Expr, TableProviderFilterPushDown};
use datafusion_ffi::execution_plan::FFI_ExecutionPlan;
use datafusion_ffi::proto::logical_extension_codec::FFI_LogicalExtensionCodec;
use datafusion_ffi::proto::physical_extension_codec::FFI_PhysicalExtensionCodec;
use datafusion_ffi::table_provider::FFI_TableProvider;
use datafusion_ffi::table_source::FFI_TableProviderFilterPushDown;
use datafusion_ffi::util::{FFI_Option, FFI_Result};
use datafusion_proto::logical_plan::DefaultLogicalExtensionCodec;
use datafusion_proto::logical_plan::from_proto::parse_exprs;
use datafusion_proto::protobuf::LogicalExprList;
use prost::Message;
use pyo3::prelude::*;
use stabby::vec::Vec as FfiVec;

use crate::host::runtime::no_session;
use crate::mount::ffi_plan::make_lean;
use crate::mount::provider::PythonTable;
use crate::python::errors::guarded;

type Offer = unsafe extern "C" fn(
    &FFI_TableProvider,
    FfiVec<u8>,
) -> FFI_Result<FfiVec<FFI_TableProviderFilterPushDown>>;
type Scan = unsafe extern "C" fn(
    &FFI_TableProvider,
    Session,
    FFI_Option<FfiVec<usize>>,
    FfiVec<u8>,
    FFI_Option<usize>,
) -> FfiFuture<FFI_Result<FFI_ExecutionPlan>>;
type Clone = unsafe extern "C" fn(&FFI_TableProvider) -> FFI_TableProvider;

/// The fields of `FFI_TableProvider` in their order.
#[repr(C)]
struct Layout {
    schema: *const c_void,
    scan: Scan,
    table_type: *const c_void,
    offer: Option<Offer>,
    insert_into: *const c_void,
    statistics: *const c_void,
    codec: FFI_LogicalExtensionCodec,
    clone: Clone,
    release: *const c_void,
    version: *const c_void,
    private_data: *mut c_void,
    library_marker_id: *const c_void,
}

/// The fields of the session of a scan: the fourteen functions that a plain scan never calls, the
/// codecs, and the fields needed to hand a value on or drop it.
#[repr(C)]
struct Session {
    functions: [*const c_void; 14],
    logical_codec: FFI_LogicalExtensionCodec,
    physical_codec: FFI_PhysicalExtensionCodec,
    clone: *const c_void,
    release: unsafe extern "C" fn(&mut Session),
    version: *const c_void,
    private_data: *mut c_void,
    library_marker_id: *const c_void,
}

impl Drop for Session {
    fn drop(&mut self) {
        // SAFETY: the host's own function, called once.
        unsafe { (self.release)(self) }
    }
}

const _: () = {
    assert!(size_of::<Layout>() == size_of::<FFI_TableProvider>());
    // Checks the fields that can be seen: the distance between two of them is as expected.
    assert!(offset_of!(Layout, statistics) == offset_of!(FFI_TableProvider, statistics));
    assert!(offset_of!(Layout, codec) == offset_of!(FFI_TableProvider, logical_codec));
    assert!(offset_of!(Layout, version) == offset_of!(FFI_TableProvider, version));
    assert!(
        offset_of!(Layout, library_marker_id) == offset_of!(FFI_TableProvider, library_marker_id)
    );
};

/// The functions of `datafusion-ffi`, the same for every table.
struct Replaced {
    scan: Scan,
    offer: Offer,
    clone: Clone,
}

static REPLACED: OnceLock<Replaced> = OnceLock::new();
static QUICK: AtomicBool = AtomicBool::new(false);

/// Whether tables that are mounted from now on get the quick functions: only if the host has the
/// version whose layouts are repeated here. Returns the previous value.
#[pyfunction]
pub fn quick_tables(quick: bool) -> bool {
    QUICK.swap(quick, Ordering::Relaxed)
}

/// `table`, which wraps a `PythonTable`, as the host is to have it.
pub fn exported(table: FFI_TableProvider) -> FFI_TableProvider {
    if QUICK.load(Ordering::Relaxed) { lean_table(table) } else { table }
}

/// `table` with the quick functions.
fn lean_table(mut table: FFI_TableProvider) -> FFI_TableProvider {
    // SAFETY: the two types have the same layout, see above.
    let layout = unsafe { &mut *(&raw mut table).cast::<Layout>() };
    if let Some(theirs) = layout.offer {
        REPLACED.get_or_init(|| Replaced { scan: layout.scan, offer: theirs, clone: layout.clone });
        layout.scan = scan;
        layout.offer = Some(offer);
        layout.clone = clone;
    }
    table
}

#[expect(clippy::expect_used, reason = "a table has these functions only after they were set")]
fn replaced() -> &'static Replaced {
    REPLACED.get().expect("set by lean_table")
}

unsafe extern "C" fn clone(table: &FFI_TableProvider) -> FFI_TableProvider {
    // SAFETY: the function that `datafusion-ffi` made this table with.
    lean_table(unsafe { (replaced().clone)(table) })
}

unsafe extern "C" fn offer(
    table: &FFI_TableProvider,
    filters: FfiVec<u8>,
) -> FFI_Result<FfiVec<FFI_TableProviderFilterPushDown>> {
    let answers = match guarded(|| answered(table, &filters)) {
        // SAFETY: the function that `datafusion-ffi` made this table with.
        Ok(None) => return unsafe { (replaced().offer)(table, filters) },
        Ok(Some(answers)) => Ok(answers),
        Err(error) => Err(error),
    };
    result(answers)
}

/// The answers to the filters; None if they can't be read without functions of the host.
fn answered(
    table: &FFI_TableProvider,
    filters: &[u8],
) -> Result<Option<FfiVec<FFI_TableProviderFilterPushDown>>> {
    if let Some(plain) = plain(filters)? {
        let inner = <Arc<dyn TableProvider>>::from(table);
        let own = inner.downcast_ref::<PythonTable>();
        if let Some(answers) = own.and_then(|own| own.live_answers(&plain)) {
            return Ok(Some(answers.iter().map(Into::into).collect()));
        }
        let answers = inner.supports_filters_pushdown(&plain.iter().collect::<Vec<_>>())?;
        return Ok(Some(answers.iter().map(Into::into).collect()));
    }
    if LogicalExprList::decode(filters).is_ok() {
        return Ok(None);
    }
    // They nest deeper than can be handed over: the host applies them.
    let list =
        Undecoded::decode(filters).map_err(|error| DataFusionError::External(error.into()))?;
    Ok(Some(list.filters.iter().map(|_| unsupported()).collect()))
}

unsafe extern "C" fn scan(
    table: &FFI_TableProvider,
    session: Session,
    projection: FFI_Option<FfiVec<usize>>,
    filters: FfiVec<u8>,
    limit: FFI_Option<usize>,
) -> FfiFuture<FFI_Result<FFI_ExecutionPlan>> {
    let read = guarded(|| {
        let inner = <Arc<dyn TableProvider>>::from(table);
        let plain = if inner.is::<PythonTable>() { plain(&filters)? } else { None };
        Ok(plain.map(|plain| (inner, plain)))
    });
    let (inner, plain) = match read {
        Ok(Some(read)) => read,
        // SAFETY: as above.
        Ok(None) => {
            return unsafe { (replaced().scan)(table, session, projection, filters, limit) };
        }
        Err(error) => return async move { result(Err(error)) }.into_ffi(),
    };
    async move {
        result(guarded(|| {
            let projection: Option<Vec<usize>> =
                projection.into_option().map(|columns| columns.into_iter().collect());
            let table = inner.downcast_ref::<PythonTable>().ok_or_else(|| {
                DataFusionError::Internal("not a table of memwal_native".to_owned())
            })?;
            let limit = limit.into();
            // A panic here is no reason not to answer.
            let live = guarded(|| Ok(table.live_plan(projection.as_ref(), &plain, limit)));
            if let Ok(Some(plan)) = live {
                return Ok(make_lean(plan));
            }
            let plan = table.plan(projection, &plain, limit)?;
            Ok(FFI_ExecutionPlan::new(plan, None))
        }))
    }
    .into_ffi()
}

/// A `LogicalExprList` whose elements stay encoded.
#[derive(Message)]
struct Undecoded {
    #[prost(bytes = "vec", repeated, tag = "1")]
    filters: Vec<Vec<u8>>,
}

fn unsupported() -> FFI_TableProviderFilterPushDown {
    (&TableProviderFilterPushDown::Unsupported).into()
}

fn result<T>(result: Result<T>) -> FFI_Result<T> {
    match result {
        Ok(value) => FFI_Result::Ok(value),
        Err(error) => FFI_Result::Err(error.to_string().as_str().into()),
    }
}

/// The filters; None if they can't be read without functions of the host.
fn plain(filters: &[u8]) -> Result<Option<Vec<Expr>>> {
    if filters.is_empty() {
        return Ok(Some(vec![]));
    }
    guarded(|| {
        let list = LogicalExprList::decode(filters).ok();
        Ok(list.and_then(|list| {
            parse_exprs(list.expr.iter(), no_session(), &DefaultLogicalExtensionCodec {}).ok()
        }))
    })
}
