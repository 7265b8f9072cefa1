"""Commands that look: `info`, `regions`, `generations`, `wal`, `history`."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import pyarrow as pa
import pyarrow.compute as pc
import typer

from memwal_sql import transactions
from memwal_sql.cli.options import (
    CheckpointName,
    Output,
    OutputOption,
    StorageOptions,
    Timestamp,
    Uri,
    Version,
    opened,
    storage_options,
)
from memwal_sql.cli.output import print_line, remark, show, show_json, show_rows
from memwal_sql.errors import InvalidCallError
from memwal_sql.legacy.format import OlderMemWal
from memwal_sql.legacy.upgrade import older_mem_wals
from memwal_sql.view.cost import cost, read_prices

Limit = Annotated[int | None, typer.Option("--limit", min=0, help="At most so many of the last.")]


def info(
    uri: Uri,
    options: StorageOptions = None,
    output: OutputOption = Output.TABLE,
    version: Version = None,
    timestamp: Timestamp = None,
    checkpoint: CheckpointName = None,
    prices: Annotated[
        Path | None,
        typer.Option(help="Say what the table costs in an object store, by a price list in TOML."),
    ] = None,
) -> None:
    """Show the table: base, indexes, regions and generations, and how far merging has come."""
    if prices is not None and (version or timestamp or checkpoint):
        raise InvalidCallError("--prices is about what is stored now: leave the past state out")
    price_list = None if prices is None else read_prices(prices)
    older = older_mem_wals(uri, storage_options(options))
    if older is not None:
        if prices is not None:
            raise InvalidCallError("--prices needs a table of today's format: `memwal upgrade`")
        _show_older(older, output)
        return
    table = opened(uri, options, version=version, timestamp=timestamp, checkpoint=checkpoint)
    view = table.overview()
    costs = None if price_list is None else cost(table.context.store, view, price_list)
    if output is Output.JSON:
        show_json(asdict(view) | ({} if costs is None else {"cost": asdict(costs)}))
        return
    show(view)
    if costs is not None:
        print_line(str(costs))


def regions(uri: Uri, options: StorageOptions = None, output: OutputOption = Output.TABLE) -> None:
    """List the regions: writer epoch, generations, rows that wait; in JSON also ids, values and
    positions."""
    rows = opened(uri, options).regions()
    if output is Output.TABLE:
        rows = _for_people(rows)
    show_rows(rows, output, "no regions: nothing was written yet")


def generations(
    uri: Uri, options: StorageOptions = None, output: OutputOption = Output.TABLE
) -> None:
    """List the generations in storage and in memory."""
    show_rows(opened(uri, options).generations(), output, "no generations")


def wal(
    uri: Uri,
    options: StorageOptions = None,
    output: OutputOption = Output.TABLE,
    limit: Limit = None,
) -> None:
    """List the entries of the write-ahead logs."""
    entries = opened(uri, options).wal()
    if limit is not None:
        entries = entries.slice(max(0, entries.num_rows - limit))
    show_rows(entries, output, "no WAL entries")


def history(
    uris: Annotated[
        list[str], typer.Argument(metavar="URI...", help="The tables whose transactions to list.")
    ],
    options: StorageOptions = None,
    output: OutputOption = Output.TABLE,
    actor: Annotated[str | None, typer.Option(help="Only those of this actor.")] = None,
    limit: Annotated[int, typer.Option("--limit", min=0, help="The newest so many.")] = 1000,
) -> None:
    """List committed transactions: time, actor, operation, tables, regions, rows."""
    tables = [opened(uri, options) for uri in uris]
    rows = transactions.history(*tables, actor=actor, limit=limit)
    show_rows(rows, output, "no transactions")


def _for_people(regions: pa.Table) -> pa.Table:
    """The columns that fit into a terminal. What is flushed has generations below the current."""
    merged = regions["merged_generation"]
    flushed = pc.subtract(regions["current_generation"], 1)
    return pa.table(
        {
            "region": regions["region"],
            "status": regions["status"],
            "epoch": regions["writer_epoch"],
            "merged": merged,
            "to merge": pc.subtract(flushed, merged),
            "unflushed": regions["unflushed_rows"],
        }
    )


def _show_older(mem_wals: list[OlderMemWal], output: Output) -> None:
    if output is Output.JSON:
        listed = [{**asdict(mem_wal), "state": mem_wal.state.name.lower()} for mem_wal in mem_wals]
        show_json({"format": "older", "mem_wals": listed})
        return
    remark("a MemWAL index of the older format: `memwal upgrade` moves the table to today's")
    rows = [
        {
            "region": mem_wal.region,
            "generation": mem_wal.generation,
            "state": mem_wal.state.name.lower(),
            "owner": mem_wal.owner_id,
            "entries": mem_wal.entries,
            "WAL ranges": ", ".join(f"{first}-{last}" for first, last in mem_wal.wal_ranges),
            "WAL location": mem_wal.wal_location,
        }
        for mem_wal in mem_wals
    ]
    show_rows(pa.Table.from_pylist(rows), output)
