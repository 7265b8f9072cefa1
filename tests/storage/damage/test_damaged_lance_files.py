"""Files of Lance that are damaged: every read gives the right rows or CorruptFileError, which names
the generation's folder or the table.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest
from typer.testing import CliRunner

import memwal_sql as mw
from exec_nodes.lance.errors import lance_errors
from exec_nodes.lance.stored_generation import open_generation
from exec_nodes.resident.admission import Admission
from memwal_sql.cli.app import app
from memwal_sql.cli.exit_codes import ExitCode
from memwal_sql.errors import CorruptFileError, StoreUnavailableError
from memwal_sql.maintain.merge import rows as generation_rows
from tests.each import each
from tests.model.merging import manifests
from tests.model.process import as_another_process
from tests.model.small_rows import make_rows, texts_of
from tests.model.writing import flush_rows, session_of

pytestmark = pytest.mark.slow

READS: dict[str, Callable[[Any], Any]] = {
    "scan": texts_of,
    "get": lambda table: table.get([1]),
    "get of several": lambda table: table.get([0, 1]),
    "sql": lambda table: _sql(table),
}
DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "cut": lambda data: data[: len(data) // 2],
    "empty": lambda data: b"",
    "zeros": lambda data: bytes(len(data)),
}


def _sql(table: Any) -> Any:
    context = session_of("t", table)
    with mw.memwal_errors():
        return context.sql("SELECT count(text) FROM t").to_pylist()


@pytest.fixture
def generation(table: Any, uri: str) -> Path:
    """The folder of the only flushed generation, with the keys 1 and 10."""
    with Admission.set(small=-1):  # with a btree, as a large one
        flush_rows(table, make_rows(1, 10, text="flushed"))
    (manifest,) = manifests(uri).values()
    (flushed,) = manifest.flushed_generations
    return Path(uri) / "_mem_wal" / str(manifest.region_id) / flushed.path


def _damage(folder: Path, pattern: str, how: str) -> None:
    files = list(folder.glob(pattern))
    assert files
    for file in files:
        file.write_bytes(DAMAGES[how](file.read_bytes()))


def _refused(uri: str, named: str) -> None:
    with as_another_process():
        for read in READS.values():
            with pytest.raises(CorruptFileError, match=re.escape(named)):
                read(mw.open_table(uri))
        called = CliRunner().invoke(app, ["sql", uri, "SELECT count(text) FROM t"])
        assert called.exit_code == ExitCode.REPAIR


@pytest.mark.parametrize("how", ["cut", "empty", "zeros"])
@pytest.mark.parametrize("pattern", ["_versions/*.manifest", "data/*.lance"])
def test_a_damaged_generation_is_named(generation: Path, uri: str, pattern: str, how: str) -> None:
    """Zeros are what a power failure leaves; Lance reads a manifest of zeros as an empty table."""
    _damage(generation, pattern, how)
    _refused(uri, generation.name)
    with pytest.raises(CorruptFileError, match=re.escape(generation.name)):
        mw.open_table(uri).merge()


def test_a_generation_that_lost_its_rows_is_not_merged(generation: Path, uri: str) -> None:
    """Of several versions the last may be lost: the one before has the columns and no rows."""
    lance.dataset(str(generation)).delete("true")
    lance.dataset(str(generation)).cleanup_old_versions()
    empty = lance.dataset(str(generation))
    assert [f.metadata.physical_rows for f in empty.get_fragments()] == []
    _refused(uri, generation.name)
    with pytest.raises(CorruptFileError, match=re.escape(generation.name)):
        mw.open_table(uri).merge()


TOMBSTONES = {
    "text": pa.array(["no", "no"]),
    "number": pa.array([0, 0], pa.int8()),
    "null": pa.array([False, None]),
    "missing": None,
}


@pytest.mark.parametrize("how", TOMBSTONES)
def test_a_generation_whose_tombstones_tell_nothing_is_named(
    generation: Path, uri: str, how: str
) -> None:
    """Taken as they come, each would be a row that is shown or hidden by chance."""
    rows, column = lance.dataset(str(generation)).to_table(), TOMBSTONES[how]
    rows = rows.drop_columns(["_tombstone"])
    if column is not None:
        rows = rows.append_column("_tombstone", column)
    checked = (generation / "bloom_filter.bin").read_bytes()
    shutil.rmtree(generation)
    lance.write_dataset(rows, str(generation))
    (generation / "bloom_filter.bin").write_bytes(checked)
    _refused(uri, generation.name)
    with pytest.raises(CorruptFileError, match=re.escape(generation.name)):
        mw.open_table(uri).merge()
    report = mw.open_table(uri).check()
    assert not report.ok
    assert [one for one in report if "_tombstone" in one.what and generation.name in one.where]


@pytest.mark.parametrize("how", DAMAGES)
@pytest.mark.parametrize("file", ["page_data", "page_lookup"])
def test_a_damaged_btree_of_a_generation_is_named_or_not_needed(
    generation: Path, uri: str, file: str, how: str, within: Any
) -> None:
    within(Admission.set(small=0))  # else rows are found in memory
    right = {
        "scan": {0: "x", 1: "flushed", 2: "x", 10: "flushed"},
        "get": make_rows(1, text="flushed").to_pylist(),
        "get of several": [*make_rows(0).to_pylist(), *make_rows(1, text="flushed").to_pylist()],
        "sql": [{"count(t.text)": 4}],
    }
    _damage(generation, f"_indices/*/{file}.lance", how)
    with as_another_process():
        for name, read in READS.items():
            try:
                found = read(mw.open_table(uri))
            except CorruptFileError as error:
                assert generation.name in str(error)
            else:
                assert (found.to_pylist() if name.startswith("get") else found) == right[name]
    assert not mw.open_table(uri).check().ok
    assert mw.open_table(uri).merge() == 1
    assert mw.open_table(uri).get([1])["text"].to_pylist() == ["flushed"]


def test_a_generation_without_a_number_of_rows_must_have_some(generation: Path, uri: str) -> None:
    assert open_generation(str(generation), "region[gen=1]", None).count_rows() == 2
    _damage(generation, "_versions/*.manifest", "zeros")
    with pytest.raises(CorruptFileError, match=re.escape(generation.name)):
        open_generation(str(generation), "region[gen=1]", None)


@pytest.mark.parametrize("how", DAMAGES)
def test_a_damaged_file_of_the_base_table_is_typed(table: Any, uri: str, how: str) -> None:
    _damage(Path(uri), "data/*.lance", how)
    _refused(uri, uri)


@pytest.mark.parametrize("how", DAMAGES)
def test_a_damaged_manifest_of_the_base_table_is_typed(table: Any, uri: str, how: str) -> None:
    opened = mw.open_table(uri)
    latest = lance.dataset(uri).version
    lance.dataset(uri).delete("id = 0")
    _damage(Path(uri), f"_versions/{2**64 - 2 - latest}.manifest", how)
    _refused(uri, uri)
    with pytest.raises(CorruptFileError, match=re.escape(uri)):
        texts_of(opened)


@each("how", DAMAGES)
def test_a_damaged_index_of_the_base_table_is_named_and_can_be_dropped(
    table: Any, uri: str, how: str
) -> None:
    """Lance panics on an empty file."""
    before = texts_of(table)
    table.create_index("text", "FTS")
    _damage(Path(uri), "_indices/*/metadata.lance", how)
    with as_another_process():
        with pytest.raises(CorruptFileError, match=r"metadata\.lance.*drop the index"):
            texts_of(mw.open_table(uri))
        mw.open_table(uri).drop_index("text_idx")
        assert texts_of(mw.open_table(uri)) == before


def test_a_merge_out_of_reach_of_the_store_is_no_damage(
    generation: Path, uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def out_of_reach(*_: object, **__: object) -> None:
        raise OSError("LanceError(IO): Generic S3 error: HTTP error, object_store.rs:1:2")

    table = mw.open_table(uri)
    monkeypatch.setattr(generation_rows, "open_generation", out_of_reach)
    with pytest.raises(StoreUnavailableError, match=re.escape(generation.name)):
        table.merge()


OUT_OF_REACH = "LanceError(IO): Generic S3 error: Error performing GET: HTTP error, a.rs:1:2"
DISK_FAILS = "LanceError(IO): Generic LocalFileSystem error: (os error 5), b.rs:1:2"
CUT = "External error: Lance reader producer terminated before end of stream"
NO_PARENT = "Schema error: Field 'v' (id=1) references parent id -3"


@each(
    "error, kind",
    [
        (ValueError(OUT_OF_REACH), StoreUnavailableError),
        (ValueError(DISK_FAILS), StoreUnavailableError),
        (pa.ArrowInvalid(CUT), CorruptFileError),
        (pa.ArrowInvalid(NO_PARENT), CorruptFileError),
        (ValueError("odd"), ValueError),
    ],
)
def test_errors_of_lance_are_told_apart_by_their_text(
    error: Exception, kind: type[Exception]
) -> None:
    with pytest.raises(kind) as caught, lance_errors("region[gen=1]", "a_folder"):
        raise error
    assert type(caught.value) is kind
