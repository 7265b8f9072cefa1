"""The application: all commands, and what errors become."""

from __future__ import annotations

import contextlib
import os
import sys
import traceback
from typing import Any

import typer
from typer.core import TyperGroup

from memwal_sql.cli import care, jobs, query, show, tail
from memwal_sql.cli.exit_codes import ExitCode, exit_code_of
from memwal_sql.cli.output import remark
from memwal_sql.cli.priority import give_way
from memwal_sql.errors import MemWalError


class _Commands(TyperGroup):
    """Runs a command and turns what it raises into a message and an exit code."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except (typer.Exit, typer.Abort, typer.TyperException):
            raise  # the end of a command, and what is wrong with how it was called
        except MemWalError as error:
            remark(f"{type(error).__name__}: {error}", "red")
            raise typer.Exit(exit_code_of(error)) from error
        except KeyboardInterrupt:
            raise typer.Exit(ExitCode.INTERRUPTED) from None
        except BrokenPipeError:
            with contextlib.suppress(OSError, ValueError):
                # Python flushes once more at its end, into nothing.
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit(ExitCode.PIPE_CLOSED) from None
        except Exception:
            traceback.print_exc()
            raise typer.Exit(ExitCode.BUG) from None


app = typer.Typer(
    name="memwal",
    cls=_Commands,
    help="Look at a MemWAL table, ask it, and keep it in shape.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

for command in (
    show.info,
    query.sql,
    query.explain,
    show.regions,
    show.generations,
    show.wal,
    jobs.merge,
    jobs.index,
    jobs.snapshot,
    jobs.gc,
    care.checkpoint,
    tail.tail,
    care.check,
    care.upgrade,
    jobs.run,
):
    app.command()(command)


_BACKGROUND = ("merge", "index", "gc", "run")


def main() -> None:
    """What the command `memwal` starts."""
    if sys.argv[1:2] and sys.argv[1] in _BACKGROUND:
        give_way()
    app()
