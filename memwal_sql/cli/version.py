"""`memwal --version`."""

from __future__ import annotations

from importlib.metadata import version

import typer

from memwal_sql.cli.output import print_line

_BESIDE = {"Lance": "pylance", "DataFusion": "datafusion", "Arrow": "pyarrow"}


def show_version(wanted: bool) -> None:
    """The versions of the package and of what it stands on, and the end."""
    if wanted:
        beside = ", ".join(f"{name} {version(package)}" for name, package in _BESIDE.items())
        print_line(f"memwal {version('memwal-sql')} ({beside})")
        raise typer.Exit
