"""An API key: how its secret part is drawn, the hash that is kept in its place, where a client
takes the key from, and how it travels in gRPC metadata.
"""

import hashlib
import os
import re
import secrets
from collections.abc import Mapping
from pathlib import Path

from cosyserve.errors import SettingsError
from cosyserve.settings import API_KEY

PREFIX = "csk-"
"""Begins every key, so that a scan for secrets finds one that was published by mistake."""
LONGEST = 4_096
"""Characters of a credential that are looked at; a JSON Web Token with claims needs a thousand."""
_BYTES = 32
_DIGEST = re.compile(r"[0-9a-f]{64}")
VARIABLE = API_KEY
AUTHORIZATION = "authorization"
BEARER = "Bearer"


def new_secret() -> str:
    """A key of 256 random bits: 47 characters of A-Z a-z 0-9 _ -."""
    return PREFIX + secrets.token_urlsafe(_BYTES)


def digest(secret: str) -> str:
    """SHA-256 in 64 hexadecimal digits.

    A slow hash with a salt protects secrets that can be guessed, such as passwords. A key of 256
    random bits cannot: a thief of its hash would have to try 2^255 keys at any speed. A fast hash
    keeps the check of a request at microseconds.
    """
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()


def is_digest(text: str) -> bool:
    """Whether `text` has the form of `digest`."""
    return bool(_DIGEST.fullmatch(text))


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


def bearer_of(value: str) -> str:
    """The key in the value of an authorization field; empty for another scheme."""
    scheme, _, key = value.strip().partition(" ")
    return key.strip() if scheme.lower() == BEARER.lower() else ""


def metadata_of(key: str) -> list[tuple[str, str]]:
    """gRPC metadata that present `key`; none for an empty one."""
    return [(AUTHORIZATION, f"{BEARER} {key}")] if key else []
