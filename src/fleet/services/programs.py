"""Which programs are installed."""

from __future__ import annotations

import os


def is_installed(program: str) -> bool:
    """Tell whether a program of that name would be found and could be run.

    `shutil.which` could tell, too; every launch would wait for all else that is loaded with it.
    """
    folders = [""] if os.sep in program else os.get_exec_path()
    return any(_can_run(os.path.join(folder, program)) for folder in folders)  # noqa: PTH118  as above


def _can_run(path: str) -> bool:
    return os.path.isfile(path) and os.access(path, os.X_OK)  # noqa: PTH113  as above
