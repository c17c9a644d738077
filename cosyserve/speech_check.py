"""`python -m cosyserve.speech_check --server HOST:PORT [--http URL]`: exit status 0 if a sentence
is spoken over gRPC, and by the gateway at URL over HTTP, as sound that can be heard and is as long
as its text; else 1 and one line. 2 for wrong usage.

`helm test` runs it in the cluster, with the client and the standard library alone. TLS and key are
those of the other commands: COSYSERVE_TLS_CA and its siblings, --api-key-file.
"""

import argparse
import asyncio
import http.client
import json
import socket
import ssl
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import SplitResult, urlsplit

import numpy as np

from cosyserve.audio.audibility import AUDIBLE_DBFS, samples_above
from cosyserve.client import AsyncClient
from cosyserve.commands.terminal.connection_arguments import add_api_key, api_key
from cosyserve.errors import CosyserveError, SettingsError, Unavailable
from cosyserve.spec import SAMPLE_RATE
from cosyserve.tls.settings import ClientTls

_SEED = 7
_AUDIBLE_SHARE = 0.05
_SHORTEST, _LONGEST = 0.025, 0.5
"""Seconds of speech for a character of text: faster and slower than any language is spoken."""
_SILENCE = 2.0
_MOST_BYTES = 64 << 20


@dataclass(frozen=True)
class Spoken:
    """way: the API. samples: 16-bit at 24 kHz, as bytes."""

    way: str
    samples: bytes

    @property
    def seconds(self) -> float:
        """How long it is."""
        return len(self.samples) / 2 / SAMPLE_RATE

    def fault(self, text: str) -> str:
        """What is wrong with it as speech of `text`; empty: nothing."""
        least, most = _SHORTEST * len(text), _LONGEST * len(text) + _SILENCE
        if len(self.samples) % 2 or not least <= self.seconds <= most:
            return f"{self.way}: {len(self.samples)} bytes, {self.seconds:.2f} s; expected {least:.2f} to {most:.2f} s"
        samples = np.frombuffer(self.samples, dtype="<i2")
        share = len(samples_above(samples, AUDIBLE_DBFS)) / len(samples)
        if share < _AUDIBLE_SHARE:
            return f"{self.way}: {share:.1%} of the samples can be heard, expected {_AUDIBLE_SHARE:.0%} or more"
        return ""


async def over_grpc(server: str, text: str, key: str, tls: ClientTls | None) -> Spoken:
    """Raises CosyserveError as the client does."""
    async with AsyncClient(server, api_key=key, tls=tls) as client:
        return Spoken("gRPC", await client.synthesize(text, seed=_SEED).read())


def over_http(url: SplitResult, text: str, key: str, tls: ClientTls | None, seconds: float) -> Spoken:
    """seconds: longest silence of the gateway. Raises Unavailable with its answer, or without."""
    connection = _connection(url, tls, seconds)
    body = json.dumps({"input": text, "seed": _SEED, "response_format": "pcm"})
    headers = {"content-type": "application/json"} | ({"authorization": f"Bearer {key}"} if key else {})
    try:
        connection.request("POST", f"{url.path.rstrip('/')}/v1/audio/speech", body, headers)
        answer = connection.getresponse()
        content = answer.read(_MOST_BYTES)
    except (OSError, http.client.HTTPException) as error:
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        raise Unavailable(f"{url.geturl()}: {reason}") from error
    finally:
        connection.close()
    if answer.status != 200:
        raise Unavailable(f"{url.geturl()}: HTTP {answer.status}: {content[:300].decode('utf-8', 'replace')}")
    return Spoken("HTTP", content)


def _connection(url: SplitResult, tls: ClientTls | None, seconds: float) -> http.client.HTTPConnection:
    host = url.hostname or ""
    if url.scheme != "https":
        return http.client.HTTPConnection(host, url.port or 80, timeout=seconds)
    tls = tls or ClientTls()
    context = ssl.create_default_context(cafile=tls.ca)
    if tls.certificate is not None:
        context.load_cert_chain(tls.certificate, tls.key)
    connection = http.client.HTTPSConnection(host, url.port or 443, timeout=seconds, context=context)
    if tls.name:
        # The certificate need not have the host of the address, where the client says so.
        connecting = socket.create_connection((host, url.port or 443), timeout=seconds)
        connection.sock = context.wrap_socket(connecting, server_hostname=tls.name)
    return connection


async def check(arguments: argparse.Namespace) -> str:
    """What was heard, in one line. Raises CosyserveError, and Unavailable for speech that is
    none.
    """
    key, tls, text = api_key(arguments), ClientTls.from_environment(), arguments.text
    async with asyncio.timeout(arguments.timeout):
        spoken = [await over_grpc(arguments.server, text, key, tls)]
        if arguments.http:
            url = urlsplit(arguments.http)
            spoken.append(await asyncio.to_thread(over_http, url, text, key, tls, arguments.timeout))
    faults = [fault for each in spoken if (fault := each.fault(text))]
    if faults:
        raise Unavailable("; ".join(faults))
    heard = ", ".join(f"{each.seconds:.2f} s over {each.way}" for each in spoken)
    same = ", the same samples" if len(spoken) > 1 and len({each.samples for each in spoken}) == 1 else ""
    return f"{len(text)} characters: {heard}{same}"


def parser() -> argparse.ArgumentParser:
    """The options."""
    top = argparse.ArgumentParser(prog="cosyserve.speech_check", description="Is a sentence spoken?")
    top.add_argument("--server", default="127.0.0.1:50051", metavar="HOST:PORT", help="gRPC (default: %(default)s)")
    top.add_argument("--http", default="", metavar="URL", help="gateway, such as http://127.0.0.1:8080")
    top.add_argument("--text", default="The quick brown fox jumps over the lazy dog.", help="what to say")
    top.add_argument("--timeout", type=float, default=120.0, metavar="SECONDS", help="of all (default: %(default)s)")
    add_api_key(top)
    return top


def main(given: Sequence[str] | None = None) -> int:
    arguments = parser().parse_args(given)
    if arguments.http and not arguments.http.startswith(("http://", "https://")):
        parser().error(f"--http is {arguments.http!r}, expected http://HOST:PORT or https://HOST:PORT")
    if not arguments.text.strip():
        parser().error("--text is empty")
    try:
        line = asyncio.run(check(arguments))
    except SettingsError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    except (CosyserveError, OSError) as error:
        late = f"no speech within {arguments.timeout:g} s" if isinstance(error, TimeoutError) else str(error)
        sys.stderr.write(f"{late}\n")
        return 1
    sys.stdout.write(f"{line}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
