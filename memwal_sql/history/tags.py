"""Names of base versions."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from exec_nodes.lance.errors import BASE_NAME, is_not_found, lance_errors, lance_panics
from memwal_sql.errors import InvalidCallError, MemWalError
from memwal_sql.history.tables import tags_in
from memwal_sql.maintain.checkpoint.records import is_checkpoint_tag
from memwal_sql.maintain.details import latest_dataset
from memwal_sql.state.context import TableContext
from memwal_sql.storage.objects.errors import store_error

_BAD_NAME = "Ref is invalid"


class Tags:
    """The tags of a table, Lance's own, which LanceDB shares: names of base versions.

    A version that has one is not cleaned up, nor are the generations that its record names. It is
    read by `table.as_of(name)`, `open_table(uri, version=name)` and `VERSION AS OF 'name'`.
    """

    def __init__(self, context: TableContext, flushed: Callable[[], int]) -> None:
        """`flushed` gives the version of what is flushed by now."""
        self._context = context
        self._flushed = flushed

    def create(self, name: str, version: int | None = None) -> int:
        """Give a base version a name, by default that of `table.snapshot_regions()`, and return it.
        Raises InvalidCallError for a name that is taken or can't be one, and for an unknown
        version."""
        if not isinstance(name, str) or is_checkpoint_tag(name):
            raise InvalidCallError(f"name={name!r} can't be that of a tag")
        self._context.check_writes()
        if name in self.list():
            raise InvalidCallError(f"there is a tag {name!r} already: delete it first")
        if version is None:
            version = self._flushed()
        try:
            with lance_panics(BASE_NAME, self._context.uri):
                latest_dataset(self._context, for_tags=True).tags.create(name, version)
        except MemWalError:
            raise
        except (ValueError, TypeError, OverflowError) as error:
            raise InvalidCallError(
                f"version {version!r} can't be tagged {name!r}: {error}"
            ) from error
        except (OSError, RuntimeError) as error:
            if is_not_found(error) or _BAD_NAME in str(error):
                raise InvalidCallError(
                    f"version {version!r} can't be tagged {name!r}: {error}"
                ) from error
            raise store_error(f"the tag {name!r} was not made", str(error), str(error)) from error
        return version

    def list(self) -> dict[str, int]:
        """The versions by name."""
        return _versions(self._context)

    def delete(self, name: str) -> None:
        """Let go of a name. Raises InvalidCallError for an unknown one."""
        self._context.check_writes()
        self.version(name)
        with lance_errors(BASE_NAME, self._context.uri):
            latest_dataset(self._context).tags.delete(name)

    def version(self, name: str) -> int:
        """The version of a name. Raises InvalidCallError for an unknown one."""
        return tagged_version(self._context, name)

    def __iter__(self) -> Iterator[str]:
        return iter(self.list())

    def __repr__(self) -> str:
        return f"Tags({self.list()})"


def tagged_version(context: TableContext, name: str) -> int:
    """The version that a tag names. Raises InvalidCallError for an unknown one."""
    tags = _versions(context)
    if name not in tags:
        raise InvalidCallError(f"{context.uri} has no tag {name!r}; it has {sorted(tags)}")
    return tags[name]


def _versions(context: TableContext) -> dict[str, int]:
    tags = tags_in(context, latest_dataset(context))
    return {name: int(tag["version"]) for name, tag in tags.items()}
