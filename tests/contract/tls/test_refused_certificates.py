"""Who gets through to a port with TLS, and what everybody else is answered: on the orchestrator's
port and on those of the stages, by every method.
"""

import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import grpc
import pytest

from cosyserve.client import AsyncClient
from cosyserve.errors import PermissionDenied, Unauthenticated, Unavailable
from cosyserve.foreign import cosyvoice_pb2, riva_tts_pb2
from cosyserve.metrics import names
from cosyserve.rpc.tls.channels import open_channel
from cosyserve.tls.settings import ClientTls
from cosyserve.v1 import frontend_pb2, info_pb2, llm_pb2, synthesis_pb2, token2wav_pb2
from tests.stacks.certificates import HERE, Authority, Folder
from tests.stacks.every_request import methods
from tests.stacks.key_holders import key_holder, keys_of
from tests.stacks.scripted_stages import expected_audio
from tests.stacks.secured import CALLER, ORCHESTRATOR, STAGE, Secured, health_status, secured, tls_of
from tests.stacks.telemetry.scraping import reader

FILES = {"orchestrator": synthesis_pb2, "frontend": frontend_pb2, "llm": llm_pb2, "token2wav": token2wav_pb2}
FOREIGN = (riva_tts_pb2, cosyvoice_pb2)
"""On the orchestrator's port, too."""
WELCOME = {"orchestrator": CALLER, "frontend": ORCHESTRATOR, "llm": ORCHESTRATOR, "token2wav": ORCHESTRATOR}


@pytest.fixture
async def stack(tmp_path: Path) -> AsyncIterator[Secured]:
    async with secured(tmp_path) as running:
        yield running


Make = Callable[[Secured, Path, str], "ClientTls | None"]


def _plaintext(stack: Secured, path: Path, welcome: str) -> None:
    return None


def _no_certificate(stack: Secured, path: Path, welcome: str) -> ClientTls:
    return ClientTls(stack.folders["caller"].ca)


def _of(*names: str, authority: Authority | None = None, **issued: float) -> Make:
    def make(stack: Secured, path: Path, welcome: str) -> ClientTls:
        pair = (authority or stack.authority).issue(
            [*HERE, *(welcome if name == "welcome" else name for name in names)], **issued
        )
        return tls_of(Folder(path / "other").put(pair, stack.authority.pem))

    return make


def _untrusted_server(stack: Secured, path: Path, welcome: str) -> ClientTls:
    return tls_of(Folder(path / "other").put(stack.authority.issue([*HERE, welcome]), Authority().pem))


def _other_host(stack: Secured, path: Path, welcome: str) -> ClientTls:
    folder = Folder(path / "other").put(stack.authority.issue([*HERE, welcome]), stack.authority.pem)
    return ClientTls(folder.ca, folder.certificate, folder.key, name="elsewhere.example")


def _common_name(stack: Secured, path: Path, welcome: str) -> ClientTls:
    pair = stack.authority.issue(HERE, common_name=welcome)
    return tls_of(Folder(path / "other").put(pair, stack.authority.pem))


CALLERS: dict[str, tuple[Make, str]] = {
    "the right certificate": (_of("welcome"), "SERVING"),
    "plaintext": (_plaintext, "UNAVAILABLE"),
    "no certificate": (_no_certificate, "UNAVAILABLE"),
    "a certificate of another CA": (_of("welcome", authority=Authority("another")), "UNAVAILABLE"),
    "a CA of the same name": (_of("welcome", authority=Authority()), "UNAVAILABLE"),
    "an expired certificate": (_of("welcome", since_days=-3, until_days=-1), "UNAVAILABLE"),
    "a certificate of tomorrow": (_of("welcome", since_days=1, until_days=2), "UNAVAILABLE"),
    "the name of a stage": (_of(STAGE), "PERMISSION_DENIED"),
    "no name": (_of(), "PERMISSION_DENIED"),
    "the name with more behind it": (_of(f"{ORCHESTRATOR}/x", f"{CALLER}/x"), "PERMISSION_DENIED"),
    "the name as common name": (_common_name, "PERMISSION_DENIED"),
    "a server of an unknown CA": (_untrusted_server, "UNAVAILABLE"),
    "a server of another name": (_other_host, "UNAVAILABLE"),
}
"""How a caller presents itself, and what the health of the service is for it."""


