"""What a caller writes is in no log, no span and no metric: a text that occurs nowhere else is put
into every field of every request.
"""

import asyncio
import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from cosyserve import telemetry
from cosyserve.foreign import cosyvoice_pb2, riva_tts_pb2
from cosyserve.metrics import names
from cosyserve.rpc.server import running
from cosyserve.v1 import frontend_pb2, synthesis_pb2, voice_pb2
from services.frontend import __main__ as frontend
from services.frontend.settings import FrontendSettings
from services.llm.backends.fake_backend import FakeBackend
from services.llm.servicer import LlmServicer
from services.llm.settings import LlmSettings
from services.token2wav.decoders.backend import EngineSettings
from services.token2wav.loading import load_backend
from services.token2wav.scheduling.batcher import Batcher
from services.token2wav.scheduling.memory_budget import Limits
from services.token2wav.servicer import Token2WavServicer
from tests.fuzz.upload_seeds import seeds
from tests.stacks.calls import all_of
from tests.stacks.every_request import Put, methods, places, request_of
from tests.stacks.in_process import HERE, orchestrated, serving
from tests.stacks.telemetry.scraping import reader
from tests.stacks.up_process import DEMO

CANARY = "qzcanary"
"""A voice id, a key, a language tag and a word: good wherever a text may be anything of its
form.
"""
WRITTEN = {
    "good": CANARY,
    "bad": f"{CANARY} '<speak>\"\x07 " * 40,
    "document": f'<speak>Hello <sub alias="{CANARY}">there</sub> '
    f'<phoneme ph="{CANARY}">you</phoneme> <{CANARY}/></speak>',
}
DOORS = {
    "SynthesisService": synthesis_pb2.DESCRIPTOR,
    "FrontendService": frontend_pb2.DESCRIPTOR,
    "RivaSpeechSynthesis": riva_tts_pb2.DESCRIPTOR,
    "CosyVoice": cosyvoice_pb2.DESCRIPTOR,
}
SERVICES = [file.services_by_name[name] for name, file in DOORS.items()]
GOOD = seeds()["pcm16.wav"]
_HELLO = {"text": "Hello there."}
_RECORDING = voice_pb2.PromptRecording(audio=GOOD)
_DRAFT = voice_pb2.VoiceDraft(audio=GOOD, provenance="read by the author")
BASES: dict[str, list[dict[str, Any]]] = {
    "Synthesize": [_HELLO, {**_HELLO, "prompt": _RECORDING}],
    "SynthesizeUnary": [_HELLO],
    "StreamingSynthesize": [{"setup": synthesis_pb2.StreamingSynthesizeSetup()}, _HELLO],
    "ConvertVoice": [{"audio": GOOD}],
    "CreateVoice": [{"draft": _DRAFT}],
    "Analyze": [_HELLO],
    "AnalyzeStream": [{"setup": frontend_pb2.AnalyzeSetup()}, _HELLO],
    "ReadRecording": [{"recording": _RECORDING}],
    "ReadSpeech": [{"audio": GOOD}],
    "SynthesizeOnline": [_HELLO],
    "Inference": [{"sft_request": {"tts_text": "Hello there."}}],
}
"""Good requests, by method; of one that streams the messages in order. Of others an empty one."""


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> InMemorySpanExporter:
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(telemetry, "tracer", provider.get_tracer("test"))
    reader()
    return exporter


