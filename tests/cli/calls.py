"""Calls of the command `memwal` within the process."""

from __future__ import annotations

import json
from typing import Any

from typer.testing import CliRunner, Result

from memwal_sql.cli.app import app


def ended(*arguments: object, code: int = 0, stdin: str | bytes | None = None) -> Result:
    """A call that ends with `code`."""
    result = CliRunner().invoke(app, [str(one) for one in arguments], input=stdin)
    assert result.exit_code == code, (result.output, result.exception)
    return result


def call(*arguments: object, code: int = 0, stdin: str | bytes | None = None) -> str:
    """The standard output of a call that ends with `code`."""
    return ended(*arguments, code=code, stdin=stdin).stdout


def failing(*arguments: object, code: int, stdin: str | bytes | None = None) -> str:
    """The standard error of a call that ends with `code`, on one line."""
    return " ".join(ended(*arguments, code=code, stdin=stdin).stderr.split())


def as_json(*arguments: object, code: int = 0) -> Any:
    """What a call says to machines."""
    return json.loads(call(*arguments, "--output", "json", code=code))
