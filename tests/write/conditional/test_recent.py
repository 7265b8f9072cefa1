"""The keys that a region got after each of several cuts, against a list of all writes."""

from random import Random

import pyarrow as pa

from memwal_sql.write.conditional.recent import Cut, RecentWrites
from tests.each import each

KEYS = range(8)


def write(keys: list[int]) -> pa.RecordBatch:
    return pa.record_batch({"id": pa.array(keys, pa.int64()), "n": pa.array(keys, pa.int64())})


@each("seed", range(10))
def test_each_cut_has_what_was_written_after_it(seed: int) -> None:
    random, recent = Random(seed), RecentWrites(["id"])
    writes: list[list[int]] = []
    cuts: list[Cut] = []
    for _ in range(100):
        match random.choice(["open", "forget", "write", "write"]):
            case "open":
                cuts.append(recent.open(len(writes)))
            case "forget" if cuts:
                cuts.pop(random.randrange(len(cuts)))
            case "write":
                writes.append(random.sample(KEYS, random.randint(1, 3)))
                recent.add(len(writes), write(writes[-1]))
        asked = set(random.sample(KEYS, 4))
        for cut in cuts:
            after = writes[cut.ticket :]
            assert recent.moved(cut) is bool(after)
            assert recent.written(cut, asked) == asked & {key for keys in after for key in keys}
