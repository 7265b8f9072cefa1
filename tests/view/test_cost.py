"""What a table costs by a price list: its files are counted by the operating system."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

import memwal_sql as mw
from memwal_sql.errors import InvalidCallError
from memwal_sql.view.cost import read_prices
from tests.cli.calls import as_json, call, failing
from tests.docs.pages import page
from tests.each import each
from tests.model.small_rows import SCHEMA, make_rows

PRICES = Path(__file__).parent.parent.parent / "docs/assets/prices.toml"
TEXT = PRICES.read_text()


def test_info_tells_what_is_stored_and_what_the_log_took(tmp_path: Path) -> None:
    table = mw.create_table(tmp_path / "t", SCHEMA, "id")
    with table.writer() as writer:
        for key in range(4):
            writer.upsert(make_rows(key))
        writer.flush()
    table.merge()
    assert as_json("info", table.uri, "--prices", PRICES)["cost"]["log_month"] is None
    text = call("info", table.uri, "--prices", PRICES)
    assert "in 0.0 days, each a PUT: 0.0000 USD, too short a time to tell a month" in text
    table.tags.create("a", 1)
    made = time.time() - 10 * 86400
    os.utime(tmp_path / "t" / "_memwal_sql/table/00000000000000000001.json", (made, made))
    found = as_json("info", table.uri, "--prices", PRICES)["cost"]
    sizes = [path.stat().st_size for path in (tmp_path / "t").rglob("*") if path.is_file()]
    assert (found["files"], found["bytes"]) == (len(sizes), sum(sizes))
    assert found["storage_month"] == pytest.approx(sum(sizes) / 2**30 * 0.023)
    assert (found["log_entries"], found["log"]) == (5, pytest.approx(5 * 0.005 / 1000))
    assert found["log_days"] == pytest.approx(10, rel=1e-3)
    assert found["log_month"] == pytest.approx(found["log"] * 365.25 / 12 / 10, rel=1e-3)
    text = call("info", table.uri, "--prices", PRICES)
    log = "log 5 entries in 10.0 days, each a PUT: 0.0000 USD, 0.0001 a month"
    assert f"{len(sizes)} files, " in text and log in text
    os.utime(tmp_path / "t" / "_memwal_sql/table/00000000000000000001.json", (2**33, 2**33))
    text = call("info", table.uri, "--prices", PRICES)
    assert "log 5 entries so far, each a PUT: 0.0000 USD\n" in text
    assert "cost" not in as_json("info", table.uri)
    assert "past state" in failing("info", table.uri, "--prices", PRICES, "--version", "1", code=2)


def test_a_kind_of_request_may_be_left_out(tmp_path: Path) -> None:
    path = tmp_path / "prices.toml"
    path.write_text('currency = "USD"\ngb_month = 1\nput = 0.005')
    prices = read_prices(path)
    assert prices.of_requests({"put": 2000, "copy": 7, "get": 1}) == pytest.approx(0.01)


def test_the_manual_shows_the_price_list() -> None:
    assert "".join(f"    {line}\n" for line in TEXT.splitlines()) in page("docs/benchmarks.md")


@each(
    "text, said",
    [
        (None, "can't be read: No such file"),
        ("currency = ", "is not TOML"),
        (TEXT + "more = 1", "it has ['copy', 'currency', 'delete'"),
        (TEXT.replace("head", "heads"), "must have currency and gb_month, and may have get, head,"),
        ("gb_month = 1", "must have currency and gb_month"),
        (TEXT.replace("0.023", "-1"), "gb_month = -1 must be a price, 0 or more"),
        (TEXT.replace("0.023", "inf"), "gb_month = inf must be a price"),
        (TEXT.replace("delete = 0", 'delete = "0"'), "delete = '0' must be a price"),
        (TEXT.replace('"USD"', "1"), "currency = 1 must be a text"),
    ],
)
def test_another_file_is_refused(text: str | None, said: str, tmp_path: Path) -> None:
    path = tmp_path / "prices.toml"
    if text is not None:
        path.write_text(text)
    with pytest.raises(InvalidCallError) as error:
        read_prices(path)
    assert said in str(error.value) and "prices.toml" in str(error.value)
