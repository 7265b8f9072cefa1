//! A filter as a tree of a caller's classes: nothing of it goes through text.

use std::collections::HashMap;
use std::sync::Mutex;

use arrow::datatypes::DataType;
use datafusion_common::ScalarValue;
use datafusion_expr::expr::{InList, Like, ScalarFunction};
use datafusion_expr::{Between, BinaryExpr, Expr, Operator};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyInt, PyString, PyTuple};

use crate::filters::shallow::{chain, connective};
use crate::python::arrow_bridge::ArrowType;

/// `filter`, a shallow one, built of the classes in `nodes`; each takes its fields in
/// the order below. Types are `pyarrow.DataType`s.
///
/// * `And(arguments)`, `Or(arguments)`, `Not(argument)`, `Constant(value)` for TRUE, FALSE and NULL,
///   `Truth(argument, value)` for IS TRUE and IS FALSE,
/// * `Compare(operand, op, literal)`, op one of `= <> < <= > >=`; `Distinct(operand, literal)`,
///   `In(operand, type, values)`, `IsNull(operand)`, `Like(operand, pattern, any_case)`,
/// * `Call(function, operand, literal)`: a scalar function by its name,
/// * `Operand(column, casts)`, casts being types, the innermost first; `Literal(type, value)`,
/// * `Other(columns)`: any other expression.
///
/// Values are None, bool, int, str or bytes: temporal ones count the units of their type, decimals
/// are unscaled, and floats the shortest texts that tell them from every other double.
pub fn tree<'py>(filter: &Expr, nodes: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    Builder { py: nodes.py(), nodes }.condition(filter)
}

/// An expression of which only the columns are known.
pub fn other<'py>(
    nodes: &Bound<'py, PyAny>,
    columns: &[impl AsRef<str>],
) -> PyResult<Bound<'py, PyAny>> {
    let names = PyTuple::new(nodes.py(), columns.iter().map(AsRef::as_ref))?;
    nodes.getattr("Other")?.call1((names,))
}

type Built<'py> = PyResult<Bound<'py, PyAny>>;
/// None for an expression that the tree has no node for.
type Part<'py> = PyResult<Option<Bound<'py, PyAny>>>;

/// A longer IN list is evaluated, not looked into: as Python values and text of Lance's it would take
/// many times the memory that the host needs.
const LONGEST_LIST: usize = 10_000;

struct Builder<'a, 'py> {
    py: Python<'py>,
    nodes: &'a Bound<'py, PyAny>,
}

