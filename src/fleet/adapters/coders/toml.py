"""Values as TOML, for CLIs that are configured in it."""

from __future__ import annotations

import json
from collections.abc import Sequence


def toml_value(value: str | Sequence[str]) -> str:
    """A TOML string, or an array of them. JSON's escapes are TOML's, but for DEL and for surrogate pairs."""
    if not isinstance(value, str):
        return f"[{', '.join(map(toml_value, value))}]"
    # Half a pair (a byte of a path that is no UTF-8) has no form in TOML at all.
    storable = value.encode("utf-8", "replace").decode()
    return json.dumps(storable, ensure_ascii=False).replace("\x7f", "\\u007f")
