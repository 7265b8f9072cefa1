"""The generated modules say what the .proto files say, whatever protobuf is installed."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet
from grpc_tools import protoc

from tests.each import each

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = "memwal_sql/storage/proto_gen"
NAMES = sorted(path.stem for path in (ROOT / "proto").glob("*.proto"))


def test_every_generated_module_has_a_source() -> None:
    modules = {path.stem.removesuffix("_pb2") for path in (ROOT / PACKAGE).glob("*_pb2.py")}
    assert modules == set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_a_module_describes_the_messages_of_its_source(name: str, tmp_path: Path) -> None:
    source = f"{PACKAGE}/{name}.proto"
    output = tmp_path / "set"
    folders = (f"{PACKAGE}={ROOT / 'proto'}", Path(protoc.__file__).parent / "_proto")
    arguments = ["protoc", *(f"--proto_path={folder}" for folder in folders)]
    assert protoc.main([*arguments, f"--descriptor_set_out={output}", source]) == 0
    (wanted,) = FileDescriptorSet.FromString(output.read_bytes()).file
    for message in wanted.message_type:
        _drop_json_names(message)
    module = importlib.import_module(f"{PACKAGE.replace('/', '.')}.{name}_pb2")
    assert FileDescriptorProto.FromString(module.DESCRIPTOR.serialized_pb) == wanted


def _drop_json_names(message: object) -> None:
    """What the compiler derives and modules leave out."""
    for field in message.field:  # type: ignore[attr-defined]
        field.ClearField("json_name")
    for inner in message.nested_type:  # type: ignore[attr-defined]
        _drop_json_names(inner)


@each("name", NAMES)
def test_a_module_refuses_no_later_version_of_protobuf(name: str) -> None:
    source = (ROOT / PACKAGE / f"{name}_pb2.py").read_text(encoding="utf-8")
    assert "runtime_version" not in source
