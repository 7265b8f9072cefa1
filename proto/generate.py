"""Generate `memwal_sql/storage/proto_gen/` from the .proto files beside this script.

python proto/generate.py            write the modules
python proto/generate.py --check    fail when the committed modules differ
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from grpc_tools import protoc

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
# Also the sources' path as protobuf registers it: a bare name could collide with another library.
PACKAGE = "memwal_sql/storage/proto_gen"


def generate(root: Path) -> None:
    """Write one `_pb2.py` and one `_pb2.pyi` a source file into `PACKAGE` below `root`."""
    sources = sorted(f"{PACKAGE}/{path.name}" for path in HERE.glob("*.proto"))
    include = Path(protoc.__file__).parent / "_proto"
    status = protoc.main(
        [
            "protoc",
            f"--proto_path={PACKAGE}={HERE}",
            f"--proto_path={include}",
            f"--python_out={root}",
            f"--pyi_out={root}",
            *sources,
        ]
    )
    if status != 0:
        raise SystemExit(f"protoc failed with status {status}")


def differing(root: Path) -> list[str]:
    """Names of the generated files below `root` that differ from the committed ones."""
    return [
        path.name
        for path in sorted((root / PACKAGE).iterdir())
        if not (ROOT / PACKAGE / path.name).is_file()
        or (ROOT / PACKAGE / path.name).read_bytes() != path.read_bytes()
    ]


def main() -> None:
    """Generate, or compare with what is committed."""
    if "--check" not in sys.argv[1:]:
        generate(ROOT)
        return
    with tempfile.TemporaryDirectory() as folder:
        generate(Path(folder))
        stale = differing(Path(folder))
    if stale:
        raise SystemExit(f"run `python proto/generate.py`: {', '.join(stale)} differ")


if __name__ == "__main__":
    main()
