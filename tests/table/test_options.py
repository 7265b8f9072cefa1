"""Options are typed, so that an editor knows them, and these types say what is taken."""

from __future__ import annotations

import inspect
from dataclasses import fields
from typing import get_type_hints

import memwal_sql as mw
from memwal_sql.create import Opening
from memwal_sql.index.kinds import IndexParameters, TextParameters, VectorParameters
from memwal_sql.search.options import HybridOptions, TextOptions, VectorOptions
from memwal_sql.search.request import FUSION_OPTIONS
from memwal_sql.storage.region.manifest import RegionManifest
from memwal_sql.storage.region.versions import ManifestChanges
from memwal_sql.write.options import WriterArguments, WriterOptions


def test_the_arguments_of_a_writer_are_its_options() -> None:
    hints = get_type_hints(WriterOptions)
    assert get_type_hints(WriterArguments) == {
        one.name: hints[one.name] for one in fields(WriterOptions)
    }


def test_what_register_takes_for_opening_is_what_open_table_takes() -> None:
    parameters = list(inspect.signature(mw.open_table).parameters)
    assert list(Opening.__annotations__) == parameters[1:]


def test_a_hybrid_search_takes_the_options_of_both_and_of_fusion() -> None:
    both = {**VectorOptions.__annotations__, **TextOptions.__annotations__}
    assert set(HybridOptions.__annotations__) == {*both, *FUSION_OPTIONS}


def test_an_index_takes_the_parameters_of_vectors_and_of_texts() -> None:
    both = {**VectorParameters.__annotations__, **TextParameters.__annotations__}
    assert set(IndexParameters.__annotations__) == set(both)


def test_the_changes_of_a_manifest_are_fields_of_it() -> None:
    fields_of_it = get_type_hints(RegionManifest)
    assert get_type_hints(ManifestChanges).items() <= fields_of_it.items()


def test_no_method_takes_options_that_nobody_knows() -> None:
    for name, method in inspect.getmembers(mw.Table, inspect.isfunction):
        untyped = [
            one.name
            for one in inspect.signature(method).parameters.values()
            if one.kind is one.VAR_KEYWORD and "Unpack" not in str(one.annotation)
        ]
        assert untyped == [], name