impl<'py> Builder<'_, 'py> {
    fn condition(&self, expr: &Expr) -> Built<'py> {
        self.known(expr)?.map_or_else(|| self.other(expr), Ok)
    }

    fn known(&self, expr: &Expr) -> Part<'py> {
        match expr {
            Expr::BinaryExpr(binary) => match connective(expr) {
                Some(op) => self.connected(expr, op),
                None => self.comparison(binary),
            },
            Expr::Not(argument) => self.node("Not", (self.condition(argument)?,)),
            Expr::IsTrue(argument) => self.truth(argument, true).map(Some),
            Expr::IsFalse(argument) => self.truth(argument, false).map(Some),
            Expr::IsNotTrue(argument) => self.not(true, self.truth(argument, true)?),
            Expr::IsNotFalse(argument) => self.not(true, self.truth(argument, false)?),
            Expr::IsNull(argument) => self.is_null(argument, false),
            Expr::IsNotNull(argument) => self.is_null(argument, true),
            Expr::Between(between) => self.between(between),
            Expr::InList(list) => self.in_list(list),
            Expr::Like(like) => self.like(like),
            Expr::ScalarFunction(function) => self.call(function),
            Expr::Literal(ScalarValue::Boolean(value), _) => self.node("Constant", (*value,)),
            Expr::Literal(ScalarValue::Null, _) => self.node("Constant", (None::<bool>,)),
            Expr::Column(_) => {
                let Some(operand) = self.operand(expr)? else {
                    return Ok(None);
                };
                let Some(literal) = self.literal(&ScalarValue::Boolean(Some(true)))? else {
                    return Ok(None);
                };
                self.node("Compare", (operand, "=", literal))
            }
            _ => Ok(None),
        }
    }

    fn connected(&self, expr: &Expr, op: Operator) -> Part<'py> {
        let arguments = chain(expr, op).into_iter().map(|argument| self.condition(argument));
        let arguments = PyTuple::new(self.py, arguments.collect::<PyResult<Vec<_>>>()?)?;
        self.node(if op == Operator::And { "And" } else { "Or" }, (arguments,))
    }

    fn comparison(&self, binary: &BinaryExpr) -> Part<'py> {
        let mut op = binary.op;
        let mut sides = (&*binary.left, &*binary.right);
        if matches!(sides.0, Expr::Literal(..)) {
            let Some(swapped) = op.swap() else {
                return Ok(None);
            };
            (op, sides) = (swapped, (sides.1, sides.0));
        }
        let text = match op {
            Operator::Eq => "=",
            Operator::NotEq => "<>",
            Operator::Lt => "<",
            Operator::LtEq => "<=",
            Operator::Gt => ">",
            Operator::GtEq => ">=",
            Operator::IsDistinctFrom | Operator::IsNotDistinctFrom => "",
            _ => return Ok(None),
        };
        let (Some(operand), Some(literal)) = (self.operand(sides.0)?, self.value(sides.1)?) else {
            return Ok(None);
        };
        if text.is_empty() {
            let distinct = self.class("Distinct")?.call1((operand, literal))?;
            return self.not(op == Operator::IsNotDistinctFrom, distinct);
        }
        self.node("Compare", (operand, text, literal))
    }

    fn between(&self, between: &Between) -> Part<'py> {
        let Some(operand) = self.operand(&between.expr)? else {
            return Ok(None);
        };
        let (Some(low), Some(high)) = (self.value(&between.low)?, self.value(&between.high)?)
        else {
            return Ok(None);
        };
        let compare = self.class("Compare")?;
        let ends = (compare.call1((&operand, ">=", low))?, compare.call1((&operand, "<=", high))?);
        self.not(between.negated, self.class("And")?.call1((ends,))?)
    }

    fn in_list(&self, list: &InList) -> Part<'py> {
        if list.list.len() > LONGEST_LIST {
            return Ok(None);
        }
        let Some(operand) = self.operand(&list.expr)? else {
            return Ok(None);
        };
        let mut kind = None;
        let mut values = Vec::with_capacity(list.list.len());
        for item in &list.list {
            let Expr::Literal(scalar, _) = item else {
                return Ok(None);
            };
            if matches!(scalar, ScalarValue::Null) {
                values.push(self.py.None().into_bound(self.py));
                continue;
            }
            let item_kind = scalar.data_type();
            if *kind.get_or_insert_with(|| item_kind.clone()) != item_kind {
                return Ok(None);
            }
            let Some(value) = exact(self.py, scalar)? else {
                return Ok(None);
            };
            values.push(value);
        }
        let kind = type_of(self.py, &kind.unwrap_or(DataType::Null))?;
        let values = PyTuple::new(self.py, values)?;
        self.not(list.negated, self.class("In")?.call1((operand, kind, values))?)
    }

    fn like(&self, like: &Like) -> Part<'py> {
        let pattern = match &*like.pattern {
            Expr::Literal(scalar, _) if plain_escape(like) => scalar.try_as_str().flatten(),
            _ => None,
        };
        let (Some(pattern), Some(operand)) = (pattern, self.operand(&like.expr)?) else {
            return Ok(None);
        };
        let found = self.class("Like")?.call1((operand, pattern, like.case_insensitive))?;
        self.not(like.negated, found)
    }

    fn call(&self, function: &ScalarFunction) -> Part<'py> {
        let [operand, literal] = &function.args[..] else {
            return Ok(None);
        };
        let (Some(operand), Some(literal)) = (self.operand(operand)?, self.value(literal)?) else {
            return Ok(None);
        };
        self.node("Call", (function.name(), operand, literal))
    }

    fn is_null(&self, argument: &Expr, negated: bool) -> Part<'py> {
        match self.operand(argument)? {
            Some(operand) => self.not(negated, self.class("IsNull")?.call1((operand,))?),
            None => Ok(None),
        }
    }

    fn truth(&self, argument: &Expr, value: bool) -> Built<'py> {
        self.class("Truth")?.call1((self.condition(argument)?, value))
    }

    fn operand(&self, expr: &Expr) -> Part<'py> {
        let mut casts = vec![];
        let mut inner = expr;
        while let Expr::Cast(cast) = inner {
            casts.push(type_of(self.py, cast.field.data_type())?);
            inner = &cast.expr;
        }
        let Expr::Column(column) = inner else {
            return Ok(None);
        };
        casts.reverse();
        self.node("Operand", (column.name.as_str(), PyTuple::new(self.py, casts)?))
    }

    fn value(&self, expr: &Expr) -> Part<'py> {
        match expr {
            Expr::Literal(scalar, _) => self.literal(scalar),
            _ => Ok(None),
        }
    }

    fn literal(&self, scalar: &ScalarValue) -> Part<'py> {
        match exact(self.py, scalar)? {
            Some(value) => self.node("Literal", (type_of(self.py, &scalar.data_type())?, value)),
            None => Ok(None),
        }
    }

    fn other(&self, expr: &Expr) -> Built<'py> {
        let mut columns: Vec<&str> =
            expr.column_refs().into_iter().map(|column| column.name.as_str()).collect();
        columns.sort_unstable();
        other(self.nodes, &columns)
    }

    fn not(&self, negated: bool, node: Bound<'py, PyAny>) -> Part<'py> {
        if negated { self.node("Not", (node,)) } else { Ok(Some(node)) }
    }

    fn node(&self, name: &str, fields: impl pyo3::call::PyCallArgs<'py>) -> Part<'py> {
        self.class(name)?.call1(fields).map(Some)
    }

    fn class(&self, name: &str) -> Built<'py> {
        self.nodes.getattr(PyString::intern(self.py, name))
    }
}

