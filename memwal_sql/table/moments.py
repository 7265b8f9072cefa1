"""Which past state of a table a caller asks for."""

from datetime import datetime

from memwal_sql.errors import InvalidCallError
from memwal_sql.storage.decoding import LARGEST


def check_moment(
    version: int | str | None, timestamp: datetime | str | None, checkpoint: str | None
) -> None:
    """Raise InvalidCallError for an invalid version, and for more than one of the three."""
    if version is not None and (isinstance(version, bool) or not isinstance(version, int | str)):
        raise InvalidCallError(
            f"version={version!r} must be the number of a base table version, or a tag"
        )
    if isinstance(version, int) and not 1 <= version <= LARGEST:
        raise InvalidCallError(f"version={version}: versions are numbered from 1")
    arguments = {"version": version, "timestamp": timestamp, "checkpoint": checkpoint}
    if sum(value is not None for value in arguments.values()) > 1:
        raise InvalidCallError(f"give one of version, timestamp and checkpoint, not {arguments}")
