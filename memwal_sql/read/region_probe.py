"""Probes of a region: the questions to the store before a read knows that nothing is new."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import islice

from memwal_sql.storage.objects.concurrent import ReadWindow, ask_remote
from memwal_sql.storage.region.manifest import RegionManifest
from memwal_sql.storage.region.versions import RegionManifests

# Probes of more regions together would take longer than their answers count.
_MOST_PROBES = 32
Question = Callable[[], bool]


class RegionProbes:
    """The probes of one region: the manifest of the last one that found no newer manifest, and when
    it began."""

    def __init__(self, manifests: RegionManifests, clock: Callable[[], float]) -> None:
        self.manifests = manifests
        self.remote = manifests.remote
        self.clock = clock
        self._last = 0, 0.0

    def note(self, version: int, began: float) -> None:
        """Note the beginning of a probe that found no newer manifest, or of one that read it."""
        self._last = max(self._last, (version, began))

    def since(self, version: int) -> float:
        """The time at which the last probe of a manifest began; -inf without one."""
        return self._last[1] if self._last[0] == version else float("-inf")


class RegionProbe:
    """Asks whether a manifest is still the newest and, given `goes_on`, whether the log goes on.

    One answer suffices to show that something is new. That nothing is new takes all of them
    (protocol rules 8, 15): no entry at the next position, no manifest n + 1, and n still exists, as
    otherwise both were collected. On a local disk the questions are asked in this order, which
    makes the answers true at one time.

    On an object store they are asked side by side, and answered in any order. Then "no n + 1" can
    be from before its commit, and "no entry" from after the collection of an entry that it has
    flushed; or "n exists" from before its collection, and "no n + 1" from after that. Two rules
    exclude both. A collector waits for `ReadWindow.seconds` between reading manifests and deleting
    manifests or entries by them. And a probe counts only if it ended less than that after the
    previous probe began (`is_sure`), which had found nothing newer than n and had ended before this
    one began. Suppose that it misses something. Either n + 1 was committed after the previous probe
    began: then nothing is deleted because of n + 1 until this probe has ended, and one of its
    answers shows it. Or n + 1 existed when the previous probe began. As that probe did not find it,
    n + 1 was deleted by then, and n before it: this probe does not find n.
    """

    def __init__(
        self,
        probes: RegionProbes,
        manifest: RegionManifest,
        goes_on: tuple[int, Question] | None = None,
        *,
        in_order: bool = False,
    ) -> None:
        """`in_order` asks one question after the other on an object store too. It takes longer and
        needs no clock: for a store that is too slow for two probes within that time."""
        self.manifest = manifest
        self.position = 0 if goes_on is None else goes_on[0]
        self._probes = probes
        exists, number = probes.manifests.exists, manifest.version
        questions = [partial(exists, number + 1), partial(exists, number)]
        self.questions: Sequence[Question] = (
            questions if goes_on is None else [goes_on[1], *questions]
        )
        self.log_goes_on = False
        self._is_newest: bool | None = None
        self._in_order = in_order or not probes.remote
        self.is_sure = self._in_order
        if probes.remote:
            self._since, self._began = probes.since(number), probes.clock()

    def take_answers(self, answers: Sequence[bool]) -> None:
        """Take the answers to `questions`, which are asked in order on a local disk."""
        *goes_on, new, exists = answers
        self._is_newest, self.log_goes_on = exists and not new, any(goes_on)
        probes = self._probes
        if probes.remote:
            self.is_sure = self._in_order or probes.clock() - self._since < ReadWindow.seconds
            if self._is_newest:
                probes.note(self.manifest.version, self._began)

    @property
    def holds(self) -> bool:
        """Whether no newer manifest can have led to deletions yet, as `newer` found none: then all
        that was read since of the log above this one is there."""
        probes = self._probes
        if not probes.remote or self._in_order or not self._is_newest:
            return False
        return probes.clock() - self._since < ReadWindow.seconds

    def newer(self) -> RegionManifest | None:
        """The newest manifest, read in order, if there is a newer one. Asks `questions` unless they
        are answered."""
        if self._is_newest is None:
            self.take_answers(ask_remote(not self._in_order, self.questions))
        if self._is_newest:
            return None
        newer_manifest = self._probes.manifests.newer(self.manifest)
        self.is_sure = True  # manifests are read in order, after the log
        if self._probes.remote:
            self._probes.note((newer_manifest or self.manifest).version, self._began)
        return newer_manifest

    def latest(self) -> RegionManifest:
        """The newest manifest; asks again if this probe is not sure, the last time in order."""
        probe = self
        newer = probe.newer()
        for in_order in (False, True):
            if newer is None and not probe.is_sure:
                probe = RegionProbe(self._probes, self.manifest, in_order=in_order)
                newer = probe.newer()
        return newer or self.manifest


def run_probes(probes: Iterable[RegionProbe]) -> None:
    """Ask the questions of all probes side by side."""
    pending = iter(probes)
    while some := list(islice(pending, _MOST_PROBES)):
        answers = iter(
            ask_remote(True, [question for probe in some for question in probe.questions])
        )
        for probe in some:
            probe.take_answers(list(islice(answers, len(probe.questions))))
