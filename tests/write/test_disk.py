"""Disks that are full or may not be written: nothing that was acknowledged is lost."""

from __future__ import annotations

import errno
import os
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from unittest.mock import patch

import lance
import pytest

import memwal_sql as mw
from memwal_sql.errors import MemWalError, StoreUnavailableError
from tests.model.folder_state import folder_state
from tests.model.opened import opened_over
from tests.model.process import as_another_process
from tests.model.small_rows import SCHEMA, make_rows, texts_of
from tests.model.writing import flush_rows, upsert_rows

pytestmark = pytest.mark.slow


class _FullStore:
    """A disk that takes no byte more, from a chosen moment on."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self.full = False

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._inner, name)
        if name not in ("put", "put_if_absent"):
            return value

        def write(*args: Any) -> Any:
            if self.full:
                raise StoreUnavailableError(f"{args[0]}: {os.strerror(errno.ENOSPC)}")
            return value(*args)

        return write


def test_a_full_disk_acknowledges_nothing_and_loses_nothing(uri: str, table: Any) -> None:
    small = opened_over(uri, _FullStore)
    store, writer = small.context.store, small.writer()
    writer.upsert(make_rows(1, text="before"))
    store.full = True
    with pytest.raises((MemWalError, OSError), match=r"(?i)space|disk"):
        writer.upsert(make_rows(2, text="lost"))
    with pytest.raises((MemWalError, OSError)):
        writer.flush()
    with suppress(MemWalError, OSError):
        writer.close()
    store.full = False
    with as_another_process():
        assert texts_of(mw.open_table(uri)) == {0: "x", 1: "before", 2: "x"}
    upsert_rows(mw.open_table(uri), make_rows(2, text="after"))
    assert texts_of(mw.open_table(uri)) == {0: "x", 1: "before", 2: "after"}


def test_a_flush_that_lance_can_t_write_loses_nothing(uri: str, table: Any) -> None:
    real = lance.write_dataset

    def no_space(*args: Any, **kwargs: Any) -> Any:
        raise OSError("LanceError(IO): No space left on device (os error 28)")

    writer = table.writer(flush_attempts=1)
    writer.upsert(make_rows(1, text="before"))
    with (
        patch.object(lance, "write_dataset", no_space),
        pytest.raises(MemWalError, match=r"(?i)space"),
    ):
        writer.flush()
    assert lance.write_dataset is real
    with suppress(MemWalError):
        writer.close()
    assert texts_of(mw.open_table(uri))[1] == "before"
    flush_rows(mw.open_table(uri), make_rows(2, text="after"))
    assert texts_of(mw.open_table(uri)) == {0: "x", 1: "before", 2: "after"}


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small disk needs root")
def test_a_disk_that_really_fills_up_loses_no_acknowledged_row(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", str(disk)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("no permission to mount here")
    try:
        uri = str(disk / "table")
        table = mw.create_table(uri, SCHEMA, primary_key="id")
        writer = table.writer(memtable_rows=100)
        acknowledged: dict[int, str] = {}
        key = 0
        with pytest.raises((MemWalError, OSError), match=r"(?i)space|disk|full"):
            while key < 5_000:
                text = f"{key:06d}" * 500
                writer.upsert(make_rows(key, text=text))
                acknowledged[key] = text
                key += 1
        with suppress(MemWalError, OSError):
            writer.close()
        assert key > 10
        found = texts_of(mw.open_table(uri))
        extra = {key: text for key, text in found.items() if key not in acknowledged}
        assert {k: v for k, v in found.items() if k in acknowledged} == acknowledged
        assert len(extra) <= 1  # the write whose fate the error called unknown
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=True)


@contextmanager
def _as_nobody() -> Iterator[None]:
    """Root may write anywhere; nobody may not."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


def test_a_read_only_folder_can_be_read_and_refuses_writes() -> None:
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        uri = str(Path(folder) / "table")
        lance.write_dataset(make_rows(0, 1, 2), uri)
        table = mw.enable(uri, primary_key="id")
        flush_rows(table, make_rows(1, text="flushed"))
        for path in [Path(uri), *Path(uri).rglob("*")]:
            path.chmod(0o555 if path.is_dir() else 0o444)
        before = folder_state(uri)
        with _as_nobody():
            assert texts_of(mw.open_table(uri)) == {0: "x", 1: "flushed", 2: "x"}
            with pytest.raises((MemWalError, OSError), match=r"(?i)permission|read-only"):
                mw.open_table(uri).writer().upsert(make_rows(1))
            with pytest.raises((MemWalError, OSError), match=r"(?i)permission|read-only"):
                mw.create_table(str(Path(folder) / "new"), SCHEMA, primary_key="id")
        assert folder_state(uri) == before
        for path in [Path(uri), *Path(uri).rglob("*")]:
            path.chmod(0o755)
