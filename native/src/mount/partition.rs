//! The rows of one partition of a Python node.
//!
//! Python nodes block, so they run in threads that may. A node runs ahead of its consumer while
//! there is room, then it gives its thread back: a consumer that reads on late, or never, holds no
//! thread that all queries of the process share. Rows in memory that a node hands over instead are
//! streamed by the consumer's own thread, without the interpreter.

use std::mem::take;
use std::sync::{Arc, Mutex, PoisonError};

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use datafusion_common::Result;
use futures::Stream;
use futures::stream::try_unfold;
use pyo3::types::{PyAnyMethods, PyIterator};
use tokio::sync::mpsc::{Sender, channel};
use tokio::task::yield_now;

use crate::host::runtime::runtime;
use crate::mount::held::Held;
use crate::mount::resident::{Batches, ResidentStream};
use crate::python::arrow_bridge::batch_from_python;
use crate::python::errors::{guarded, with_python};

/// Batches that a node may be ahead of its consumer.
const AHEAD: usize = 2;

/// Makes the batches from some place on.
struct Producer {
    node: Arc<Held>,
    partition: usize,
    schema: SchemaRef,
    /// None before the first batch was asked for.
    batches: Option<Held<PyIterator>>,
    to: Sender<Result<Made>>,
}

enum Made {
    Batch(RecordBatch),
    /// The whole partition.
    Resident(Batches),
}

/// The place of a producer that has no room.
type Parked = Arc<Mutex<Option<Producer>>>;

/// Nothing runs before the first poll: a LIMIT may never ask this partition.
pub fn batches(
    node: Arc<Held>,
    partition: usize,
    schema: SchemaRef,
) -> impl Stream<Item = Result<RecordBatch>> + Send {
    let (to, made) = channel(AHEAD);
    let producer = Producer { node, partition, schema, batches: None, to };
    let parked = Arc::new(Mutex::new(Some(producer)));
    try_unfold((made, parked, None), |(mut made, parked, mut resident)| async move {
        let batch = loop {
            if let Some(batches) = &mut resident {
                match guarded(|| Batches::next(batches).transpose())? {
                    // A query can be cancelled although no row meets its conditions.
                    Some(batch) if batch.num_rows() == 0 => yield_now().await,
                    batch => break batch,
                }
                continue;
            }
            go_on(&parked)?;
            match made.recv().await.transpose()? {
                None => break None,
                Some(Made::Resident(batches)) => resident = Some(batches),
                Some(Made::Batch(batch)) => {
                    // While the consumer works on this one.
                    go_on(&parked)?;
                    break Some(batch);
                }
            }
        };
        Ok(batch.map(|batch| (batch, (made, parked, resident))))
    })
}

/// Let a parked producer run, as there is room.
fn go_on(parked: &Parked) -> Result<()> {
    if let Some(producer) = take(&mut *parked.lock().unwrap_or_else(PoisonError::into_inner)) {
        let parked = Arc::clone(parked);
        runtime()?.spawn_blocking(move || producer.run(&parked));
    }
    Ok(())
}

impl Producer {
    /// Send batches until there are no more, nobody receives them, or there is no room.
    fn run(mut self, parked: &Parked) {
        while !self.to.is_closed() {
            {
                // A consumer that makes room wakes the parked producer afterwards.
                let mut parked = parked.lock().unwrap_or_else(PoisonError::into_inner);
                if self.to.capacity() == 0 {
                    *parked = Some(self);
                    return;
                }
            }
            let Some(batch) = self.next().transpose() else {
                return;
            };
            let last = !matches!(batch, Ok(Made::Batch(_)));
            if self.to.try_send(batch).is_err() || last {
                return;
            }
        }
    }

    fn next(&mut self) -> Result<Option<Made>> {
        with_python(|py| {
            // Streams that end or fail are dropped here, in this thread.
            let mut batches = match self.batches.take() {
                Some(batches) => batches.into_bound(py),
                None => {
                    let rows = self.node.bind(py).call_method1("hand_over", (self.partition,))?;
                    if let Ok(resident) = rows.cast::<ResidentStream>() {
                        let batches = resident.borrow_mut().take(Arc::clone(&self.schema));
                        return Ok(Some(Made::Resident(batches)));
                    }
                    rows.try_iter()?
                }
            };
            let Some(batch) = batches.next() else {
                return Ok(None);
            };
            let batch = batch_from_python(&batch?, &self.schema)?;
            self.batches = Some(Held::new(batches));
            Ok(Some(Made::Batch(batch)))
        })
    }
}
