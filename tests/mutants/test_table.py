"""The table of mutants is true of the code and of the tests as they are."""

from __future__ import annotations

import ast

from tests.mutants.table import ROOT, mutants


def test_each_mutant_applies_and_its_tests_exist() -> None:
    faults = []
    for name, mutant in mutants().items():
        changed = mutant.changed
        if changed is None:
            faults.append(f"{name}: {mutant.file} does not have its text once")
        elif mutant.old == mutant.new:
            faults.append(f"{name} changes nothing")
        else:
            ast.parse(changed, f"{name} in {mutant.file}")
        for test in mutant.tests:
            path, _, function = test.partition("::")
            file = ROOT / "tests" / path
            if not file.is_file() or f"def {function.partition('[')[0]}" not in file.read_text():
                faults.append(f"{name}: there is no tests/{test}")
    assert faults == []
