"""A look at a region: what a reader asks of the store before it says that it knows all."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import islice

from memwal_sql.storage.objects.concurrent import ReadWindow, ask_remote
from memwal_sql.storage.region.manifest import RegionManifest
from memwal_sql.storage.region.versions import RegionManifests

# Those of many regions together would take longer than they are trusted.
_MOST_LOOKS = 32
Question = Callable[[], bool]


class Looks:
    """The looks at one region: which manifest the last one was about that has ended and found no
    newer one, and when it began."""

    def __init__(self, manifests: RegionManifests, clock: Callable[[], float]) -> None:
        self.manifests = manifests
        self.remote = manifests.remote
        self.clock = clock
        self._last = 0, 0.0

    def note(self, version: int, began: float) -> None:
        """Note a look that began then, or a manifest that was found to be the newest since then."""
        self._last = max(self._last, (version, began))

    def since(self, version: int) -> float:
        """When the last look at a manifest began; long ago if there was none."""
        return self._last[1] if self._last[0] == version else float("-inf")


class Look:
    """Asks whether a manifest is still the newest and, given `goes_on`, whether the log does.

    Of what is new one answer tells. That nothing is new takes all of them (protocol rules 8, 15):
    no entry at the next position, no manifest n + 1, and n is still there, as otherwise both were
    collected. On a local disk they are asked for in this order, which makes them true together.

    On an object store they are asked for side by side, and may be answered in any order. Then "no n
    + 1" can be from before its commit, and "no entry" from after the collection of one that it has
    flushed; or "n is there" from before it was collected, and "no n + 1" from after that. What
    rules both out is that a collector waits for `ReadWindow.seconds` between reading the manifests
    that it goes by and deleting manifests or entries, and that a look counts only if it has ended
    less than that after the look before it began (`is_sure`), which had found nothing newer than n
    and had ended before this one began. For suppose that it misses something. Either n + 1 was
    committed after the look before began: then nothing that goes by n + 1 is deleted until this
    look has ended, and one of its answers tells. Or n + 1 was there when the look before began. As
    that did not tell, n + 1 was deleted by then, and n before it: this look does not find n.
    """

    def __init__(
        self,
        looks: Looks,
        manifest: RegionManifest,
        goes_on: tuple[int, Question] | None = None,
        *,
        in_order: bool = False,
    ) -> None:
        """`in_order` has them asked one after the other on an object store too, which takes longer
        and needs no clock: for a store that is too slow for two looks within that time."""
        self.manifest = manifest
        self.position = 0 if goes_on is None else goes_on[0]
        self._looks = looks
        exists, number = looks.manifests.exists, manifest.version
        probes = [partial(exists, number + 1), partial(exists, number)]
        self.questions: Sequence[Question] = probes if goes_on is None else [goes_on[1], *probes]
        self.log_goes_on = False
        self._is_newest: bool | None = None
        self._in_order = in_order or not looks.remote
        self.is_sure = self._in_order
        if looks.remote:
            self._since, self._began = looks.since(number), looks.clock()

    def answered(self, answers: Sequence[bool]) -> None:
        """Take the answers to `questions`, asked one after the other on a local disk."""
        *goes_on, new, exists = answers
        self._is_newest, self.log_goes_on = exists and not new, any(goes_on)
        looks = self._looks
        if looks.remote:
            self.is_sure = self._in_order or looks.clock() - self._since < ReadWindow.seconds
            if self._is_newest:
                looks.note(self.manifest.version, self._began)

    def newer(self) -> RegionManifest | None:
        """The newest manifest if it is newer; then it was read in order. Asks `questions` where
        they have no answers yet."""
        if self._is_newest is None:
            self.answered(ask_remote(not self._in_order, self.questions))
        if self._is_newest:
            return None
        newer_manifest = self._looks.manifests.newer(self.manifest)
        self.is_sure = True  # as that was asked in order, and after the log
        if self._looks.remote:
            self._looks.note((newer_manifest or self.manifest).version, self._began)
        return newer_manifest

    def latest(self) -> RegionManifest:
        """The newest manifest, looking again where this was not sure, and then in order."""
        look = self
        newer = look.newer()
        for in_order in (False, True):
            if newer is None and not look.is_sure:
                look = Look(self._looks, self.manifest, in_order=in_order)
                newer = look.newer()
        return newer or self.manifest


def ask_all(looks: Iterable[Look]) -> None:
    """Ask the questions of all looks side by side."""
    pending = iter(looks)
    while some := list(islice(pending, _MOST_LOOKS)):
        answers = iter(ask_remote(True, [question for look in some for question in look.questions]))
        for look in some:
            look.answered(list(islice(answers, len(look.questions))))
