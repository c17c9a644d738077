"""HTTP for downloads: proxies from the environment, a time limit on silence, and credentials that
stay with the host they are for.
"""

import http.client
import ssl
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import IO, Any
from urllib.parse import urlsplit

_AGENT = "cosyserve"
_PASSING = {408, 425, 429, 500, 502, 503, 504}


class WebError(Exception):
    """A request that failed. status: the HTTP status, None when no answer came. passing: another
    try may succeed. wait: seconds that the server asked for."""

    def __init__(
        self, message: str, status: int | None = None, *, passing: bool = True, wait: float | None = None
    ) -> None:
        super().__init__(message)
        self.status, self.passing, self.wait = status, passing, wait


class Answer:
    """An open answer. status: 200, 206 or 416."""

    def __init__(self, status: int, headers: Mapping[str, str], stream: "IO[bytes] | http.client.HTTPResponse") -> None:
        self.status, self.headers, self._stream = status, headers, stream

    def read(self, most: int) -> bytes:
        """Up to `most` bytes; none at the end, or where the connection broke off. Raises
        WebError.
        """
        try:
            return self._stream.read(most)
        except (OSError, http.client.HTTPException) as error:
            raise WebError(f"the connection broke: {error or type(error).__name__}") from error


class Web:
    """Makes requests. silence: seconds without a byte after which a connection counts as broken."""

    def __init__(self, silence: float = 30.0) -> None:
        self._silence = silence
        self._opener = urllib.request.build_opener(_Redirects())

    @contextmanager
    def get(
        self, url: str, headers: Mapping[str, str], *, start: int = 0, unless_changed: str | None = None
    ) -> Iterator[Answer]:
        """Ask for a file from byte `start`. unless_changed: a validator; with another one the
        server begins again. Raises WebError.
        """
        request = urllib.request.Request(url, headers={"User-Agent": _AGENT, "Accept-Encoding": "identity"})  # noqa: S310
        if urlsplit(url).scheme not in ("http", "https"):
            raise WebError(f"{url}: only http and https are fetched", passing=False)
        for name, value in headers.items():
            request.add_unredirected_header(name, value)
        if start:
            request.add_header("Range", f"bytes={start}-")
            if unless_changed:
                request.add_header("If-Range", unless_changed)
        try:
            response = self._opener.open(request, timeout=self._silence)
        except urllib.error.HTTPError as error:
            if error.code == 416:
                with error:
                    yield Answer(416, dict(error.headers.items()), error)
                return
            with error:
                raise _refusal(url, error) from error
        except (OSError, http.client.HTTPException) as error:  # URLError is an OSError
            raise _unreachable(url, error) from error
        with response:
            yield Answer(response.status, dict(response.headers.items()), response)

    def text(self, url: str, headers: Mapping[str, str], most: int) -> str:
        """A small file as text. Raises WebError."""
        with self.get(url, headers) as answer:
            data = answer.read(most + 1)
        if len(data) > most:
            raise WebError(f"{url}: more than {most} bytes", passing=False)
        return data.decode(errors="replace")


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Keeps credentials on their host, and encryption once it has begun."""

    def redirect_request(
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: Any, newurl: str
    ) -> Any:
        before, after = urlsplit(req.full_url), urlsplit(newurl)
        if before.scheme == "https" and after.scheme != "https":
            raise WebError(f"{req.full_url}: sends on to the unencrypted {newurl}", code, passing=False)
        following = super().redirect_request(req, fp, code, msg, headers, newurl)
        if following is not None and (before.scheme, before.netloc) == (after.scheme, after.netloc):
            for name, value in req.unredirected_hdrs.items():
                following.add_unredirected_header(name, value)
        return following


def _refusal(url: str, error: urllib.error.HTTPError) -> WebError:
    advice = {
        401: "it asks for a token: set HF_TOKEN, or MODELSCOPE_API_TOKEN for ModelScope",
        403: "access is refused: accept the model's terms on its page, or set a token that may read it",
        404: "no such file, repository or revision there",
        407: "the proxy asks for credentials: put them into HTTPS_PROXY",
    }.get(error.code, f"{error.reason}")
    wait = error.headers.get("Retry-After", "")
    passing = error.code in _PASSING
    return WebError(
        f"{url}: HTTP {error.code}, {advice}",
        error.code,
        passing=passing,
        wait=float(wait) if wait.isdecimal() else None,
    )


def _unreachable(url: str, error: Exception) -> WebError:
    reason = getattr(error, "reason", error)
    if isinstance(reason, ssl.SSLCertVerificationError):
        hint = "its certificate is not trusted; for a proxy with its own authority set SSL_CERT_FILE"
        return WebError(f"{url}: {hint} ({reason.verify_message})", passing=False)
    return WebError(f"{url}: no connection: {reason or type(error).__name__}")
