"""Branches with files on them, made without a checkout: tests need many."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path
from shlex import quote

from tests.support import git


def branch_off(repository: Path, branch: str, files: Mapping[str, str], *, base: str = "main") -> str:
    """Commit files on a new branch; return the commit."""
    head = git(repository, "rev-parse", base)
    told = [f"commit refs/heads/{branch}\ncommitter T <t@localhost> 1700000000 +0000\n".encode()]
    told += [_data(f"Work on {branch}"), f"from {head}\n".encode()]
    for name, text in files.items():
        path = name.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
        told += [f'M 100644 inline "{path}"\n'.encode(errors="surrogateescape"), _data(text)]
    subprocess.run(["git", "fast-import", "--quiet"], cwd=repository, input=b"".join(told), check=True)
    return git(repository, "rev-parse", f"refs/heads/{branch}")


def edited_meanwhile(repository: Path, folder: Path) -> str:
    """Return a gate that says yes, and while which, the first time, somebody edits a file."""
    file, once = quote(str(repository / "README.md")), quote(str(folder / "edited"))
    return f"if mkdir {once}; then echo being edited > {file}; fi"


def _data(text: str) -> bytes:
    body = text.encode()
    return f"data {len(body)}\n".encode() + body + b"\n"
