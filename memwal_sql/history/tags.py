"""Names of base versions."""

from __future__ import annotations

from collections.abc import Iterator

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

    def __init__(self, context: TableContext) -> None:
        self._context = context

    def create(self, name: str, version: int) -> None:
        """Give a base version a name; `table.snapshot_regions()` returns one to name. Raises
        InvalidCallError for a name that is taken or can't be one, and for an unknown version."""
        if not isinstance(name, str) or is_checkpoint_tag(name):
            raise InvalidCallError(f"name={name!r} can't be that of a tag")
        self._context.check_writes()
        if name in self.list():
            raise InvalidCallError(f"there is a tag {name!r} already: delete it first")
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

    def list(self) -> dict[str, int]:
        """The versions by name."""
        tags = tags_in(self._context, latest_dataset(self._context))
        return {name: int(tag["version"]) for name, tag in tags.items()}

    def delete(self, name: str) -> None:
        """Let go of a name. Raises InvalidCallError for an unknown one."""
        self._context.check_writes()
        self.version(name)
        with lance_errors(BASE_NAME, self._context.uri):
            latest_dataset(self._context).tags.delete(name)

    def version(self, name: str) -> int:
        """The version of a name. Raises InvalidCallError for an unknown one."""
        tags = self.list()
        if name not in tags:
            raise InvalidCallError(
                f"{self._context.uri} has no tag {name!r}; it has {sorted(tags)}"
            )
        return tags[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.list())

    def __repr__(self) -> str:
        return f"Tags({self.list()})"
