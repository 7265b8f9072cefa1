//! Bytes that are changed in place as long as nobody else has them.

use std::ptr::NonNull;
use std::sync::Arc;

use arrow::buffer::{Buffer, MutableBuffer};

#[derive(Clone, Default)]
pub struct Shared(Arc<Bytes>);

#[derive(Default)]
struct Bytes(MutableBuffer);

impl Clone for Bytes {
    fn clone(&self) -> Self {
        let mut buffer = MutableBuffer::with_capacity(self.0.capacity());
        buffer.extend_from_slice(self.0.as_slice());
        Self(buffer)
    }
}

impl Shared {
    pub fn bytes(&self) -> &[u8] {
        self.0.0.as_slice()
    }

    /// The bytes to change; a copy of them if some are lent.
    pub fn own(&mut self) -> &mut MutableBuffer {
        &mut Arc::make_mut(&mut self.0).0
    }

    /// As many bytes, new ones of this value, to change. There is never room for more than `most`.
    pub fn resized(&mut self, bytes: usize, value: u8, most: usize) -> &mut [u8] {
        if bytes > self.capacity() {
            let room = bytes.max(self.capacity() * 2).min(most.max(bytes));
            let mut larger = MutableBuffer::with_capacity(room);
            larger.extend_from_slice(self.bytes());
            self.0 = Arc::new(Bytes(larger));
        }
        let own = self.own();
        own.resize(bytes, value);
        own
    }

    pub fn capacity(&self) -> usize {
        self.0.0.capacity()
    }

    /// The first bytes, which stay as they are however long they are held.
    pub fn lend(&self, bytes: usize) -> Buffer {
        let bytes = bytes.min(self.bytes().len());
        let start = NonNull::from(self.bytes()).cast();
        let owner: Arc<Bytes> = Arc::clone(&self.0);
        // SAFETY: the bytes live as long as their owner, which the buffer holds, and nobody changes
        // them meanwhile: see `own`.
        unsafe { Buffer::from_custom_allocation(start, bytes, owner) }
    }
}
