//! A Python table provider as `SessionContext.register_table` takes it.

use std::sync::Arc;

use datafusion_ffi::proto::logical_extension_codec::FFI_LogicalExtensionCodec;
use datafusion_ffi::table_provider::FFI_TableProvider;
use pyo3::prelude::*;
use pyo3::types::PyCapsule;

use crate::host::runtime::runtime;
use crate::live::answers::LiveAccess;
use crate::mount::ffi_table::exported;
use crate::mount::held::Held;
use crate::mount::provider::PythonTable;
use crate::python::arrow_bridge::schema_from_python;
use crate::python::errors::python_error;

/// The argument of `SessionContext.register_table`: a Python provider with
///
/// * `schema`, an Arrow schema, read once,
/// * `supports_filters_pushdown(filters: list[Predicate]) -> list[str]`, each answer `"exact"`,
///   `"inexact"` or `"unsupported"`,
/// * `scan(projection: list[int] | None, filters: list[Predicate], limit: int | None) -> node`, or
///   an object that has it as `node`, and `nearest(column: str, metric: str, query: list[float], k:
///   int, nulls_first: bool) -> node | None`: a plan of the same columns for rows that hold the
///   first `k` by a distance, if the scan has one. Only sessions that have a `SessionRule` ask,
/// * `live`, if there is: a `LiveAccess` to live rows, which answer scans without the provider while
///   they are those of now,
/// * `check_insert(nulls: list[str])`, which raises if an INSERT may not run whose plan shows that
///   these columns are NULL in every row; asked when it is planned,
/// * `insert(rows) -> int`, rows with `__arrow_c_stream__`,
/// * `left_over(conditions: list[str], no_rows) -> node`, if DataFusion may not apply conditions of
///   its own to the rows of a scan: the plan to run instead, whose rows look like `no_rows`, with
///   `__arrow_c_stream__`. Only sessions that have a `SessionRule` ask.
#[pyclass(frozen, module = "memwal_native")]
pub struct MountedTable {
    provider: Arc<Held>,
}

#[pymethods]
impl MountedTable {
    #[new]
    fn new(provider: Bound<'_, PyAny>) -> Self {
        Self { provider: Arc::new(Held::new(provider)) }
    }

    /// Whether a session, a view, a frame or a plan has it.
    fn is_mounted(&self) -> bool {
        Arc::strong_count(&self.provider) > 1
    }

    fn __datafusion_table_provider__<'py>(
        &self,
        py: Python<'py>,
        session: Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        let schema = schema_from_python(&self.provider.bind(py).getattr("schema")?)?;
        let live = self.provider.bind(py).getattr_opt("live")?;
        let live = live.and_then(|live| Some(live.cast::<LiveAccess>().ok()?.get().clone()));
        let table = PythonTable { provider: Arc::clone(&self.provider), schema, live };
        let codec = session.call_method0("__datafusion_logical_extension_codec__")?;
        let codec = codec.cast::<PyCapsule>()?;
        let codec = codec
            .pointer_checked(Some(c"datafusion_logical_extension_codec"))?
            .cast::<FFI_LogicalExtensionCodec>();
        // SAFETY: a capsule of this name holds this type; its layout is stable within a major
        // version, which `memwal_sql` has checked.
        let codec = unsafe { codec.as_ref() }.clone();
        let runtime = runtime().map_err(python_error)?.clone();
        let table =
            FFI_TableProvider::new_with_ffi_codec(Arc::new(table), true, Some(runtime), codec);
        PyCapsule::new_with_value(py, exported(table), c"datafusion_table_provider")
    }
}
