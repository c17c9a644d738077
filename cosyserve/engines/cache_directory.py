"""The directory for files that can be recreated: compiled kernels, built engines."""

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

VARIABLE = "COSYSERVE_CACHE_DIR"


def cache_directory(environ: Mapping[str, str] = os.environ) -> Path:
    """COSYSERVE_CACHE_DIR, else `cosyserve` in the user's cache directory (XDG_CACHE_HOME, else
    ~/.cache). Absolute; may not exist yet.
    """
    if directory := environ.get(VARIABLE):
        return Path(directory).absolute()
    if home := environ.get("XDG_CACHE_HOME"):
        return Path(home).absolute() / "cosyserve"
    if home := environ.get("HOME"):
        return Path(home).absolute() / ".cache" / "cosyserve"
    # Directly in the temporary directory, whose sticky bit keeps other users from renaming it.
    return Path(tempfile.gettempdir()).absolute() / f"cosyserve-cache-{os.geteuid()}"
