"""The table of models and mutants agrees with the modules, and the pages with the table."""

from __future__ import annotations

import re

from spec.table import CONFIGURATIONS, FOLDER, breaks, module_text
from tests.docs.pages import page


def test_every_configuration_and_every_module_is_checked() -> None:
    assert set(CONFIGURATIONS) == {path.stem for path in FOLDER.glob("*.cfg")}
    checked = "".join(module_text(each.module) for each in CONFIGURATIONS.values())
    modules = [path.stem for path in FOLDER.glob("*.tla")]
    assert [name for name in modules if f" MODULE {name} " not in checked] == []


def test_every_mutant_of_a_module_is_in_the_table() -> None:
    tabled: dict[str, set[str]] = {}
    for configuration in CONFIGURATIONS.values():
        tabled.setdefault(configuration.module, set()).update(configuration.mutants)
    assert tabled == {module: breaks(module) for module in tabled}


def test_what_a_mutant_fails_is_checked_without_it() -> None:
    faults = []
    for name, configuration in CONFIGURATIONS.items():
        text = (FOLDER / f"{name}.cfg").read_text()
        checked = set(" ".join(re.findall(r"(?:INVARIANTS|PROPERTY) (.*)", text)).split())
        defined = set(re.findall(r"^(\w+) ==", module_text(configuration.module), re.MULTILINE))
        for mutant, invariant in configuration.mutants.items():
            if invariant not in checked & defined:
                faults.append(f"{name}: {mutant} fails {invariant}, which is not checked")
        if not set(configuration.unpromised) <= defined - checked:
            faults.append(f"{name} does not promise {configuration.unpromised}")
        if "Breaks = {}" not in text:
            faults.append(f"{name}.cfg leaves a rule out")
    assert faults == []


def test_a_mutant_that_a_page_names_is_in_the_table() -> None:
    mutants = {mutant for each in CONFIGURATIONS.values() for mutant in each.mutants}
    lists = re.findall(r"\(mutants? (`\w+`(?:, `\w+`)*)\)", page("ARCHITECTURE.md"))
    rules = re.findall(r"\| (`\w+`(?:, `\w+`)*) \|$", page("spec/README.md"), re.MULTILINE)
    assert lists
    assert rules
    named = {name.strip("`") for names in lists + rules for name in names.split(", ")}
    assert named - mutants == set()
