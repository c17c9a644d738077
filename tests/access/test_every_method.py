"""Every method of every service on the public port, read off reflection, without a key, with a
wrong one and with one that has expired: none is served, and health is open.
"""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf import descriptor_pb2
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from cosyserve.foreign import riva_tts_pb2, riva_tts_pb2_grpc
from cosyserve.v1 import info_pb2, info_pb2_grpc, synthesis_pb2, synthesis_pb2_grpc
from tests.stacks.calls import refusal
from tests.stacks.key_holders import key_holder, keys_of
from tests.stacks.scripted_stages import Stack, stack

GOOD, EXPIRED = key_holder("alice"), key_holder("bob", expires="2020-01-01T00:00:00Z")
WRONG = key_holder("stranger")
HEALTH = "grpc.health.v1.Health"
RIVA_METHODS = ("Synthesize", "SynthesizeOnline", "GetRivaSynthesisConfig")
PRESENTED = {
    "none": (),
    "another scheme": (("authorization", "Basic YWxpY2U6c2VjcmV0"),),
    "empty": (("authorization", "Bearer "),),
    "wrong": WRONG.metadata,
    "wrong, as ElevenLabs sends it": (("xi-api-key", WRONG.secret),),
    "expired": EXPIRED.metadata,
    "the hash in place of the key": (("x-api-key", GOOD.record.sha256),),
    "two keys": (*GOOD.metadata, ("xi-api-key", WRONG.secret)),
}


@pytest.fixture
async def guarded() -> AsyncIterator[Stack]:
    async with stack(keys=keys_of((GOOD, EXPIRED))) as running:
        yield running


async def _asked(running: Stack, **request: str) -> reflection_pb2.ServerReflectionResponse:
    stub = reflection_pb2_grpc.ServerReflectionStub(running.channel)
    call = stub.ServerReflectionInfo(metadata=GOOD.metadata)
    await call.write(reflection_pb2.ServerReflectionRequest(**request))
    await call.done_writing()
    return await call.read()


async def _methods(running: Stack) -> list[str]:
    """The full names of all methods on the port, health apart."""
    found = []
    for service in (await _asked(running, list_services="")).list_services_response.service:
        if service.name == HEALTH:
            continue
        answer = await _asked(running, file_containing_symbol=service.name)
        for data in answer.file_descriptor_response.file_descriptor_proto:
            file = descriptor_pb2.FileDescriptorProto.FromString(data)
            for each in file.service:
                if f"{file.package}.{each.name}" == service.name:
                    found += [f"/{service.name}/{method.name}" for method in each.method]
    return found


async def test_no_method_is_served_without_a_valid_key(guarded: Stack) -> None:
    methods = await _methods(guarded)
    assert {"/cosyserve.v1.SynthesisService/Synthesize", "/cosyserve.v1.InfoService/GetInfo"} <= set(methods)
    riva = {f"/nvidia.riva.tts.RivaSpeechSynthesis/{name}" for name in RIVA_METHODS}
    assert riva | {"/cosyvoice.CosyVoice/Inference"} <= set(methods)
    assert len(methods) >= 16
    for name, metadata in PRESENTED.items():
        for method in [*methods, "/cosyserve.v1.SynthesisService/NotThere", "/a.B/C"]:
            call = guarded.channel.stream_stream(method)(metadata=metadata)
            error = await refusal(call.read(), grpc.StatusCode.UNAUTHENTICATED)
            said = error.details() or ""
            for holder in (GOOD, EXPIRED, WRONG):
                assert holder.secret not in said, (name, method)
                assert holder.record.sha256 not in said, (name, method)


async def test_it_is_refused_before_its_message_has_come(guarded: Stack) -> None:
    """A call that never sends one is answered."""
    call = guarded.stub.StreamingSynthesize(metadata=WRONG.metadata)
    await refusal(call.read(), grpc.StatusCode.UNAUTHENTICATED, "not valid")
    assert not guarded.scripts["frontend"][0].calls


