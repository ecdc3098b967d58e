"""Repositories to work in: copies of one that has something of everything."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

CREDENTIAL = b"KEY=c2VjcmV0LXZhbHVl\n"
_FILES = {
    "readme.md": b"hello\n",
    "a.txt": b"a\nb\nc\n",
    "src/tool.py": b"print(1)\n",
    "deep/er/file.txt": b"deep\n",
    "notes.nb": b"out 123\n",
    "id.c": b"/* $Id$ */\n",
    "win.bat": b"echo\n",
    "u16.u16": "text\n".encode("utf-16"),
    "binary.bin": bytes(range(256)),
    ".gitignore": b"*.log\n.env\nnode_modules/\nbuild/\ndata/\n",
    ".gitattributes": (
        b"*.nb filter=lossy\n*.c ident\n*.bat text eol=crlf\n*.u16 working-tree-encoding=UTF-16\n"
    ),
    ".worktreeinclude": b".env\n",
}
_IDENTITY = ("-c", "user.name=person", "-c", "user.email=person@localhost", "-c", "commit.gpgSign=false")


def git(folder: Path, *words: str) -> str:
    env = {**os.environ, "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_SYSTEM": "/dev/null"}
    done = subprocess.run(("git", *_IDENTITY, *words), cwd=folder, env=env, capture_output=True, check=True)
    return os.fsdecode(done.stdout).strip()


def make_template(folder: Path, object_format: str) -> Path:
    """Make a repository with two branches that are in conflict with each other."""
    top = folder / f"template-{object_format}"
    if top.exists():
        return top
    draft = folder / f"template-{object_format}.new"
    draft.mkdir(parents=True)
    git(draft, "init", "-q", "-b", "main", "--template=", f"--object-format={object_format}")
    for name, content in _FILES.items():
        (draft / name).parent.mkdir(parents=True, exist_ok=True)
        (draft / name).write_bytes(content)
    (draft / "run.sh").write_bytes(b"#!/bin/sh\n")
    (draft / "run.sh").chmod(0o755)
    (draft / "link").symlink_to("readme.md")
    git(draft, "add", "-A")
    git(draft, "commit", "-q", "-m", "start")
    git(draft, "checkout", "-q", "-b", "theirs")
    (draft / "readme.md").write_bytes(b"theirs\n")
    (draft / "extra").write_bytes(b"theirs\n")
    git(draft, "add", "-A")
    git(draft, "commit", "-q", "-m", "theirs")
    git(draft, "checkout", "-q", "main")
    (draft / ".env").write_bytes(CREDENTIAL)
    draft.rename(top)
    return top


def copy_template(template: Path, target: Path) -> Path:
    shutil.copytree(template, target, symlinks=True)
    git(target, "update-index", "-q", "--refresh")
    return target


def has_ref(common: Path, ref: str) -> bool:
    return bool(git(common, "for-each-ref", ref))
