"""The key that a caller presents: where the client takes it from, and how it travels in gRPC
metadata.
"""

import os
from collections.abc import Mapping
from pathlib import Path

from cosyserve.errors import SettingsError
from cosyserve.keys.secret import LONGEST
from cosyserve.settings import API_KEY

VARIABLE = API_KEY
AUTHORIZATION = "authorization"
BEARER = "Bearer"


def key_of_file(path: Path) -> str:
    """The key in a file, without the blanks and line ends around it. Raises SettingsError."""
    try:
        with path.open("rb") as file:
            content = file.read(LONGEST + 2)
    except OSError as error:
        raise SettingsError(f"the file of the API key {path} cannot be read: {error.strerror or error}") from error
    return checked_key(content.decode("latin-1").strip(), f"the file of the API key {path}")


def key_of_environment(environ: Mapping[str, str] = os.environ) -> str:
    """The value of COSYSERVE_API_KEY; empty without it. Raises SettingsError for one that cannot
    be sent.
    """
    key = environ.get(VARIABLE, "").strip()
    return checked_key(key, VARIABLE) if key else ""


def checked_key(key: str, where: str) -> str:
    """`key`, if a header can carry it. Raises SettingsError, which does not quote it."""
    if not is_presentable(key):
        raise SettingsError(f"{where} holds no API key: 1 to {LONGEST} characters without blanks are expected")
    return key


def is_presentable(key: str) -> bool:
    """Whether a header can carry it: visible ASCII, at most 4096 characters."""
    return 1 <= len(key) <= LONGEST and key.isascii() and key.isprintable() and " " not in key


def metadata_of(key: str) -> list[tuple[str, str]]:
    """gRPC metadata that present `key`; none for an empty one."""
    return [(AUTHORIZATION, f"{BEARER} {key}")] if key else []
