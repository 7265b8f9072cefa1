"""Every configuration of the models, with the mutants that must fail in it.

A mutant is a name in the constant `Breaks` of a module: a rule that the module then leaves out.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

FOLDER = Path(__file__).parent
_BREAK = re.compile(r'"(\w+)" \\(?:not)?in Breaks')
_EXTENDS = re.compile(r"^EXTENDS (.+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Configuration:
    """A `.cfg` file of this folder, checked with `module`.

    Attributes:
        mutants: by name, the invariant or property that fails.
        unpromised: invariants that fail although no rule is left out: the limits of the design.
        constants: by mutant, larger bounds that it needs, or smaller ones that suffice.
        is_long: whether a run takes so long that the JVM's second compiler saves time.
    """

    module: str
    mutants: Mapping[str, str] = field(default_factory=dict)
    unpromised: tuple[str, ...] = ()
    constants: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    is_long: bool = False


CONFIGURATIONS: Mapping[str, Configuration] = {
    "Region": Configuration(
        "Region",
        {
            "noFence": "OwnSees",
            "noRecheck": "Fenced",
            "noNonce": "OneOwner",
            "ackEarly": "AckedStays",
            "goOn": "SeenStays",
            "flushAnyway": "OwnSees",
            "flushAhead": "SeenStays",
            "collectAhead": "SeenStays",
            "collectFences": "AckedStays",
        },
        constants={"goOn": {"MaxPuts": 3}},
    ),
    "RegionReader": Configuration("Region", {"noLook": "Fresh", "noCheckN": "Fresh"}),
    "Txn": Configuration(
        "TxnRead",
        {
            "ackEarly": "AckedStays",
            "noStall": "Fresh",
            "noSettle": "AckedStays",
            "flushUndecided": "Whole",
            "recEarly": "AckedStays",
            "recForget": "AckedStays",
            "noJump": "Atomic",
            "noAgain": "Atomic",
            "noCut": "Atomic",
        },
        constants={
            "noStall": {"MaxClaims": 0},
            "recForget": {"MaxClaims": 1, "MaxFlushes": 1},
            "noJump": {"MaxClaims": 0},
            "noAgain": {"MaxClaims": 0},
        },
        is_long=True,
    ),
    "TxnTwo": Configuration("TxnRead", is_long=True),
    "TxnChain": Configuration("TxnRead"),
    "TxnNative": Configuration("TxnRead", {"cutFences": "Fresh"}, ("Refused", "Atomic")),
    "TxnNew": Configuration(
        "TxnRead",
        {"noList": "Fresh", "noRelist": "Atomic", "firstNoJump": "Atomic", "noStranger": "Atomic"},
    ),
    "TxnHold": Configuration(
        "TxnRead",
        {
            "noHold": "Unmoved",
            "holdNoSettle": "Unmoved",
            "holdNoTxn": "Serial",
            "holdNoCut": "Serial",
        },
    ),
    "TxnDoubt": Configuration("TxnRead", {"noStop": "Atomic"}),
    "Ids": Configuration("Ids", unpromised=("Listed",)),
    "IdsChain": Configuration(
        "Ids",
        {
            "anyPosition": "OwnSees",
            "applyAnyway": "OwnSees",
            "chainCut": "Once",
            "keptById": "Written",
            "forgetInFlight": "OwnSees",
        },
    ),
    "Verdict": Configuration(
        "Verdict",
        {
            "goneCounts": "Refused",
            "noSiblings": "Whole",
            "noManifest": "Whole",
            "dropOpen": "Acked",
            "dropAborted": "Acked",
            "noHanding": "Acked",
        },
        is_long=True,
    ),
    "VerdictLost": Configuration("Verdict", {"noNote": "Kept", "noteLast": "Kept"}, ("Whole",)),
    "Drop": Configuration(
        "Drop",
        {
            "noMark": "Acked",
            "noFence": "Acked",
            "dropOpen": "Acked",
            "handUnwritten": "Acked",
            "deleteFirst": "Acked",
            "leaveLast": "Acked",
            "dropAborted": "Acked",
            "endAnyway": "Acked",
            "noWins": "Acked",
            "putWins": "Acked",
        },
    ),
    "Merge": Configuration(
        "Merge",
        {
            "noFence": "Right",
            "noMark": "Right",
            "noRenew": "Right",
            "noDetails": "Right",
            "onlyChanged": "Right",
            "restoreAnyway": "Right",
        },
    ),
    "Turns": Configuration(
        "Turns",
        {
            "noTenure": "Tenure",
            "noGang": "Tenure",
            "noQuiet": "Moves",
            "noReading": "Tenure",
            "noAge": "BoundedWait",
            "onlyQuiet": "BoundedWait",
        },
    ),
    "Handed": Configuration(
        "Handed",
        {"ackAsked": "Written", "noLook": "Once", "assumeNot": "Once", "askAgain": "Once"},
    ),
}


def module_text(module: str) -> str:
    """A module's text, and that of those modules of this folder which it extends."""
    text = (FOLDER / f"{module}.tla").read_text()
    extended = _EXTENDS.search(text)
    names = extended[1].split(", ") if extended else []
    own = [name for name in names if (FOLDER / f"{name}.tla").exists()]
    return text + "".join(module_text(name) for name in own)


def breaks(module: str) -> set[str]:
    """The mutants that a module knows."""
    return set(_BREAK.findall(module_text(module)))