async def test_what_is_missing_is_said(guarded: Stack) -> None:
    request = synthesis_pb2.ListVoicesRequest()
    for metadata, said in (
        ((), "no API key came"),
        (PRESENTED["another scheme"], "no API key came"),
        (EXPIRED.metadata, "the API key bob has expired"),
        (PRESENTED["two keys"], "2 different API keys"),
        ((("authorization", f"Bearer {'x' * 4097}"),), "1 to 4096"),
    ):
        await refusal(guarded.stub.ListVoices(request, metadata=metadata), grpc.StatusCode.UNAUTHENTICATED, said)


@pytest.mark.parametrize(
    "metadata",
    [
        GOOD.metadata,
        (("authorization", f"bearer {GOOD.secret}"),),
        (("xi-api-key", GOOD.secret),),
        (("x-api-key", GOOD.secret),),
        (*GOOD.metadata, ("xi-api-key", GOOD.secret)),
        # As Riva's clients send it over TLS: of the connection, and of the call.
        (*GOOD.metadata, *GOOD.metadata),
    ],
)
async def test_a_valid_key_is_served(guarded: Stack, metadata: tuple[tuple[str, str], ...]) -> None:
    voices = await guarded.stub.ListVoices(synthesis_pb2.ListVoicesRequest(), metadata=metadata)
    assert [voice.id for voice in voices.voices] == ["anna"]
    stub: Any = riva_tts_pb2_grpc.RivaSpeechSynthesisStub(guarded.channel)
    listed = await stub.GetRivaSynthesisConfig(riva_tts_pb2.RivaSynthesisConfigRequest(), metadata=metadata)
    (config,) = listed.model_config
    assert config.parameters["subvoices"] == "anna:0"


async def test_the_socket_for_this_host_wants_a_key_too(tmp_path: Path) -> None:
    """TLS and client certificates are what it is without."""
    socket = f"unix:{tmp_path}/orchestrator"
    async with stack(keys=keys_of([GOOD]), local_listen=socket), grpc.aio.insecure_channel(socket) as channel:
        stub: Any = synthesis_pb2_grpc.SynthesisServiceStub(channel)
        request = synthesis_pb2.ListVoicesRequest()
        for metadata in (None, WRONG.metadata):
            await refusal(stub.ListVoices(request, metadata=metadata), grpc.StatusCode.UNAUTHENTICATED)
        assert (await stub.ListVoices(request, metadata=GOOD.metadata)).voices


async def test_health_needs_no_key_and_reflection_does_unless_it_is_open(guarded: Stack) -> None:
    async def health(running: Stack) -> int:
        request = health_pb2.HealthCheckRequest()
        return (await health_pb2_grpc.HealthStub(running.channel).Check(request)).status

    async def listed(running: Stack) -> object:
        call = reflection_pb2_grpc.ServerReflectionStub(running.channel).ServerReflectionInfo()
        await call.write(reflection_pb2.ServerReflectionRequest(list_services=""))
        return await call.read()

    assert await health(guarded) == health_pb2.HealthCheckResponse.SERVING
    with pytest.raises(grpc.aio.AioRpcError):
        await listed(guarded)
    async with stack(keys=keys_of([GOOD]), open_reflection=True) as running:
        assert await listed(running)
        await refusal(
            info_pb2_grpc.InfoServiceStub(running.channel).GetInfo(info_pb2.GetInfoRequest()),
            grpc.StatusCode.UNAUTHENTICATED,
        )


async def test_without_keys_any_key_is_ignored() -> None:
    """As clients of OpenAI's API send some word to a server that wants none."""
    async with stack() as running:
        for metadata in PRESENTED.values():
            voices = await running.stub.ListVoices(synthesis_pb2.ListVoicesRequest(), metadata=metadata)
            assert voices.voices
