"""One random history: writes, flushes, crashes, take-overs and merges drawn from a seed.

Every random choice comes from one generator, so that a seed repeats a run. Threads of the writers
may interleave differently; the oracle allows exactly what every interleaving may leave.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from random import Random
from typing import Any

import datafusion
import lance

import memwal_sql as mw
from memwal_sql.errors import MemWalError, ReopenError
from tests.model import merging
from tests.model.kinds import KeyKind, RegionKind
from tests.model.oracle import Oracle, Row, Rows, schema_of, table_of
from tests.model.predicates import TEXTS
from tests.model.process import Process, ProcessKilledError, as_another_process
from tests.model.queries import Reader, as_dict, ask, random_row

Pairs = list[tuple[int, Row]]
# How often it is taken, among others.
Step = tuple[int, Callable[[], None]]


class HistoryError(AssertionError):
    """A history that went wrong, with its seed and its steps."""


class History:
    """A table, the process that writes to it, and what it should hold."""

    def __init__(self, seed: str, kind: KeyKind, regions: RegionKind, uri: str) -> None:
        self.rng = Random(seed)
        self.seed, self.kind, self.regions, self.uri = seed, kind, regions, uri
        self.keys = min(kind.size, 10 if regions.name in ("identity", "several") else 24)
        self.oracle = Oracle()
        self.log: list[str] = []
        self._op = 0
        self._texts = tuple(self.rng.sample(TEXTS, 4))
        self._writers: dict[str | None, Any] = {}
        self._claimed: set[int] = set()
        self._durable = True
        self._checkpoints: dict[str, Rows] = {}

    def run(self, steps: int, questions: int) -> None:
        """Play `steps` steps, asking `questions` random query shapes after each and all at last."""
        try:
            self._create()
            for _ in range(steps):
                self._step()
                self._compare(questions)
            self._compare(None)
            self._end()
        except Exception as error:
            steps_taken = "\n  ".join(self.log)
            raise HistoryError(
                f"{error!r}\nhistory {self.seed!r}: {self.kind.name} keys, {self.regions.name} "
                f"regions, table {self.uri}\n  {steps_taken}"
            ) from error

    # The table

    def _create(self) -> None:
        fields = self.regions.fields(self.kind)
        arguments = {} if fields is None else {"regions": fields}
        schema = schema_of(self.kind)
        if self.rng.random() < 0.5:
            mw.create_table(self.uri, schema, primary_key=self.kind.names, **arguments)
            self.log.append("create_table")
        else:
            pairs = self._random_pairs(distinct=True)
            lance.write_dataset(table_of(self.kind, pairs), self.uri, schema=schema)
            mw.enable(self.uri, primary_key=self.kind.names, **arguments)
            self.oracle.append(pairs)
            self.log.append(f"enable with {pairs}")
        self._open_process()

    def _open_process(self, *, durable: bool | None = None) -> None:
        self._process = Process(self.uri)
        self._context = datafusion.SessionContext()
        mw.register(self._context, "t", self._process.table)
        self._writers = {}
        self._claimed = set()
        self._options = {
            "durable": self.rng.random() < 0.7 if durable is None else durable,
            "indexed": self.rng.random() < 0.7,
            "memtable_rows": self.rng.choice((12, 20, 100_000)),
            "flush_attempts": 1,  # the writers of a dead process shall not try again for long
            "turns": False,  # or a writer whose region is taken over takes it back
        }
        self._durable = self._options["durable"]
        self.log.append(f"process opens: {self._options}")

    def _writer(self, region: str | None = None) -> Any:
        if region not in self._writers:
            named = {} if region is None else {"region": region}
            self._writers[region] = self._process.table.writer(**named, **self._options)
        return self._writers[region]

    def _close_writers(self) -> None:
        writers, self._writers = self._writers, {}
        for writer in writers.values():
            writer.close()
        self._process.table.close()

    # Steps

    def _step(self) -> None:
        steps = self._steps()
        weights = [weight for weight, _ in steps]
        self.rng.choices([step for _, step in steps], weights)[0]()

    def _steps(self) -> list[Step]:
        return [
            (10, self._upsert),
            (3, self._insert),
            (5, self._delete),
            (4, self._flush),
            (2, self._reopen),
            (2, self._crash),
            (2, self._crash_inside),
            (2, self._take_over),
            (4, self._merge),
            (1, self._crash_in_merge),
            (2, self._collect),
            (1, self._crash_in_collection),
            (2, self._compact),
            (1, self._crash_in_compaction),
            (1, self._checkpoint),
            (2, self._append),
        ]

    def _random_pairs(self, *, distinct: bool = False) -> Pairs:
        self._op += 1
        count = self.rng.choice((1, 1, 2, 3, 6, 12))
        if distinct:
            numbers = self.rng.sample(range(self.keys), min(count, self.keys))
        else:
            numbers = [self.rng.randrange(self.keys) for _ in range(count)]
        # Rows of one batch differ, so that the last of a duplicate key is told from the first.
        return [
            (n, random_row(self.rng, self._op * 100 + i, self._texts))
            for i, n in enumerate(numbers)
        ]

    def _by_region(self, numbers: list[int]) -> dict[str | None, list[int]]:
        groups: dict[str | None, list[int]] = {}
        for n in numbers:
            groups.setdefault(self.regions.region_of(n), []).append(n)
        return groups

    def _write_pairs(self, pairs: Pairs) -> None:
        for region, numbers in self._by_region([n for n, _ in pairs]).items():
            wanted = set(numbers)
            part = [(n, row) for n, row in pairs if n in wanted]
            self._claimed |= wanted
            self._writer(region).upsert(table_of(self.kind, part))

    def _upsert(self) -> None:
        pairs = self._random_pairs()
        self.log.append(f"upsert {pairs}")
        self._write_pairs(pairs)
        self.oracle.upsert(pairs, durable=self._durable)

    def _insert(self) -> None:
        """INSERT INTO, through the open writer or through one of the table's own."""
        if self.regions.is_manual:
            return  # nobody says which region
        pairs = self._random_pairs(distinct=True)
        self.log.append(f"INSERT {pairs}")
        durable = self._durable or not self._writers
        rows = table_of(self.kind, pairs)
        self._context.register_record_batches("new_rows", [rows.to_batches()])
        self._context.sql("INSERT INTO t SELECT * FROM new_rows").collect()
        self._context.deregister_table("new_rows")
        self.oracle.upsert(pairs, durable=durable)

    def _delete(self) -> None:
        numbers = [self.rng.randrange(self.keys) for _ in range(self.rng.choice((1, 2, 5)))]
        self.log.append(f"delete {numbers}")
        for region, part in self._by_region(numbers).items():
            self._writer(region).delete(self.kind.table(part))
        self.oracle.delete(numbers, durable=self._durable)

    def _flush(self) -> None:
        self.log.append("flush")
        for writer in self._writers.values():
            writer.flush()
        self.oracle.durable.clear()
        # Rows of a process that died stay in the WAL until their region is claimed again.
        table = self._process.table
        counts = [
            sum(
                source.rows for region in table.snapshot(level).regions for source in region.sources
            )
            for level in ("strong", "manifest")
        ]
        if counts[0] == counts[1]:
            self.oracle.flushed.clear()

    def _reopen(self) -> None:
        self.log.append("close and open again")
        self._close_writers()
        self.oracle.durable.clear()
        self._open_process()

    def _crash(self) -> None:
        self.log.append("crash")
        self._process.kill()
        self._after_crash()

    def _crash_inside(self) -> None:
        """The process dies at a random change of the store, inside an upsert or a flush."""
        change, before = self.rng.randint(1, 6), self.rng.random() < 0.5
        pairs = self._random_pairs()
        self.log.append(f"crash {'before' if before else 'after'} change {change} of {pairs}")
        # Until the write is acknowledged, each of its keys may be old or new.
        self._process.switch.kill_at(change, before=before)
        self.oracle.upsert(pairs, durable=False)
        with suppress(MemWalError, ProcessKilledError):
            self._write_pairs(pairs)
            for writer in self._writers.values():
                writer.flush()
        self._process.kill()
        self._after_crash()

    def _after_crash(self) -> None:
        self._open_process()
        found = self._process.table.scan().read_all()
        self.oracle.crashed(as_dict(self.kind, found, "scan after a crash"))

    def _take_over(self) -> None:
        """A second process claims regions of the first, whose writers must stop there."""
        first, claimed = dict(self._writers), set(self._claimed)
        first_table = self._process.table
        self._open_process(durable=True)
        pairs = self._random_pairs()
        self.log.append(f"taken over by {pairs}")
        self._write_pairs(pairs)
        self.oracle.upsert(pairs, durable=True)
        for n in sorted(claimed.intersection(n for n, _ in pairs)):
            writer = first[self.regions.region_of(n)]
            row = random_row(self.rng, -1, self._texts)
            try:
                writer.upsert(table_of(self.kind, [(n, row)]))
                writer.flush()
            except ReopenError:
                continue
            raise AssertionError(f"a fenced writer acknowledged key {n}")
        for closing in (*first.values(), first_table):
            with suppress(MemWalError):
                closing.close()
        # What the first writers had only buffered is lost where they were fenced.
        found = self._process.table.scan().read_all()
        self.oracle.crashed(as_dict(self.kind, found, "scan after a take-over"))

    def _merge(self) -> None:
        """The process merges everything, or one region."""
        regions = None
        if self.rng.random() < 0.5 and (ids := sorted(merging.manifests(self.uri))):
            regions = [str(self.rng.choice(ids))]
        merged = self._process.table.merge(regions=regions)
        self.log.append(f"merge {regions or 'everything'}: {merged} generations")
        if merged:
            self.oracle.record()
        self._look_at_base()

    def _crash_in_merge(self) -> None:
        self._crash_in("a merge", 9, self._process.table.merge)
        if self.oracle.recorded is None:  # it may have got as far as that
            self.oracle.record()
        self._look_at_base()
        self._after_crash()

    def _crash_in(self, name: str, most: int, job: Callable[[], object]) -> None:
        """The process dies inside a job, at a random one of its first changes of the store."""
        change, before = self.rng.randint(1, most), self.rng.random() < 0.5
        self.log.append(f"crash {'before' if before else 'after'} change {change} of {name}")
        self._process.switch.kill_at(change, before=before)
        with suppress(MemWalError, ProcessKilledError):
            job()
        self._process.kill()

    def _look_at_base(self) -> None:
        base = merging.keys_in_base(self.uri, self.kind.names)
        self.oracle.base = set(self.kind.numbers(base))

    def _collect(self) -> None:
        """The process collects garbage without grace, and cleans up old base versions or not."""
        options = {} if self.rng.random() < 0.5 else {"versions_older_than": timedelta(0)}
        report = self._process.table.collect_garbage(older_than=timedelta(0), **options)
        self.log.append(f"collect {report.num_rows} things, {options}")

    def _crash_in_collection(self) -> None:
        at_once = {"older_than": timedelta(0), "versions_older_than": timedelta(0)}
        self._crash_in("a collection", 9, lambda: self._process.table.collect_garbage(**at_once))
        self._after_crash()

    def _compact(self) -> None:
        """The process compacts what two merges left, which changes no rows."""
        self._merge_twice()
        fragments = self.rng.choice((None, 2, 4))
        found = self._process.table.compact(fragments=fragments)
        self.log.append(f"compact {found} fragments, {fragments=}")

    def _merge_twice(self) -> None:
        for _ in range(2):
            self._upsert()
            self._flush()
            self._merge()

    def _crash_in_compaction(self) -> None:
        self._merge_twice()
        self._crash_in("a compaction", 5, self._process.table.compact)
        self._after_crash()

    def _checkpoint(self) -> None:
        """Hold what is read now; one of the older checkpoints may be dropped."""
        if self._checkpoints and self.rng.random() < 0.3:
            name = self.rng.choice(sorted(self._checkpoints))
            self.log.append(f"drop the checkpoint {name}")
            self._process.table.drop_checkpoint(name)
            del self._checkpoints[name]
        name = f"after-step-{len(self.log)}"
        self.log.append(f"make the checkpoint {name}")
        self._process.table.checkpoint(name)
        self._checkpoints[name] = dict(self.oracle.rows)

    def _compare_checkpoint(self, name: str) -> None:
        with as_another_process():
            held = mw.open_table(self.uri, checkpoint=name).scan().read_all()
        assert as_dict(self.kind, held, name) == self._checkpoints[name]

    def _append(self) -> None:
        """Somebody appends rows to the base table, of keys that nobody has written."""
        # A tombstone in a generation hides a row of the base table, whenever that was appended.
        unused = [n for n in range(self.keys) if n not in self.oracle.base | self.oracle.touched]
        numbers = self.rng.sample(unused, min(len(unused), 2))
        if not numbers:
            return
        self._op += 1
        pairs = [(n, random_row(self.rng, self._op * 100 + n, self._texts)) for n in numbers]
        self.log.append(f"append to the base table {pairs}")
        base = lance.dataset(self.uri)
        lance.write_dataset(table_of(self.kind, pairs).cast(base.schema), self.uri, mode="append")
        self.oracle.append(pairs)

    # Comparison

    def _reader(self, table: Any, context: Any) -> Reader:
        return Reader(self.kind, table, context, self.keys)

    def _compare(self, questions: int | None) -> None:
        rows = self.oracle.rows
        ask(self.rng, self._reader(self._process.table, self._context), rows, questions)
        if questions is None or self.rng.random() < 0.3:
            self._compare_fresh_handle()
        if self._checkpoints and self.rng.random() < 0.3:
            self._compare_checkpoint(self.rng.choice(sorted(self._checkpoints)))
        if not self.oracle.durable and (questions is None or self.rng.random() < 0.3):
            with as_another_process():
                self._compare_fresh_handle()
        for consistency in ("manifest", "eventual"):
            if questions is None or self.rng.random() < 0.2:
                found = self._process.table.scan(consistency=consistency).read_all()
                rows_found = as_dict(self.kind, found, consistency)
                self.oracle.check_flushed(rows_found, eventual=consistency == "eventual")

    def _compare_fresh_handle(self) -> None:
        table = mw.open_table(self.uri)
        context = datafusion.SessionContext()
        mw.register(context, "t", table)
        ask(self.rng, self._reader(table, context), self.oracle.rows, 3)

    def _end(self) -> None:
        """Everything is still there when all is closed and read by a process without writers."""
        self._close_writers()
        with as_another_process():
            found = mw.open_table(self.uri).scan().read_all()
        rows = as_dict(self.kind, found, "scan at the end")
        assert rows == self.oracle.rows, f"at the end: {rows}, expected {self.oracle.rows}"
        for name in self._checkpoints:
            self._compare_checkpoint(name)
        report = mw.open_table(self.uri).check()
        assert report.ok, str(report)
