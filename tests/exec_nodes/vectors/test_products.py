"""The kernels of all processors give the same numbers: the tests of one file of the crate."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

FILE = Path(__file__).parents[3] / "native" / "src" / "vectors" / "products.rs"


def test_products_are_the_same_on_every_processor(tmp_path: Path) -> None:
    path = os.pathsep.join([os.environ["PATH"], str(Path.home() / ".cargo" / "bin")])
    program = tmp_path / "products"
    build = ["rustc", "--edition=2024", "--test", "-O", "-Adead_code", "-o", program, FILE]
    subprocess.run(build, check=True, env={**os.environ, "PATH": path})
    done = subprocess.run([program], check=True, capture_output=True, text=True)
    assert "1 passed" in done.stdout