@pytest.fixture
async def doors(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> AsyncIterator[dict[str, grpc.aio.Channel]]:
    """By service; behind them the bundled model's frontend, with a storage for voices, and the fake
    engines.
    """
    caplog.set_level(logging.DEBUG)
    # At DEBUG grpcio logs while it holds the lock that its finalizers take. One that the garbage
    # collector runs in a thread that is just logging would stop both threads for ever.
    caplog.set_level(logging.INFO, "grpc._cython")
    tokens = FakeBackend(LlmSettings(listen=HERE, backend="fake"))
    sound = load_backend("fake", EngineSettings())
    batcher = Batcher(sound.decoders, Limits(max_streams=32, state_bytes=1 << 30))

    text = FrontendSettings(listen=HERE, model=DEMO, drain_seconds=0.0, voices_url=str(tmp_path), max_voice_makings=32)
    async with (
        running(frontend.SERVICE, text, lambda service: frontend.load(service, text)) as words,
        serving("llm", LlmServicer(tokens)) as llm,
        serving("token2wav", Token2WavServicer(sound.identity, batcher)) as token2wav,
        orchestrated(
            {"frontend": [words], "llm": [llm], "token2wav": [token2wav]},
            max_streams=64,
            max_voice_makings=64,
            warm_voices=8,
        ) as (_, public),
        grpc.aio.insecure_channel(f"127.0.0.1:{words.port}") as inner,
    ):
        yield {name: inner if name == "FrontendService" else public for name in DOORS}
    await tokens.close()
    batcher.close()


def _messages(method: Any, put: Put | None, base: dict[str, Any] | None = None) -> list[Any]:
    kind, bases = request_of(method), BASES.get(method.name, [{}])
    if not method.client_streaming:
        message = kind(**(bases[0] if base is None else base))
        if put is not None:
            put(message)
        return [message]
    sent = [kind(**fields) for fields in bases]
    if put is not None:
        written = kind()
        put(written)
        place = next((at for at, message in enumerate(sent) if _part(message) == _part(written)), None)
        if place is None:
            sent.append(written)
        else:
            put(sent[place])
    return sent


def _part(message: Any) -> str | None:
    """Of a stream whose messages are all of one kind: None."""
    return message.WhichOneof("part") if "part" in message.DESCRIPTOR.oneofs_by_name else None


async def _call(channel: grpc.aio.Channel, method: Any, messages: list[Any]) -> grpc.StatusCode:
    path = f"/{method.containing_service.full_name}/{method.name}"
    shape = f"{'stream' if method.client_streaming else 'unary'}_{'stream' if method.server_streaming else 'unary'}"
    call = getattr(channel, shape)(path, request_serializer=lambda message: message.SerializeToString())
    answer = call(iter(messages) if method.client_streaming else messages[0], timeout=30)
    try:
        await (all_of(answer) if method.server_streaming else answer)
    except grpc.aio.AioRpcError as error:
        return error.code()
    return grpc.StatusCode.OK


async def test_what_a_caller_writes_is_in_no_log_no_span_and_no_metric(
    doors: dict[str, grpc.aio.Channel], spans: InMemorySpanExporter, caplog: pytest.LogCaptureFixture
) -> None:
    found: dict[str, list[grpc.StatusCode]] = {}
    for method in methods(SERVICES):
        channel, kind = doors[method.containing_service.name], request_of(method).DESCRIPTOR
        requests = [_messages(method, None)]
        for text in WRITTEN.values():
            requests += [_messages(method, put) for _, put in places(kind, text)]
        if method.full_name == "cosyserve.v1.SynthesisService.Synthesize":
            requests += [
                _messages(method, put, BASES["Synthesize"][1])
                for name, put in places(kind, CANARY)
                if "prompt." in name
            ]
        found[method.full_name] = await asyncio.gather(*(_call(channel, method, sent) for sent in requests))
    answers = {code for codes in found.values() for code in codes}
    # Good and bad ones were among them, or nothing would be shown here.
    assert {grpc.StatusCode.OK, grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.NOT_FOUND} <= answers
    assert not answers & {grpc.StatusCode.INTERNAL, grpc.StatusCode.UNKNOWN, grpc.StatusCode.DEADLINE_EXCEEDED}, found
    for name in ("SynthesisService.Synthesize", "SynthesisService.CreateVoice", "FrontendService.Analyze"):
        assert {grpc.StatusCode.OK, grpc.StatusCode.INVALID_ARGUMENT} <= set(found[f"cosyserve.v1.{name}"]), found

    told = [span.to_json() for span in spans.get_finished_spans()]
    assert len(told) > sum(map(len, found.values()))
    assert [span for span in told if CANARY in span.lower()] == []
    assert [event.name for span in spans.get_finished_spans() for event in span.events] == []
    failed = [span for span in spans.get_finished_spans() if not span.status.is_ok]
    assert {(span.attributes or {}).get("error.type") for span in failed} >= {"InvalidRequest", "NotFound"}
    assert {span.status.description for span in failed} == {None}

    for channel in doors.values():
        with pytest.raises(grpc.aio.AioRpcError, match="UNIMPLEMENTED"):
            await channel.unary_unary(f"/cosyserve.v1.SynthesisService/{CANARY}")(b"")
    for service in names.SERVICES:
        assert CANARY not in reader().text(service, open_metrics=True).lower(), service
    assert reader().scrape("orchestrator").count(names.REQUESTS, method="other", status="UNIMPLEMENTED") >= 1
    assert reader().scrape("orchestrator").count(names.FIRST_BYTE, method="Synthesize") >= 1
    assert "trace_id=" in reader().text("orchestrator", open_metrics=True)
    assert reader().scrape("frontend").count(names.CACHE_LOOKUPS, cache="recordings") >= 1
    records = [*caplog.get_records("setup"), *caplog.records]
    assert any(record.name.startswith("cosyserve") for record in records)
    assert [
        record for record in records if CANARY in f"{record.getMessage()} {record.args} {record.exc_text}".lower()
    ] == []
    assert [
        f"{record.getMessage()} {record.exc_text}" for record in caplog.records if record.levelno >= logging.ERROR
    ] == []


def test_every_field_that_takes_a_text_is_found() -> None:
    """The fields that a caller's words stand in; the walk over the descriptors is not empty by
    mistake.
    """
    known = {
        "Synthesize": {
            "text",
            "voice",
            "instruction",
            "language_code",
            "engine",
            "pronunciations.key",
            "pronunciations.value",
        }
        | {"prompt.audio", "prompt.transcript", "prompt.language_code"},
        "CreateVoice": {
            "draft.id",
            "draft.metadata.labels.key",
            "draft.metadata.labels.value",
            "draft.transcript",
            "draft.request_id",
        },
        "StreamingSynthesize": {"text", "setup.request.voice", "setup.request.instruction"},
        "UpdateVoice": {"id", "metadata.description", "update_mask.paths"},
    }
    for method in methods([SERVICES[0]]):
        assert known.get(method.name, set()) <= {name for name, _ in places(request_of(method).DESCRIPTOR, "")}
