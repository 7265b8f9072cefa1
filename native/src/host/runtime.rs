//! Stand-ins for the host's runtime, which is not visible here.
//!
//! Each library has its own copy of Tokio, and a plan that spawns without a runtime would abort the
//! process.

use std::io;
use std::sync::{Arc, LazyLock, OnceLock};

use datafusion_common::{DataFusionError, Result};
use datafusion_execution::TaskContext;
use tokio::runtime::{Builder, Handle, Runtime};

static NO_SESSION: LazyLock<Arc<TaskContext>> = LazyLock::new(Arc::default);
static RUNTIME: OnceLock<io::Result<Runtime>> = OnceLock::new();

/// The runtime, started on first use. Python nodes run in its threads that may block.
pub fn runtime() -> Result<&'static Handle> {
    let runtime = RUNTIME.get_or_init(|| {
        Builder::new_multi_thread().worker_threads(1).thread_name("memwal").enable_all().build()
    });
    runtime.as_ref().map(Runtime::handle).map_err(|error| {
        DataFusionError::ResourcesExhausted(format!("memwal_native can't start threads: {error}"))
    })
}

/// A context without functions and settings, for what needs none; one takes long to make.
pub fn no_session() -> &'static Arc<TaskContext> {
    &NO_SESSION
}
