"""Commands that work: `flush`, `merge`, `index`, `compact`, `snapshot`, `gc`, `run`."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

import pyarrow.compute as pc
import typer

from memwal_sql.cli.metrics import serve_metrics
from memwal_sql.cli.options import (
    Output,
    OutputOption,
    StorageOptions,
    Uri,
    duration,
    opened,
)
from memwal_sql.cli.output import (
    print_line,
    progress_bars,
    remark,
    show_json,
    show_result,
    show_rows,
)
from memwal_sql.maintain.jobs import JobRun, Triggers
from memwal_sql.maintain.loop import run_all_jobs, run_jobs_forever
from memwal_sql.view.texts import count_text, size_text

_TRIGGERS = Triggers()


def flush(uri: Uri, options: StorageOptions = None, output: OutputOption = Output.TABLE) -> None:
    """Make files of what is only in the log; it stops writers that are open."""
    flushed = opened(uri, options).flush()
    show_result({"regions_flushed": flushed}, f"{count_text(flushed, 'region')} flushed", output)


def merge(
    uri: Uri,
    region: Annotated[
        list[str] | None,
        typer.Option("--region", help="Only this region, by name or id; may be repeated."),
    ] = None,
    options: StorageOptions = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Move what is flushed into the base table."""
    with progress_bars(output) as report:
        merged = opened(uri, options).merge(report, region or None)
    text = f"{count_text(merged, 'generation')} merged"
    show_result({"generations_merged": merged}, text, output)


