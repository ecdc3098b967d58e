"""The version of fleet, which every module may import."""

from __future__ import annotations

__version__ = "0.1.0"
