"""Going back to a past state, against dicts of the states that the table went through."""

from __future__ import annotations

from random import Random
from typing import Any

import datafusion
import lance
import pyarrow as pa
import pytest

import memwal_sql as mw
from memwal_sql.table import restoring
from tests.soak import SOAK

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), False),
        ("n", pa.float64()),
        ("v", pa.list_(pa.float32(), 2)),
        ("s", pa.struct([("x", pa.int64()), ("y", pa.list_(pa.string()))])),
    ]
)
State = dict[int, dict[str, Any]]


def row(random: Random) -> dict[str, Any]:
    n = random.choice([None, 0.5, float("inf"), float(random.randrange(3))])
    v = random.choice([None, [0.0, 1.0], [float(random.randrange(3)), 2.0]])
    s = random.choice([None, {"x": random.randrange(2), "y": random.choice([None, [], ["a"]])}])
    return {"n": n, "v": v, "s": s}


def state_of(table: mw.Table) -> State:
    return {one.pop("id"): one for one in table.to_arrow().to_pylist()}


def write(writer: mw.TableWriter, state: State, random: Random) -> State:
    keys = random.sample(range(15), 5)
    new = {key: row(random) for key in keys[:3]}
    writer.upsert(pa.Table.from_pylist([{"id": k, **v} for k, v in new.items()], SCHEMA))
    writer.delete(keys[3:])
    return {key: one for key, one in (state | new).items() if key not in keys[3:]}


@pytest.mark.parametrize("seed", range(SOAK))
def test_every_state_comes_back_wherever_its_rows_are(uri: str, seed: int) -> None:
    random = Random(seed)
    table = mw.create_table(uri, SCHEMA, "id", regions="bucket(id, 2)")
    state: State = {}
    states: dict[str, State] = {}
    for step in range(8):
        with table.writer() as writer:
            state = write(writer, state, random)
            if random.random() < 0.5:
                writer.flush()
        if random.random() < 0.4:
            table.merge()
        if random.random() < 0.3 and states:
            name = random.choice(list(states))
            table.restore(checkpoint=name)
            state = states[name]
            assert state_of(table) == state
        table.checkpoint(f"at{step}")
        states[f"at{step}"] = state
    for name, then in random.sample(list(states.items()), 4):
        table.restore(checkpoint=name)
        assert state_of(table) == then == state_of(mw.open_table(uri))
        assert table.restore(checkpoint=name).rows == 0  # nothing differs
        assert state_of(table.as_of(checkpoint="at3")) == states["at3"]
    table.flush()
    table.merge()
    assert state_of(table) == then
    assert table.check().ok
    table.close()


@pytest.fixture
def table(uri: str) -> mw.Table:
    table = mw.create_table(uri, SCHEMA, "id")
    with table.writer() as writer:
        writer.upsert(pa.table({"id": [1, 2]}))
        writer.flush()
    return table


def test_a_version_and_a_time_come_back(table: mw.Table) -> None:
    version = table.snapshot_regions()
    with table.writer() as writer:
        writer.upsert(pa.table({"id": [3]}))
        writer.delete([1])
        writer.flush()
    table.merge()
    moment = table.history().to_pylist()[-1]["timestamp"]
    assert table.restore(version).rows == 2
    assert sorted(state_of(table)) == [1, 2]
    assert table.restore(timestamp=moment.isoformat()).rows == 2
    assert sorted(state_of(table)) == [2, 3]
    table.close()


def test_a_feed_has_what_a_restore_changed(table: mw.Table) -> None:
    table.checkpoint("then")
    with table.writer() as writer:
        writer.upsert(pa.table({"id": [2, 3], "n": [1.0, 1.0]}))
    after = table.change_offsets()
    result = table.restore("then")
    assert result.rows == 2
    changes = table.changes(after=after).read_all().select(["id", "_change"]).to_pylist()
    assert {one["id"]: one["_change"] for one in changes} == {2: "upsert", 3: "delete"}
    table.close()


def test_columns_are_those_of_now(table: mw.Table) -> None:
    with table.writer() as writer:
        writer.upsert(pa.table({"id": [1], "n": [1.5]}))
    table.checkpoint("then")
    table.rename_column("n", "m")
    table.drop_columns("v")
    table.add_columns([pa.field("new", pa.int8())])
    with table.writer() as writer:
        writer.upsert(pa.table({"id": [1, 2], "m": [7.0, 7.0], "new": pa.array([1, 2], pa.int8())}))
    table.restore("then")
    assert state_of(table) == {
        1: {"m": 1.5, "s": None, "new": None},
        2: {"m": None, "s": None, "new": None},
    }
    table.close()


