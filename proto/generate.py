"""Generate `memwal_sql/storage/proto_gen/` from the .proto files beside this script.

python proto/generate.py            write the modules
python proto/generate.py --check    fail when the committed modules differ
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import venv
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
# Also the sources' path as protobuf registers it: a bare name could collide with another library.
PACKAGE = "memwal_sql/storage/proto_gen"
# With protoc 26.1, the last whose modules don't refuse every protobuf but their own major version.
# It needs an older protobuf itself, so it gets an environment of its own.
COMPILER = "grpcio-tools==1.64.3"


def generate(root: Path) -> None:
    """Write one `_pb2.py` and one `_pb2.pyi` a source file into `PACKAGE` below `root`."""
    sources = sorted(f"{PACKAGE}/{path.name}" for path in HERE.glob("*.proto"))
    with tempfile.TemporaryDirectory() as folder:
        venv.create(folder, with_pip=True)
        python = Path(folder) / "bin" / "python"
        subprocess.run([python, "-m", "pip", "install", "--quiet", COMPILER], check=True)
        protoc = [python, "-m", "grpc_tools.protoc", f"--proto_path={PACKAGE}={HERE}"]
        written = [f"--python_out={root}", f"--pyi_out={root}"]
        subprocess.run([*protoc, *written, *sources], check=True)


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
        (Path(folder) / PACKAGE).mkdir(parents=True)
        generate(Path(folder))
        stale = differing(Path(folder))
    if stale:
        raise SystemExit(f"run `python proto/generate.py`: {', '.join(stale)} differ")


if __name__ == "__main__":
    main()
