"""Every file of a folder, so that a test can say that nothing was written."""

from __future__ import annotations

import hashlib
from pathlib import Path


def folder_state(folder: str | Path) -> dict[str, str]:
    """Path to digest of each file below `folder`; empty when the folder is not there."""
    root = Path(folder)
    return {
        str(path.relative_to(root)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(root.rglob("*"))
        if path.is_file()
    }
