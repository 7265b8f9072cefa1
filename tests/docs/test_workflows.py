"""The workflows on a server run what `.ci/run` runs, by targets that exist."""

from __future__ import annotations

import re

from tests.docs.pages import page

CHECKS = page(".github/workflows/checks.yml")


def test_each_part_of_a_change_s_checks_is_a_job() -> None:
    (parts,) = re.findall(r"part: \[(.*)\]", CHECKS)
    jobs = {*parts.split(", "), *re.findall(r"run: make ([\w-]+)$", CHECKS, re.MULTILINE)}
    required = set(re.findall(r"^ *make (\w+)$", page(".ci/run"), re.MULTILINE))
    assert required == {"check", "test", "spec"}
    assert required <= jobs <= set(re.findall(r"^([\w-]+):", page("Makefile"), re.MULTILINE))


def test_the_native_library_is_linted_where_it_changed() -> None:
    lints = page(".github/workflows/native.yml")
    assert re.findall(r"paths: (.*)", lints) == ['["native/**"]'] * 2
    assert re.findall(r"run: (make .*)", lints) == ["make clippy"]
    assert "-D warnings" in page("Makefile")


def test_wheels_are_built_on_each_kind_of_machine() -> None:
    wheels = page(".github/workflows/wheels.yml")
    machines = re.findall(r"- runner: (\w+).*\n +target: (\w+)", wheels)
    assert machines == [("ubuntu", "x86_64"), ("ubuntu", "aarch64"), ("macos", "aarch64")]