def index(
    uri: Uri,
    name: Annotated[
        list[str] | None, typer.Option("--name", help="Only this index; may be repeated.")
    ] = None,
    options: StorageOptions = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Bring the base table's indexes up to date with what was merged."""
    with progress_bars(output) as report:
        built = opened(uri, options).build_indexes(report, name or None)
    text = f"brought up to date: {', '.join(built)}" if built else "all indexes are up to date"
    show_result({"indexes": built}, text, output)


def compact(
    uri: Uri,
    fragments: Annotated[
        int | None,
        typer.Option(
            min=2,
            help="Join so many that together have twice the size of the largest one, as `run` does;"
            " without it all small ones.",
        ),
    ] = None,
    deleted: Annotated[
        float,
        typer.Option(help="Rewrite fragments that have lost such a share of their rows."),
    ] = 0.1,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only say how many fragments there are to compact.")
    ] = False,
    options: StorageOptions = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Join small fragments of the base table, and leave deleted rows out of it."""
    with progress_bars(output) as report:
        table = opened(uri, options)
        done = table.compact(report, fragments=fragments, deleted=deleted, dry_run=dry_run)
    text = f"{count_text(done, 'fragment')} {'to compact' if dry_run else 'compacted'}"
    show_result({"fragments": done}, text, output)


def snapshot(uri: Uri, options: StorageOptions = None, output: OutputOption = Output.TABLE) -> None:
    """Record the state of all regions in the base table, for eventual readers and time travel."""
    version = opened(uri, options).snapshot_regions()
    show_result({"version": version}, f"recorded in version {version}", output)


def gc(
    uri: Uri,
    delete: Annotated[
        bool, typer.Option("--delete", help="Delete. Without it nothing is touched.")
    ] = False,
    older_than: Annotated[
        str,
        typer.Option(help="Keep what readers may still use that began within this time."),
    ] = "1h",
    versions_older_than: Annotated[
        str | None,
        typer.Option(help="Let Lance clean up versions of the base older than this, too."),
    ] = None,
    options: StorageOptions = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """List the files that nobody needs any more; delete them with --delete."""
    grace = duration(older_than, "--older-than")
    versions = None
    if versions_older_than is not None:
        versions = duration(versions_older_than, "--versions-older-than")
    with progress_bars(output) as report:
        garbage = opened(uri, options).collect_garbage(
            dry_run=not delete,
            older_than=grace,
            versions_older_than=versions,
            progress=report,
        )
    show_rows(garbage, output, "nothing to delete")
    if output is Output.TABLE and garbage.num_rows:
        files, size = (pc.sum(garbage[name]).as_py() or 0 for name in ("files", "bytes"))
        done = "deleted" if delete else "to be deleted: --delete does it"
        remark(f"{count_text(files, 'file')}, {size_text(size)} {done}")


def run(
    uri: Uri,
    once: Annotated[
        bool, typer.Option("--once", help="Do every job once, due or not, and end.")
    ] = False,
    interval: Annotated[float, typer.Option(min=0, help="Seconds between two rounds.")] = 5.0,
    rounds: Annotated[int | None, typer.Option(min=1, help="End after so many rounds.")] = None,
    flush_seconds: Annotated[
        float,
        typer.Option(min=0, help="Flush a log that its silent writer should have so long ago."),
    ] = _TRIGGERS.flush_seconds,
    merge_generations: Annotated[
        int, typer.Option(min=1, help="Merge when a region has so many generations to merge,")
    ] = _TRIGGERS.merge_generations,
    merge_seconds: Annotated[
        float, typer.Option(min=0, help="or when one has waited so long.")
    ] = _TRIGGERS.merge_seconds,
    index_seconds: Annotated[
        float, typer.Option(min=0, help="Look at the indexes after every merge, and so often.")
    ] = _TRIGGERS.index_seconds,
    compact_fragments: Annotated[
        int, typer.Option(min=2, help="Compact when so many fragments may be joined,")
    ] = _TRIGGERS.compact_fragments,
    compact_deleted: Annotated[
        float, typer.Option(help="or when such a share of the base's rows was deleted.")
    ] = _TRIGGERS.compact_deleted,
    snapshot_seconds: Annotated[
        float, typer.Option(min=0, help="Record regions so often, if something was flushed.")
    ] = _TRIGGERS.snapshot_seconds,
    collect_seconds: Annotated[
        float, typer.Option(min=0, help="Collect garbage so often.")
    ] = _TRIGGERS.collect_seconds,
    grace_seconds: Annotated[
        float, typer.Option(min=0, help="Keep what readers may use that began so long ago.")
    ] = _TRIGGERS.grace_seconds,
    version_seconds: Annotated[
        float, typer.Option(min=0, help="Clean up base versions older than this, too; inf: never.")
    ] = _TRIGGERS.version_seconds,
    metrics: Annotated[
        str | None,
        typer.Option(metavar="HOST:PORT", help="Serve metrics to Prometheus; :9100 on any host."),
    ] = None,
    options: StorageOptions = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Do all jobs in a loop, each when there is enough to do for it. It deletes garbage."""
    if metrics is not None:
        serve_metrics(metrics)
    table = opened(uri, options)
    triggers = Triggers(
        flush_seconds=flush_seconds,
        merge_generations=merge_generations,
        merge_seconds=merge_seconds,
        index_seconds=index_seconds,
        compact_fragments=compact_fragments,
        compact_deleted=compact_deleted,
        snapshot_seconds=snapshot_seconds,
        collect_seconds=collect_seconds,
        grace_seconds=grace_seconds,
        version_seconds=version_seconds,
    )

    def show(run: JobRun) -> None:
        _show_run(table.uri, run, output)

    with progress_bars(output) as report:
        if once:
            run_all_jobs(table, triggers, on_run=show, progress=report)
        else:
            run_jobs_forever(
                table, triggers, interval=interval, rounds=rounds, on_run=show, progress=report
            )


def _show_run(uri: str, run: JobRun, output: Output) -> None:
    now = datetime.now(UTC)
    if output is Output.JSON:
        result = {
            "time": now,
            "table": uri,
            "job": run.job,
            "outcome": run.outcome,
            "seconds": run.seconds,
            "failed": run.error is not None,
        }
        show_json(result)
    elif run.error is not None:
        remark(f"{now:%H:%M:%S} {run.job} was not done: {run.outcome}", "yellow")
    else:
        print_line(f"{now:%H:%M:%S} {run.job}: {run.outcome} ({run.seconds:.1f} s)")
