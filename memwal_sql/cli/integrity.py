"""Commands for a table's safety: `check`, `checkpoint`, `upgrade`."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from memwal_sql.cli.exit_codes import ExitCode
from memwal_sql.cli.options import (
    Output,
    OutputOption,
    StorageOptions,
    Uri,
    duration,
    opened,
    storage_options,
)
from memwal_sql.cli.output import progress_bars, remark, show_json, show_result, show_rows
from memwal_sql.errors import InvalidCallError
from memwal_sql.legacy.upgrade import upgrade as upgrade_table
from memwal_sql.maintain.checks.findings import Severity


def check(
    uri: Uri,
    strict: Annotated[bool, typer.Option("--strict", help="Warnings count as wrong.")] = False,
    options: StorageOptions = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Look at every invariant of the table; exit code 1 when something is wrong."""
    with progress_bars(output) as report:
        checks = opened(uri, options).check(report)
    ok = checks.ok and not (strict and checks.of(Severity.WARNING))
    findings = checks.to_arrow().to_pylist()
    result = {
        "uri": checks.uri,
        "version": checks.version,
        "ok": ok,
        "findings": findings,
    }
    show_result(result, str(checks), output)
    if not ok:
        raise typer.Exit(ExitCode.FINDINGS)


def checkpoint(
    uri: Uri,
    name: Annotated[
        str | None, typer.Argument(help="Make this checkpoint; without it they are listed.")
    ] = None,
    expires: Annotated[
        str | None, typer.Option(help="Let go of it after this time, such as 7d.")
    ] = None,
    drop: Annotated[bool, typer.Option("--drop", help="Let go of it now.")] = False,
    options: StorageOptions = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Hold the table as it is now under a name, let go of it, or list what is held."""
    table = opened(uri, options)
    if name is None:
        if drop or expires is not None:
            raise InvalidCallError("name the checkpoint: memwal checkpoint URI NAME")
        show_rows(table.checkpoints(), output, "no checkpoints")
    elif drop:
        table.drop_checkpoint(name)
        if output is Output.JSON:
            show_json({"name": name, "dropped": True})
        else:
            remark(f"{name} is dropped")
    else:
        ends = None if expires is None else duration(expires, "--expires")
        version = table.checkpoint(name, ends)
        result = {"name": name, "version": version}
        show_result(result, f"{name} holds version {version}", output)


def upgrade(
    uri: Uri,
    primary_key: Annotated[
        list[str] | None,
        typer.Option("--primary-key", help="A column of the key, in order; may be repeated."),
    ] = None,
    region: Annotated[
        list[str] | None,
        typer.Option("--region-by", help="Such as 'bucket(id, 16)', or manual; may be repeated."),
    ] = None,
    read_wal: Annotated[
        str | None,
        typer.Option(help="MODULE:FUNCTION that reads the WAL entries of a MemWAL."),
    ] = None,
    options: StorageOptions = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Move a table of the MemWAL format before Lance 13 to the one of today."""
    with progress_bars(output) as report:
        table = upgrade_table(
            uri,
            read_wal=None if read_wal is None else _function(read_wal),
            primary_key=primary_key or None,
            regions=", ".join(region) if region else None,
            storage_options=storage_options(options),
            progress=report,
        )
    text = f"{table.uri} has the format of today, in version {table.version}"
    show_result({"uri": table.uri, "version": table.version}, text, output)


def _function(name: str) -> Any:
    """What `module:function` names, also in a module of the working folder.

    That folder comes last, and for this import only: it may be a table's, with modules of names
    that others import later.
    """
    module_name, _, function_name = name.partition(":")
    folder = str(Path.cwd())
    sys.path.append(folder)
    try:
        function = getattr(importlib.import_module(module_name), function_name)
    except (ImportError, AttributeError, ValueError) as error:
        raise InvalidCallError(f"--read-wal {name!r}: {error}; name it MODULE:FUNCTION") from None
    finally:
        sys.path.remove(folder)
    if not callable(function):
        raise InvalidCallError(f"--read-wal {name!r} is not a function")
    return function
