"""The keys file: JSON with an object for each key, and a hash in place of its secret."""

import json
import os
import secrets
from collections.abc import Callable, Sequence
from pathlib import Path

from cosyserve.errors import SettingsError
from cosyserve.file_lock import waiting_lock
from cosyserve.keys.key_record import KeyRecord, record_of

MOST_BYTES = 16 * 1024 * 1024
"""About 60,000 keys."""
_MODE = 0o600


def parse(text: str, where: str) -> tuple[KeyRecord, ...]:
    """The keys of a file's text. where: names the text in errors. Raises SettingsError, which
    quotes no hash.
    """
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise SettingsError(f"{where} is not JSON: {_position(error)}") from None
    listed = content.get("keys") if isinstance(content, dict) else None
    if not isinstance(listed, list) or set(content) != {"keys"}:
        raise SettingsError(f'{where} is no object of the form {{"keys": [...]}}')
    records = []
    for place, values in enumerate(listed):
        try:
            records.append(record_of(values))
        except (ValueError, TypeError) as error:
            raise SettingsError(f"{where}: keys[{place}]: {error}") from None
    for name in ("id", "sha256"):
        known: dict[str, int] = {}
        for place, record in enumerate(records):
            if (before := known.setdefault(getattr(record, name), place)) != place:
                raise SettingsError(f"{where}: keys[{before}] and keys[{place}] have the same {name}")
    return tuple(records)


def read(path: Path) -> tuple[KeyRecord, ...]:
    """The keys of a file. Raises SettingsError for one that is missing, too large or wrong."""
    try:
        with path.open("rb") as file:
            content = file.read(MOST_BYTES + 1)
        if len(content) > MOST_BYTES:
            raise SettingsError(f"the keys file {path} has more than the {MOST_BYTES} bytes allowed")
        return parse(content.decode(), f"the keys file {path}")
    except OSError as error:
        raise SettingsError(f"the keys file {path} cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise SettingsError(f"the keys file {path} is no UTF-8 text (byte {error.start})") from None


def change(path: Path, new: Callable[[Sequence[KeyRecord]], Sequence[KeyRecord]]) -> None:
    """Replace the keys of a file by what `new` makes of them; without a file there are none. Other
    processes see the old file or the new one, and changes exclude each other. Raises SettingsError,
    OSError, and what `new` raises.
    """
    with waiting_lock(path.with_name(f"{path.name}.lock"), "a change of the keys", lambda _: None):
        records = new(read(path) if path.exists() else ())
        text = json.dumps({"keys": [record.as_dict() for record in records]}, indent=2) + "\n"
        parse(text, f"the keys file {path}")
        temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
        try:
            with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _MODE), "w") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)


def _position(error: Exception) -> str:
    """Where JSON is wrong, without what stands there."""
    return f"line {error.lineno}" if isinstance(error, json.JSONDecodeError) else type(error).__name__