@pytest.mark.parametrize("service", FILES)
async def test_who_gets_through(service: str, stack: Secured, tmp_path: Path) -> None:
    running = stack.orchestrator if service == "orchestrator" else stack.stages[service]
    outcome = {
        name: await health_status(f"127.0.0.1:{running.port}", make(stack, tmp_path, WELCOME[service]))
        for name, (make, _) in CALLERS.items()
    }
    assert outcome == {name: status for name, (_, status) in CALLERS.items()}


@pytest.mark.parametrize("service", FILES)
async def test_every_method_refuses_a_certificate_of_another_name(service: str, stack: Secured, tmp_path: Path) -> None:
    running = stack.orchestrator if service == "orchestrator" else stack.stages[service]
    stranger = _of(STAGE)(stack, tmp_path, "")
    files = [FILES[service], info_pb2, *(FOREIGN if service == "orchestrator" else ())]
    described = [each for file in files for each in file.DESCRIPTOR.services_by_name.values()]
    paths = [f"/{method.containing_service.full_name}/{method.name}" for method in methods(described)]
    paths += ["/grpc.health.v1.Health/Check", "/grpc.health.v1.Health/Watch", "/cosyserve.v1.Unknown/Method"]
    paths += ["/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"]
    calls = len(stack.script.calls)
    async with open_channel(f"127.0.0.1:{running.port}", [], stranger) as channel:
        for path in paths:
            unknown = path.startswith("/cosyserve.v1.Unknown/")
            expected = grpc.StatusCode.UNIMPLEMENTED if unknown else grpc.StatusCode.PERMISSION_DENIED
            assert await _refusal(channel, path) is expected, path
    assert len(stack.script.calls) == calls


async def _refusal(channel: grpc.aio.Channel, path: str) -> grpc.StatusCode:
    """Status of a call with an empty message. grpc's client has INTERNAL for a refusal that arrives
    while it still sends: then once more.
    """
    while True:
        call = channel.stream_stream(path)(iter([b""]), timeout=10)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            _ = [response async for response in call]
        if "SendMessageOperation" not in (caught.value.debug_error_string() or ""):
            return caught.value.code()


async def test_the_right_caller_hears_speech(stack: Secured) -> None:
    async with AsyncClient(stack.address, tls=stack.caller) as client:
        await client.connect()
        speech = client.synthesize("one three", sentence_pause_milliseconds=0)
        assert await speech.read() == expected_audio("one three")


async def test_the_metrics_say_when_the_certificates_of_each_way_end(stack: Secured) -> None:
    expiry, now = names.CERTIFICATE_EXPIRY, time.time()
    samples = reader().scrape("orchestrator").samples
    left = {sample.labels["use"]: sample.value - now for sample in samples if sample.name == expiry.prometheus}
    assert left.keys() == set(names.CERTIFICATE_USES)
    assert all(0 < seconds < 366 * 86_400 for seconds in left.values())


async def test_a_caller_is_told_why_it_is_refused(stack: Secured, tmp_path: Path) -> None:
    async with AsyncClient(stack.address, tls=_of(STAGE)(stack, tmp_path, "")) as client:
        with pytest.raises(PermissionDenied, match=f"the client certificate is for .*{STAGE}.*, which may not call"):
            await client.voices()
    async with AsyncClient(stack.address, tls=_untrusted_server(stack, tmp_path, CALLER)) as client:
        with pytest.raises(Unavailable, match="CERTIFICATE_VERIFY_FAILED"):
            await client.connect(2.0)


async def test_where_there_are_keys_the_certificate_and_the_key_are_needed(tmp_path: Path) -> None:
    alice = key_holder("alice")
    async with secured(tmp_path, keys=keys_of([alice])) as stack:
        other = _of(STAGE)(stack, tmp_path, CALLER)
        async with (
            AsyncClient(stack.address, alice.secret, tls=stack.caller) as known,
            AsyncClient(stack.address, alice.secret, tls=other) as stolen,
        ):
            assert await known.voices()
            with pytest.raises(Unauthenticated):
                await known.with_key("").voices()
            for client in (stolen, stolen.with_key("")):
                with pytest.raises(PermissionDenied):
                    await client.voices()
