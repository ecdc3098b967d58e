"""The token that a client of a server over HTTP has to know: made once, and kept for its user alone."""

from __future__ import annotations

import os
import secrets
from contextlib import suppress
from pathlib import Path

from fleet.config.files import read_file, replace_file
from fleet.errors import Conflict


def kept_token(file: Path) -> str:
    """Return the token that a file keeps; who comes first makes it.

    Raises `Conflict` if others can read it.
    """
    if not file.exists():  # it is put in place whole and at once, unless somebody else is first
        draft = file.with_name(f".{file.name}.{secrets.token_hex(4)}")
        replace_file(draft, f"{secrets.token_urlsafe(32)}\n".encode(), mode=0o600)
        try:
            with suppress(FileExistsError):
                os.link(draft, file)
        finally:
            draft.unlink()
    token = (read_file(file) or "").strip()
    if not token or file.stat().st_mode & 0o077:
        reason = "others can read it" if token else "it is empty"
        raise Conflict(f"{file} keeps no token: {reason}", hint="delete it, and a new one is made")
    return token
