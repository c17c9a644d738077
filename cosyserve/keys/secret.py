"""The secret part of an API key: how it is drawn, and the hash that is kept in its place."""

import hashlib
import re
import secrets

PREFIX = "csk-"
"""Begins every key, so that a scan for secrets finds one that was published by mistake."""
LONGEST = 4_096
"""Characters of a credential that are looked at; a JSON Web Token with claims needs a thousand."""
_BYTES = 32
_DIGEST = re.compile(r"[0-9a-f]{64}")


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
