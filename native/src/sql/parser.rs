//! DataFusion's parser, in its default dialect.

use std::sync::Arc;

use datafusion_common::config::{Dialect, SqlParserOptions};
use datafusion_execution::config::SessionConfig;
use datafusion_ffi::df_result;
use datafusion_ffi::execution::FFI_TaskContextProvider;
use datafusion_sql::parser::DFParserBuilder;
use datafusion_sql::planner::NullOrdering;
use datafusion_sql::sqlparser::dialect::GenericDialect;
use datafusion_sql::sqlparser::tokenizer::{TokenWithSpan, Tokenizer, TokenizerError};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyCapsule;

use crate::python::errors::{guarded, python_error};
use crate::sql::depth::is_too_deep;
use crate::sql::distances::{Distance, distances};
use crate::sql::source::Source;
use crate::sql::statement::{SqlQuery, SqlStatement, query, statement};
use crate::sql::text::{SqlText, Tree};
use crate::sql::tokens::{Found, placed};

const TOO_DEEP: &str = "the text is nested too deeply: it has too many operators in a row. Write \
    x = 1 OR x = 2 ... as x IN (1, 2, ...), and long sums and unions in several steps";

const OTHER_DIALECT: &str = "statements are read in DataFusion's default dialect: set the session's \
    datafusion.sql_parser.dialect to 'generic', as it is";

/// The way a session reads SQL: in the default dialect, with unquoted names in lower case or
/// unchanged. Without a session, DataFusion's defaults.
///
/// Its `recursion_limit` is not used: nothing here keeps deeper texts from overrunning a stack.
#[pyclass(frozen, module = "memwal_native")]
pub struct SqlParser {
    normalizes: bool,
    merges_piecewise: bool,
    null_ordering: NullOrdering,
}

#[pymethods]
impl SqlParser {
    #[new]
    #[pyo3(signature = (session = None))]
    fn new(session: Option<&Bound<'_, PyAny>>) -> PyResult<Self> {
        let (options, merges_piecewise) = match session {
            Some(session) => {
                let config = config_of(session)?;
                let options = config.options();
                (options.sql_parser.clone(), options.optimizer.enable_piecewise_merge_join)
            }
            None => (SqlParserOptions::default(), false),
        };
        if options.dialect != Dialect::Generic {
            return Err(PyValueError::new_err(format!("{OTHER_DIALECT} '{}'", options.dialect)));
        }
        Ok(Self {
            normalizes: options.enable_ident_normalization,
            merges_piecewise,
            null_ordering: options.default_null_ordering.as_str().into(),
        })
    }

    /// Whether names that are not quoted are in lower case.
    #[getter]
    fn normalizes(&self) -> bool {
        self.normalizes
    }

    /// Whether joins may be piecewise merge joins, which lose rows.
    #[getter]
    fn merges_piecewise(&self) -> bool {
        self.merges_piecewise
    }

    /// Raises ValueError, with the place, for an unterminated quote or comment, and for a text that
    /// nests too deep.
    #[staticmethod]
    fn tokens(sql: &str) -> PyResult<Vec<Found>> {
        let tokens = read(sql)?.map_err(|error| PyValueError::new_err(error.to_string()))?;
        Ok(placed(sql, tokens))
    }

    /// A statement of this package or of DataFusion.
    fn statement(&self, py: Python<'_>, sql: &str) -> PyResult<SqlStatement> {
        let (source, tokens) = self.tokenized(sql)?;
        statement(py, &source, tokens)
    }

    /// A text that DataFusion reads; `searches` are the names of functions that search.
    fn query(&self, sql: &str, searches: Vec<String>) -> PyResult<SqlQuery> {
        let (source, tokens) = self.tokenized(sql)?;
        query(&source, tokens, &searches, self.null_ordering)
    }

    /// The distance operators of a text.
    fn distances(&self, sql: &str) -> PyResult<Vec<Distance>> {
        let (source, tokens) = self.tokenized(sql)?;
        Ok(distances(&source, tokens))
    }

    /// None for a text that can't be parsed.
    #[staticmethod]
    fn expression(sql: &str) -> PyResult<Option<SqlText>> {
        let Ok(tokens) = read(sql)? else {
            return Ok(None);
        };
        let parser = || DFParserBuilder::new(tokens).with_dialect(&GenericDialect {}).build();
        let parsed = guarded(|| parser()?.parse_into_expr());
        Ok(parsed.ok().map(|parsed| SqlText { tree: Tree::Expression(Box::new(parsed.expr)) }))
    }
}

impl SqlParser {
    fn tokenized(&self, sql: &str) -> PyResult<(Arc<Source>, Vec<TokenWithSpan>)> {
        let tokens = read(sql)?.map_err(|error| PyValueError::new_err(error.to_string()))?;
        Ok((Arc::new(Source::new(sql, self.normalizes)), tokens))
    }
}

/// The tokens of any text that is looked at: nothing parses one before this.
fn read(sql: &str) -> PyResult<std::result::Result<Vec<TokenWithSpan>, TokenizerError>> {
    let tokens = Tokenizer::new(&GenericDialect {}, sql).tokenize_with_location();
    match &tokens {
        Ok(tokens) if is_too_deep(tokens) => Err(PyValueError::new_err(TOO_DEEP)),
        _ => Ok(tokens),
    }
}

/// The settings of a session of the host's.
fn config_of(session: &Bound<'_, PyAny>) -> PyResult<SessionConfig> {
    let capsule = session.call_method0("__datafusion_task_context_provider__")?;
    let provider = capsule
        .cast::<PyCapsule>()?
        .pointer_checked(Some(c"datafusion_task_context_provider"))?
        .cast::<FFI_TaskContextProvider>();
    let config = guarded(|| {
        // SAFETY: a capsule of this name holds this type; its layout is stable within a major
        // version, which `memwal_sql` has checked. The functions are those it came with.
        let found = unsafe {
            let provider = provider.as_ref();
            let context = df_result!((provider.task_ctx)(provider))?;
            (context.session_config)(&context)
        };
        SessionConfig::try_from(&found)
    });
    config.map_err(python_error)
}
