"""One file over HTTP, carried on where it broke off.

Received bytes lie next to the file as `.part`, with the server's validator next to that; it gets
its name when size and sha256 are right.
"""

import hashlib
import json
import os
import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from cosyserve.errors import ModelError
from tools.model.fetch.http_client import Answer, Web, WebError
from tools.model.fetch.wanted_files import SizeAndHash

_BLOCK = 1 << 20
_CONTENT_RANGE = re.compile(r"bytes (?:(\d+)-(\d+)|\*)/(\d+|\*)")
_LONGEST_WAIT = 60.0


@dataclass
class Transfer:
    """Fetches files. tries: how often in a row a connection may bring nothing new. pause: waits
    between them, in seconds.

    on_bytes: called with the number of bytes that came; a negative number takes back what has to
    come again. on_trouble: called with the reason for another try.
    """

    web: Web
    tries: int = 5
    pause: Callable[[float], None] = time.sleep
    on_bytes: Callable[[int], None] = field(default=lambda count: None)
    on_trouble: Callable[[str], None] = field(default=lambda line: None)

    def fetch(self, url: str, headers: dict[str, str], path: Path, known: SizeAndHash) -> SizeAndHash:
        """Make `path`; returns size and sha256 of what came. Raises ModelError when it cannot be
        had, or is not what `known` says.
        """
        path.parent.mkdir(parents=True, exist_ok=True)
        part = _Part(path)
        resumed = part.size > 0
        self.on_bytes(part.size)
        self._complete(url, headers, part, known)
        received = part.facts()
        if resumed and received != _filled(known, received):
            # Parts of two versions, or a part that was damaged: once from the start, before
            # anything is blamed.
            self.on_trouble(f"{path.name}: what was carried on does not fit, from the start")
            self._again(part)
            self._complete(url, headers, part, known)
            received = part.facts()
        if received != _filled(known, received):
            self._again(part)
            came, wanted = (
                f"{facts.size} bytes with sha256 {facts.sha256}" for facts in (received, _filled(known, received))
            )
            raise ModelError(f"{path}: {url} sent {came}, expected are {wanted}")
        part.finish()
        return received

    def _complete(self, url: str, headers: dict[str, str], part: "_Part", known: SizeAndHash) -> None:
        # Against the most there ever was: what is fetched again, because it had to be thrown away,
        # is nothing new.
        fruitless, most = 0, part.size
        while True:
            try:
                if self._once(url, headers, part, known):
                    return
                trouble: WebError = WebError("the connection broke off")
            except WebError as error:
                trouble = error
            if not trouble.passing:
                raise ModelError(str(trouble)) from trouble
            fruitless = 0 if part.size > most else fruitless + 1
            most = max(most, part.size)
            if fruitless >= self.tries:
                raise ModelError(
                    f"{url}: given up after {self.tries} tries that brought nothing: {trouble}"
                ) from trouble
            wait = min(_LONGEST_WAIT, trouble.wait if trouble.wait is not None else 2.0**fruitless)
            self.on_trouble(f"{part.path.name}: {trouble}; again in {wait:.0f} s, from byte {part.size}")
            self.pause(wait)

    def _once(self, url: str, headers: dict[str, str], part: "_Part", known: SizeAndHash) -> bool:
        """One connection; whether the file is complete with it."""
        start = part.size
        with self.web.get(url, headers, start=start, unless_changed=part.validator) as answer:
            total = self._place(answer, part, start)
            if None not in (total, known.size) and total != known.size:
                raise WebError(f"{url}: the server has {total} bytes, expected are {known.size}", passing=False)
            part.remember(_validator(answer))
            limit = known.size if known.size is not None else total
            while data := answer.read(_BLOCK):
                part.append(data)
                self.on_bytes(len(data))
                if limit is not None and part.size > limit:
                    self._again(part)
                    raise WebError(f"{url}: more than the {limit} bytes that the file has", passing=False)
        return part.size == total if total is not None else True

    def _place(self, answer: Answer, part: "_Part", start: int) -> int | None:
        """The size of the whole, with `part` cut to where the answer begins. Raises WebError when
        it begins elsewhere.
        """
        content_range = _CONTENT_RANGE.fullmatch(_header(answer, "Content-Range") or "")
        if answer.status == 416:
            if content_range and content_range[3] == str(start):
                return start
            self._again(part)
            raise WebError("the server has no such part, from the start")
        length = _header(answer, "Content-Length")
        if answer.status == 206:
            if not content_range or content_range[1] != str(start) or content_range[3] == "*":
                self._again(part)
                raise WebError(
                    f"asked for bytes from {start}, the server sends {_header(answer, 'Content-Range') or 'no range'}"
                )
            return int(content_range[3])
        if start:
            self._again(part)
        return int(length) if length is not None and length.isdecimal() else None

    def _again(self, part: "_Part") -> None:
        self.on_bytes(-part.size)
        part.discard()


class _Part:
    """The unfinished file and what is remembered about its server."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._data = path.with_name(path.name + ".part")
        self._facts = path.with_name(path.name + ".part.json")

    @property
    def size(self) -> int:
        return self._data.stat().st_size if self._data.exists() else 0

    @property
    def validator(self) -> str | None:
        try:
            validator = json.loads(self._facts.read_text(encoding="utf-8"))["validator"]
        except (OSError, ValueError, KeyError, TypeError):
            return None
        return validator if isinstance(validator, str) else None

    def remember(self, validator: str | None) -> None:
        self._facts.write_text(json.dumps({"validator": validator}), encoding="utf-8")

    def append(self, data: bytes) -> None:
        with self._data.open("ab") as stream:
            stream.write(data)

    def facts(self) -> SizeAndHash:
        if not self._data.exists():
            self._data.touch()
        with self._data.open("rb") as stream:
            return SizeAndHash(self.size, hashlib.file_digest(stream, "sha256").hexdigest())

    def discard(self) -> None:
        self._data.unlink(missing_ok=True)
        self._facts.unlink(missing_ok=True)

    def finish(self) -> None:
        with self._data.open("rb") as stream:
            os.fsync(stream.fileno())
        self._data.replace(self.path)
        self._facts.unlink(missing_ok=True)


def _filled(known: SizeAndHash, facts: SizeAndHash) -> SizeAndHash:
    """`known`, with what it does not say taken as found."""
    return SizeAndHash(
        facts.size if known.size is None else known.size, facts.sha256 if known.sha256 is None else known.sha256
    )


def _validator(answer: Answer) -> str | None:
    """A strong ETag; a weak one does not promise equal bytes."""
    tag = _header(answer, "ETag")
    return tag if tag and not tag.startswith("W/") else None


def _header(answer: Answer, name: str) -> str | None:
    return next((value for key, value in answer.headers.items() if key.lower() == name.lower()), None)