def test_writes_of_others_meanwhile_are_compared_again(
    table: mw.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    table.checkpoint("then")
    read = restoring._Difference._all

    def later(difference: Any) -> Any:
        found = read(difference)
        if not written:
            written.append(
                table.insert(pa.Table.from_pylist([{"id": 1, "n": 8.0}], SCHEMA), SCHEMA)
            )
        return found

    written: list[mw.WriteResult] = []
    with table.writer() as writer:
        writer.upsert(pa.table({"id": [1], "n": [7.0]}))
        monkeypatch.setattr(restoring._Difference, "_all", later)
        table.restore("then")
    assert [result.rows for result in written] == [1]
    assert state_of(table)[1]["n"] is None


@pytest.mark.filterwarnings("ignore::memwal_sql.UnrecordedVersionWarning")
def test_a_version_without_a_record_is_refused(table: mw.Table) -> None:
    version = table.version
    with pytest.raises(mw.InvalidCallError, match="no record of its regions"):
        table.restore(version)
    with pytest.raises(mw.InvalidCallError, match="give a version"):
        table.restore()
    with pytest.raises(mw.InvalidCallError, match="reads version"):
        table.as_of(version).restore(version)


def test_tags_are_lance_s_and_name_states(table: mw.Table) -> None:
    version = table.snapshot_regions()
    assert table.tags.create("v1") == version
    with table.writer() as writer:
        writer.upsert(pa.table({"id": [9]}))
    assert table.tags.list() == {"v1": version} and list(table.tags) == ["v1"]
    assert table.tags.version("v1") == lance.dataset(table.uri, version="v1").version == version
    assert table.as_of("v1").count_rows() == mw.open_table(table.uri, "v1").count_rows() == 2
    ctx = datafusion.SessionContext()
    mw.register(ctx, "t", table)
    then = mw.sql(ctx, "SELECT count(*) AS n FROM t VERSION AS OF 'v1'").to_pylist()
    assert then == [{"n": 2}]
    lance.dataset(table.uri).tags.create("theirs", 1)
    assert table.tags.list() == {"theirs": 1, "v1": version}
    table.checkpoint("held")
    assert "held" not in str(table.tags)
    found = mw.sql(ctx, "SELECT kind, name, version FROM t$snapshots").to_pylist()
    assert [(one["kind"], one["name"]) for one in found] == [
        ("checkpoint", "held"),
        ("tag", "theirs"),
        ("tag", "v1"),
    ]
    table.restore("v1")
    assert table.count_rows() == 2
    table.tags.delete("v1")
    for call in (
        lambda: table.tags.delete("v1"),
        lambda: table.tags.create("theirs", version),
        lambda: table.tags.create("x", 10_000),
        lambda: table.tags.create("", version),
        lambda: table.as_of("v1"),
    ):
        with pytest.raises(mw.InvalidCallError):
            call()
    table.close()


def test_history_and_files_are_what_is_there(table: mw.Table) -> None:
    table.merge()
    with table.writer() as writer:
        writer.upsert(pa.table({"id": [5]}))
        writer.flush()
        writer.upsert(pa.table({"id": [6]}))
        ctx = datafusion.SessionContext()
        mw.register(ctx, "t", table)
        history = ctx.sql("SELECT * FROM t$history").to_pylist()
        assert [one["version"] for one in history] == list(range(1, table.version + 1))
        assert history[-1]["base_rows"] == 2 and history[-1]["recorded_regions"] == 1
        assert history[-1]["operation"] in ("create_index", "update")
        files = ctx.sql("SELECT kind, path FROM t$files").to_pylist()
        assert {one["kind"] for one in files} == {"base", "generation", "wal"}
        (entry,) = [one["path"] for one in files if one["kind"] == "wal"]
        for one in files:
            with open(f"{table.uri}/{one['path']}", "rb") as file:
                assert file.read(1)
        assert entry.endswith(".arrow")
    table.create_index("n", "BTREE")
    assert table.history().to_pylist()[-1]["operation"] == "create_index"
