"""One file over HTTP, resumed where it broke off.

Received bytes lie next to the file as `.part`, with the server's validator next to that as `.etag`;
the file gets its name when size and sha256 are right. Requests go through the session of
huggingface_hub, which follows the proxies of the environment and sends credentials to their own
host alone. Its `hf_hub_download` is not used: it discards what a run that was stopped had received.
"""

import math
import os
import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import httpx2
from huggingface_hub import get_session, set_client_factory

from cosyserve.engines.engine_cache import sha256_of
from cosyserve.errors import ModelError, SettingsError
from tools.model.fetch.wanted_files import SizeAndHash

SILENCE = 30.0
"""Seconds without a byte after which a connection counts as broken."""
_CONTENT_RANGE = re.compile(r"bytes (\d+)-\d+/(\d+)")
_LONGEST_WAIT = 60.0
_PASSING = {408, 425, 429, 500, 502, 503, 504}


class WebError(ModelError):
    """A request that failed. status: the HTTP status, None when no answer came. passing: another
    try may succeed. wait: seconds that the server asked for.
    """

    def __init__(self, where: str, error: httpx2.HTTPError) -> None:
        self.status: int | None = None
        self.wait: float | None = None
        self.reason = str(error) or type(error).__name__
        response: httpx2.Response | None = getattr(error, "response", None)
        if response is not None:
            self.status, wait = response.status_code, response.headers.get("Retry-After", "")
            advice = {
                401: "it asks for a token: set HF_TOKEN, or MODELSCOPE_API_TOKEN for ModelScope",
                403: "access is refused: accept the model's terms on its page, or set a token that may read it",
                404: "no such file, repository or revision there",
                407: "the proxy asks for credentials: put them into HTTPS_PROXY",
            }.get(self.status, response.reason_phrase)
            self.passing, self.wait = self.status in _PASSING, float(wait) if wait.isdecimal() else None
            self.reason = f"HTTP {self.status}, {advice}"
        elif "CERTIFICATE_VERIFY_FAILED" in self.reason:
            self.passing = False
            self.reason += "; for a proxy with an authority of its own set SSL_CERT_FILE"
        else:
            self.passing = not isinstance(error, httpx2.UnsupportedProtocol)
            broken = "no connection" if isinstance(error, httpx2.ConnectError) else "the connection broke"
            self.reason = f"{broken}: {self.reason}"
        super().__init__(f"{where}: {self.reason}")


def stay_encrypted(response: httpx2.Response) -> None:
    """Refuse a redirect from https to http. Raises ModelError."""
    following = response.headers.get("Location", "")
    if response.url.scheme == "https" and following.lower().startswith("http:"):
        raise ModelError(f"{response.url}: redirects to the unencrypted {following}")


def _limit_silence(request: httpx2.Request) -> None:
    """Some calls of huggingface_hub turn the time limit off."""
    request.extensions["timeout"] = httpx2.Timeout(SILENCE).as_dict()


def _client() -> httpx2.Client:
    try:
        hooks: dict[str, list[Callable[..., None]]] = {"request": [_limit_silence], "response": [stay_encrypted]}
        return httpx2.Client(follow_redirects=True, event_hooks=hooks)
    except (ImportError, ValueError) as error:  # of a proxy in the environment
        raise SettingsError(f"no connection can be made with the proxies of the environment: {error}") from error


set_client_factory(_client)


@dataclass
class Transfer:
    """Fetches files. tries: how often in a row a connection may bring nothing new. pause: waits
    between them, in seconds. on_trouble: called with the reason for another try.
    """

    tries: int = 5
    pause: Callable[[float], None] = time.sleep
    on_trouble: Callable[[str], None] = field(default=lambda line: None)

    def fetch(
        self, url: str, headers: dict[str, str], path: Path, known: SizeAndHash, on_bytes: Callable[[int], None]
    ) -> SizeAndHash:
        """Make `path`; returns size and sha256 of what came. on_bytes: called with the number of
        bytes that came; a negative number takes back what has to come again. Raises WebError when
        it cannot be had, ModelError when it is not what `known` says.
        """
        part = _Part(path, on_bytes)
        if known.sha256 is None and part.validator is None:
            part.discard()  # nothing would say whether two halves belong together
        on_bytes(part.size)
        resumed = part.size > 0
        self._complete(url, headers, part, known)
        if resumed and not known.admits(facts_of(part.data)):
            # Parts of two versions, or a part that was damaged: once from the start, before
            # anything is blamed.
            self.on_trouble(f"{path.name}: what was resumed does not fit, from the start")
            part.discard()
            self._complete(url, headers, part, known)
        part.tag.unlink(missing_ok=True)
        return finish(part.data, path, known, url)

    def _complete(self, url: str, headers: dict[str, str], part: "_Part", known: SizeAndHash) -> None:
        # Against the most there ever was: what is fetched again, because it had to be thrown away,
        # is nothing new.
        fruitless, most = 0, part.size
        while True:
            try:
                return _once(url, headers, part, known)
            except httpx2.HTTPError as error:
                trouble = WebError(url, error)
            if not trouble.passing:
                raise trouble
            fruitless = 0 if part.size > most else fruitless + 1
            most = max(most, part.size)
            if fruitless >= self.tries:
                raise ModelError(
                    f"{url}: given up after {self.tries} tries that brought nothing: {trouble.reason}"
                ) from trouble
            wait = min(_LONGEST_WAIT, trouble.wait if trouble.wait is not None else 2.0**fruitless)
            self.on_trouble(f"{part.data.name}: {trouble.reason}; again in {wait:.0f} s, from byte {part.size}")
            self.pause(wait)


