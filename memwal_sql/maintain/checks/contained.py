"""What a check does about damage that it does not expect: a finding, and the rest is looked at."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import pyarrow as pa

from exec_nodes.lance.errors import is_panic
from memwal_sql.errors import MemWalError
from memwal_sql.maintain.checks.findings import Finding, Severity, first_line

_REMEDY = "mend what this finding or the others name, and check again"
# What Lance and Arrow raise for files that are damaged.
_DAMAGE = (
    MemWalError,
    OSError,
    ValueError,
    RuntimeError,
    LookupError,
    TypeError,
    AttributeError,
    ArithmeticError,
    pa.ArrowException,
)


def contained(look: Callable[[], Iterable[Finding]], where: str | None = None) -> Iterator[Finding]:
    """The findings of `look`, and one that says that it could not go on where it meets damage.

    `where` is the file or folder looked at; without it the error names one.
    """
    try:
        yield from look()
    except GeneratorExit:
        raise
    except BaseException as error:
        if not isinstance(error, _DAMAGE) and not is_panic(error):
            raise
        # The check that looks at what is damaged says more; this one could not go on.
        why = first_line(error)
        what = "could not be finished" if where is None else f"could not be finished: {why}"
        yield Finding(Severity.ERROR, what, why if where is None else where, _REMEDY)
