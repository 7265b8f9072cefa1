//! Finds out without the interpreter whether live rows are current.
//!
//! A look at the table leaves questions, by which the next look would find that nothing has changed.
//! They are asked in the order of a look, so that the answers about a region are true at one time,
//! after the query began (see `RegionProbe` in `memwal_sql`): there is no entry above those that the
//! rows have, there is no newer manifest, and the manifest of the look still exists, so that none was
//! collected. Whatever the rows lack was acknowledged after the query began: a durable row is a file,
//! and a buffered row, which is no file, makes the questions void.

use std::ffi::{CString, OsString};
use std::fs::read_dir;
use std::mem::MaybeUninit;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use hashbrown::HashSet;
use pyo3::prelude::*;

use crate::python::buffers::invalid;

/// How often all questions of this process became void.
static VOIDED: AtomicU64 = AtomicU64::new(0);

/// Make the questions void of all looks that began before this call: rows have changed, or may have
/// changed, without a trace in the files.
#[pyfunction]
pub fn void_questions() {
    VOIDED.fetch_add(1, Ordering::SeqCst);
}

/// How often all questions became void. A look notes it when it begins.
#[pyfunction]
pub fn voided() -> u64 {
    VOIDED.load(Ordering::SeqCst)
}

/// The inode of a file, its time of modification in nanoseconds, and its size.
type Stamp = (u64, i64, i64);

/// The files of a region: the next two entries, the next manifest, and the current manifest.
pub type Region = [CString; 4];

/// The questions that a look leaves.
#[pyclass(frozen, module = "memwal_native")]
pub struct LiveQuestions(pub Arc<Questions>);

pub struct Questions {
    voided: u64,
    until: Instant,
    pub regions: Vec<Region>,
    newer: CString,
    base: CString,
    stamp: Stamp,
    folder: OsString,
    names: HashSet<OsString>,
    /// The ids of the columns.
    pub ids: Vec<i64>,
}

#[pymethods]
impl LiveQuestions {
    #[new]
    #[expect(clippy::too_many_arguments, reason = "one list, made in one place")]
    fn new(
        voided: u64,
        seconds: f64,
        regions: Vec<[Vec<u8>; 4]>,
        base: [Vec<u8>; 2],
        stamp: Stamp,
        folder: OsString,
        names: Vec<OsString>,
        ids: Vec<i64>,
    ) -> PyResult<Self> {
        let left = Duration::try_from_secs_f64(seconds.max(0.0));
        let until = left.ok().and_then(|left| Instant::now().checked_add(left));
        let c_string = |path: Vec<u8>| CString::new(path).map_err(|_| invalid("a path with a NUL"));
        let regions = regions
            .into_iter()
            .map(|[next, second, newer, newest]| {
                let files = (c_string(next)?, c_string(second)?, c_string(newer)?);
                Ok([files.0, files.1, files.2, c_string(newest)?])
            })
            .collect::<PyResult<_>>()?;
        let [newer, base] = base;
        Ok(Self(Arc::new(Questions {
            voided,
            until: until.ok_or_else(|| invalid("seconds must be a number"))?,
            regions,
            newer: c_string(newer)?,
            base: c_string(base)?,
            stamp,
            folder,
            names: names.into_iter().collect(),
            ids,
        })))
    }
}

impl Questions {
    /// Whether the table may have changed, whatever its files say.
    pub fn are_void(&self) -> bool {
        self.voided != voided() || Instant::now() >= self.until
    }

    /// Whether nothing has changed since the look.
    pub fn nothing_is_new(&self) -> bool {
        let is_as_before = |[next, second, newer, newest]: &Region| {
            [next, second, newer].into_iter().all(|path| exists(path) == Some(false))
                && exists(newest) == Some(true)
        };
        !self.are_void()
            && self.regions.iter().all(is_as_before)
            && exists(&self.newer) == Some(false)
            && stamp_of(&self.base) == Some(self.stamp)
            && self.knows_all_regions()
    }

    fn knows_all_regions(&self) -> bool {
        let Ok(mut names) = read_dir(&self.folder) else {
            return false;
        };
        names.all(|name| name.is_ok_and(|name| self.names.contains(&name.file_name())))
    }
}

/// Whether a file exists; None if the system can't tell.
fn exists(path: &CString) -> Option<bool> {
    // SAFETY: the path is a C string.
    if unsafe { libc::access(path.as_ptr(), libc::F_OK) } == 0 {
        return Some(true);
    }
    let is_absent = std::io::Error::last_os_error().raw_os_error() == Some(libc::ENOENT);
    is_absent.then_some(false)
}

fn stamp_of(path: &CString) -> Option<Stamp> {
    let mut stat = MaybeUninit::<libc::stat>::uninit();
    // SAFETY: the path is a C string, and `stat` is initialized where the call returns 0.
    let stat =
        unsafe { (libc::stat(path.as_ptr(), stat.as_mut_ptr()) == 0).then(|| stat.assume_init())? };
    Some((stat.st_ino, stat.st_mtime * 1_000_000_000 + stat.st_mtime_nsec, stat.st_size))
}
