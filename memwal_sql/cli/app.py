"""The application: all commands, and the handling of errors."""

from __future__ import annotations

import itertools
import os
import sys
import traceback
from collections.abc import Sequence
from importlib.metadata import version
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from memwal_sql.cli import integrity as care
from memwal_sql.cli import jobs, load, manage, query, show, tail, top
from memwal_sql.cli.exit_codes import ExitCode, exit_code_of
from memwal_sql.cli.options import ERROR_DETAILS
from memwal_sql.cli.output import json_line, print_line, remark
from memwal_sql.cli.sinks import drop_output
from memwal_sql.errors import MemWalError
from memwal_sql.memory import configure
from memwal_sql.write.options import WriterArguments, WriterOptions

_LIBRARIES = {"Lance": "pylance", "DataFusion": "datafusion", "Arrow": "pyarrow"}

# Lance's threads for decoding, joining and building indexes; it is read when they are started.
THREADS_VARIABLE = "LANCE_CPU_THREADS"
_NICENESS = 10


class _Commands(TyperGroup):
    """Runs a command and turns its error into a message and an exit code."""

    def main(self, *arguments: Any, **options: Any) -> Any:
        try:
            return super().main(*arguments, **options)
        except SystemExit as end:
            # The printers of help and tables exit with 1 by themselves where nobody reads them.
            if isinstance(end.__context__, BrokenPipeError):
                drop_output()
                raise SystemExit(ExitCode.PIPE_CLOSED) from None
            raise

    def invoke(self, ctx: Any) -> Any:
        as_json = _asks_for_json(ctx.args)
        try:
            return super().invoke(ctx)
        except (typer.Exit, typer.Abort):
            raise  # the end of a command
        except typer.TyperException as error:  # how it was called
            if not as_json:
                raise
            _tell("InvalidCallError", str(error), ExitCode.CALL, ctx, as_json)
            raise typer.Exit(ExitCode.CALL) from error
        except MemWalError as error:
            drop_output()
            code = exit_code_of(error)
            _tell(type(error).__name__, str(error), code, ctx, as_json)
            raise typer.Exit(code) from error
        except KeyboardInterrupt:
            raise typer.Exit(ExitCode.INTERRUPTED) from None
        except BrokenPipeError:
            drop_output()
            raise typer.Exit(ExitCode.PIPE_CLOSED) from None
        except Exception as error:
            text = traceback.format_exc()
            if as_json:
                _tell(type(error).__name__, text, ExitCode.BUG, ctx, as_json)
            else:
                remark(text, "red")
            raise typer.Exit(ExitCode.BUG) from None


def _asks_for_json(arguments: Sequence[str]) -> bool:
    """Whether a command is called for machines; also one that is called wrong."""
    forms = ("json", "jsonl")
    pairs = itertools.pairwise([*arguments, ""])
    return any(
        (first == "--output" and second in forms) or first in [f"--output={form}" for form in forms]
        for first, second in pairs
    )


def _tell(kind: str, message: str, code: ExitCode, ctx: Any, as_json: bool) -> None:
    """An error on standard error: a line for people, or one JSON document."""
    if as_json:
        error = {"kind": kind, "message": message, "exit_code": int(code)}
        error |= ctx.meta.get(ERROR_DETAILS, {})  # which the command's own context shares
        sys.stderr.write(json_line({"error": error}) + "\n")
    else:
        remark(f"{kind}: {message}", "red")


app = typer.Typer(
    name="memwal",
    cls=_Commands,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback()
def memwal(
    version: Annotated[  # noqa: ARG001
        bool,
        typer.Option(
            "--version", is_eager=True, callback=show_version, help="Show the version and end."
        ),
    ] = False,
    memory: Annotated[
        str | None,
        typer.Option(
            metavar="SIZE",
            help="How much of tables is kept in memory, as 512MiB or 2GiB; by default the"
            " environment's MEMWAL_MEMORY, or a quarter of the machine's memory, up to 4 GiB.",
        ),
    ] = None,
    memtable_age: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS", help="Statements' rows become files of the table after this time."
        ),
    ] = None,
    memtable_entries: Annotated[
        int | None,
        typer.Option(metavar="N", help="The same after so many entries of a region's log."),
    ] = None,
) -> None:
    """Look at a MemWAL table, ask it, and keep it in shape."""
    writers = WriterArguments()
    if memtable_age is not None:
        writers["memtable_age_s"] = memtable_age
    if memtable_entries is not None:
        writers["memtable_entries"] = memtable_entries
    configure(memory=memory, writers=WriterOptions(**writers))


for command in (
    show.info,
    query.sql,
    query.explain,
    load.load,
    show.regions,
    show.generations,
    show.wal,
    show.history,
    jobs.flush,
    jobs.merge,
    jobs.index,
    jobs.compact,
    jobs.snapshot,
    jobs.gc,
    care.checkpoint,
    manage.versions,
    manage.tag,
    manage.restore,
    manage.create_index,
    manage.drop_index,
    manage.drop,
    tail.tail,
    top.top,
    care.check,
    care.upgrade,
    jobs.run,
):
    app.command()(command)


_BACKGROUND = ("flush", "merge", "index", "compact", "gc", "run")


def main() -> None:
    """The entry point of the command `memwal`."""
    if sys.argv[1:2] and sys.argv[1] in _BACKGROUND:
        give_way()
    app()


def show_version(requested: bool) -> None:
    """The versions of the package and of what it stands on, and the end."""
    if requested:
        libraries = ", ".join(f"{name} {version(package)}" for name, package in _LIBRARIES.items())
        print_line(f"memwal {version('memwal-sql')} ({libraries})")
        raise typer.Exit


def give_way() -> None:
    """Make this process and the threads that it starts from now on a background job: of lower
    priority, and with threads for half of the processors, unless the environment says how many
    Lance shall have."""
    has_affinity = hasattr(os, "sched_getaffinity")  # Linux
    count = len(os.sched_getaffinity(0)) if has_affinity else os.cpu_count() or 1
    os.environ.setdefault(THREADS_VARIABLE, str((count + 1) // 2))
    os.nice(_NICENESS)
