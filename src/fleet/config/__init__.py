"""Settings: defaults < user's file < project's file < environment, each value with its origin.

Every setting is declared once, in `settings.py`. Reading, checking, the names of environment
variables, `fleet config show` and the test of the documentation all follow from that.
"""

from __future__ import annotations

from fleet.config.files import (
    line_of,
    locked,
    parse_toml,
    project_file,
    read_file,
    replace_file,
    require_plain,
    user_file,
)
from fleet.config.loading import check_text, load
from fleet.config.setting_types import Value, without_password
from fleet.config.settings import CODER_SETTINGS, SETTINGS, Setting, Settings, find_setting

__all__ = [
    "CODER_SETTINGS",
    "SETTINGS",
    "Setting",
    "Settings",
    "Value",
    "check_text",
    "find_setting",
    "line_of",
    "load",
    "locked",
    "parse_toml",
    "project_file",
    "read_file",
    "replace_file",
    "require_plain",
    "user_file",
    "without_password",
]