fn plain_escape(like: &Like) -> bool {
    matches!(like.escape_char, None | Some('\\'))
}

/// The value as Python has it; None where it has none that is exact.
fn exact<'py>(py: Python<'py>, scalar: &ScalarValue) -> Part<'py> {
    if scalar.is_null() {
        return Ok(Some(py.None().into_bound(py)));
    }
    let value = match scalar {
        ScalarValue::Boolean(Some(value)) => value.into_pyobject(py)?.to_owned().into_any(),
        ScalarValue::Int8(Some(value)) => value.into_pyobject(py)?.into_any(),
        ScalarValue::Int16(Some(value)) => value.into_pyobject(py)?.into_any(),
        ScalarValue::Int32(Some(value))
        | ScalarValue::Date32(Some(value))
        | ScalarValue::Time32Second(Some(value))
        | ScalarValue::Time32Millisecond(Some(value))
        | ScalarValue::Decimal32(Some(value), ..) => value.into_pyobject(py)?.into_any(),
        ScalarValue::Int64(Some(value))
        | ScalarValue::Date64(Some(value))
        | ScalarValue::Time64Microsecond(Some(value))
        | ScalarValue::Time64Nanosecond(Some(value))
        | ScalarValue::TimestampSecond(Some(value), _)
        | ScalarValue::TimestampMillisecond(Some(value), _)
        | ScalarValue::TimestampMicrosecond(Some(value), _)
        | ScalarValue::TimestampNanosecond(Some(value), _)
        | ScalarValue::DurationSecond(Some(value))
        | ScalarValue::DurationMillisecond(Some(value))
        | ScalarValue::DurationMicrosecond(Some(value))
        | ScalarValue::DurationNanosecond(Some(value))
        | ScalarValue::Decimal64(Some(value), ..) => value.into_pyobject(py)?.into_any(),
        ScalarValue::UInt8(Some(value)) => value.into_pyobject(py)?.into_any(),
        ScalarValue::UInt16(Some(value)) => value.into_pyobject(py)?.into_any(),
        ScalarValue::UInt32(Some(value)) => value.into_pyobject(py)?.into_any(),
        ScalarValue::UInt64(Some(value)) => value.into_pyobject(py)?.into_any(),
        ScalarValue::Decimal128(Some(value), ..) => whole(py, &value.to_string())?,
        ScalarValue::Decimal256(Some(value), ..) => whole(py, &value.to_string())?,
        ScalarValue::Float16(Some(value)) => double(py, f64::from(*value)),
        ScalarValue::Float32(Some(value)) => double(py, f64::from(*value)),
        ScalarValue::Float64(Some(value)) => double(py, *value),
        ScalarValue::Utf8(Some(value))
        | ScalarValue::LargeUtf8(Some(value))
        | ScalarValue::Utf8View(Some(value)) => PyString::new(py, value).into_any(),
        ScalarValue::Binary(Some(value))
        | ScalarValue::LargeBinary(Some(value))
        | ScalarValue::BinaryView(Some(value))
        | ScalarValue::FixedSizeBinary(_, Some(value)) => PyBytes::new(py, value).into_any(),
        _ => return Ok(None),
    };
    Ok(Some(value))
}

fn whole<'py>(py: Python<'py>, digits: &str) -> Built<'py> {
    py.get_type::<PyInt>().call1((digits,))
}

/// A text, because Python takes 0.0 for -0.0, and both for the key of one entry.
fn double(py: Python<'_>, value: f64) -> Bound<'_, PyAny> {
    PyString::new(py, &format!("{value:?}")).into_any()
}

/// The `pyarrow.DataType`; those of literals and casts are few.
fn type_of<'py>(py: Python<'py>, kind: &DataType) -> Built<'py> {
    static KNOWN: Mutex<Option<HashMap<DataType, Py<PyAny>>>> = Mutex::new(None);
    const MOST: usize = 256;
    if let Ok(known) = KNOWN.lock()
        && let Some(found) = known.as_ref().and_then(|known| known.get(kind))
    {
        return Ok(found.bind(py).clone());
    }
    let capsule = ArrowType(kind.clone());
    let made = py.import(intern!(py, "pyarrow"))?.call_method1("field", (capsule,))?;
    let made = made.getattr(intern!(py, "type"))?;
    if let Ok(mut known) = KNOWN.lock() {
        let known = known.get_or_insert_default();
        if known.len() < MOST {
            known.insert(kind.clone(), made.clone().unbind());
        }
    }
    Ok(made)
}
