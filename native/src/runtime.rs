//! This library's own Tokio runtime: the host's is not visible here (each library has its own
//! copy of Tokio), and a plan that spawns without one would abort the process.

use std::io;
use std::sync::OnceLock;

use datafusion_common::{DataFusionError, Result};
use tokio::runtime::{Builder, Handle, Runtime};

static RUNTIME: OnceLock<io::Result<Runtime>> = OnceLock::new();

/// The runtime, started on first use. Python nodes run in its threads that may block.
pub fn runtime() -> Result<&'static Handle> {
    let runtime = RUNTIME.get_or_init(|| {
        Builder::new_multi_thread().worker_threads(1).thread_name("memwal").enable_all().build()
    });
    runtime.as_ref().map(Runtime::handle).map_err(|error| {
        DataFusionError::ResourcesExhausted(format!("no threads for memwal_native: {error}"))
    })
}