class _Part:
    """The unfinished file and the validator of its server."""

    def __init__(self, path: Path, on_bytes: Callable[[int], None]) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.data, self.tag, self._on_bytes = part_of(path), path.with_name(path.name + ".etag"), on_bytes

    @property
    def size(self) -> int:
        return self.data.stat().st_size if self.data.exists() else 0

    @property
    def validator(self) -> str | None:
        return self.tag.read_text(encoding="utf-8") if self.tag.exists() else None

    def receive(self, response: httpx2.Response, most: float) -> None:
        """Append the answer, under the server's validator; a weak one does not promise equal
        bytes. Raises ModelError, with all discarded, for more than `most` bytes in total.
        """
        self.tag.unlink(missing_ok=True)
        if response.headers.get("ETag", "").startswith('"'):
            self.tag.write_text(response.headers["ETag"], encoding="utf-8")
        with self.data.open("ab") as stream:
            for data in response.iter_raw():
                self._on_bytes(stream.write(data))
                if stream.tell() > most:
                    self.discard()
                    raise ModelError(f"{response.url}: more than the {most} bytes that the file has")

    def discard(self) -> None:
        self._on_bytes(-self.size)
        self.data.unlink(missing_ok=True)
        self.tag.unlink(missing_ok=True)


def _once(url: str, headers: dict[str, str], part: _Part, known: SizeAndHash) -> None:
    """One connection, which completes the part. Raises httpx2.HTTPError where it does not, and
    ModelError when the server has another size than `known`.
    """
    start, asked = part.size, {**headers, "Accept-Encoding": "identity"}
    if start:
        asked |= {"Range": f"bytes={start}-"} | ({"If-Range": part.validator} if part.validator else {})
    with get_session().stream("GET", url, headers=asked, timeout=SILENCE) as response:
        place = response.headers.get("Content-Range", "")
        if response.status_code == 416 and place == f"bytes */{start}":
            return  # all of it had arrived before
        ranged = _CONTENT_RANGE.fullmatch(place) if response.status_code == 206 else None
        if response.status_code == 416 or (response.status_code == 206 and (not ranged or int(ranged[1]) != start)):
            part.discard()
            raise httpx2.RemoteProtocolError(f"asked for bytes from {start}, the server sends {place or 'no range'}")
        response.raise_for_status()
        if not ranged:
            part.discard()
        total = int(ranged[2] if ranged else response.headers.get("Content-Length", -1))
        if known.size is not None and total not in (-1, known.size):
            raise ModelError(f"{url}: the server has {total} bytes, expected are {known.size}")
        part.receive(response, math.inf if known.size is None else known.size)
        if total not in (-1, part.size):
            raise httpx2.RemoteProtocolError(f"{part.size} of {total} bytes have come")


def part_of(path: Path) -> Path:
    """The unfinished file."""
    return path.with_name(path.name + ".part")


def facts_of(path: Path) -> SizeAndHash:
    """Of a file on the disk."""
    return SizeAndHash(path.stat().st_size, sha256_of(path))


def finish(part: Path, path: Path, known: SizeAndHash, source: object) -> SizeAndHash:
    """Give `part` its name; returns what it is. Raises ModelError, with `part` removed, when it is
    not what `known` says.
    """
    received = facts_of(part)
    if not known.admits(received):
        part.unlink()
        raise ModelError(f"{path}: {source} sent {received}, expected are {known}")
    with part.open("rb") as stream:
        os.fsync(stream.fileno())
    part.replace(path)
    return received
