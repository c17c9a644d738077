"""A planted key is in no log, trace, error or list of processes, whatever happens to its request;
and each call leaves one line that says who used what, without text.
"""

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import grpc
import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from cosyserve import telemetry
from cosyserve.client import AsyncClient
from cosyserve.errors import LimitReached, Unauthenticated
from cosyserve.foreign import cosyvoice_pb2, cosyvoice_pb2_grpc, riva_tts_pb2, riva_tts_pb2_grpc
from cosyserve.v1 import info_pb2, info_pb2_grpc, synthesis_pb2
from tests.stacks.calls import all_of, refusal, until
from tests.stacks.gateway_server import gateway
from tests.stacks.key_holders import key_holder, keys_of
from tests.stacks.scripted_stages import Stack, stack
from tests.stacks.up_process import Up, run_cosyserve

PLANTED, WRONG = key_holder("alice", tenant="clinic", limits={"concurrent": 1}), key_holder("stranger")
SECRET = "confidential words"
Lines = Callable[[], list[dict[str, Any]]]


@pytest.fixture
async def guarded() -> AsyncIterator[Stack]:
    async with stack(keys=keys_of([PLANTED])) as running:
        yield running


@pytest.fixture
def audited(caplog: pytest.LogCaptureFixture) -> Lines:
    caplog.set_level(logging.DEBUG)
    return lambda: [json.loads(each.getMessage()) for each in caplog.records if each.name == "cosyserve.audit"]


async def test_each_call_is_one_line_with_what_it_used(guarded: Stack, audited: Lines) -> None:
    address = f"127.0.0.1:{guarded.orchestrator.port}"
    async with AsyncClient(address, PLANTED.secret) as client:
        await client.synthesize(SECRET, sentence_pause_milliseconds=0).read()
        await client.voices()
        async with client.streaming_synthesize() as speech:
            for word in SECRET.split():
                await speech.write(word + " ")
            await speech.finish()
            await speech.read()
        with pytest.raises(Unauthenticated):
            await client.with_key(WRONG.secret).voices()
        await refusal(
            guarded.stub.Synthesize(
                synthesis_pb2.SynthesizeRequest(text="word", speed=9), metadata=PLANTED.metadata
            ).read(),
            grpc.StatusCode.INVALID_ARGUMENT,
        )
    await until(lambda: len(audited()) >= 5)
    first, second, third, fourth, fifth = audited()
    assert (first["key"], first["tenant"], first["method"], first["status"]) == ("alice", "clinic", "Synthesize", "OK")
    assert (first["characters"], first["audio_seconds"] > 1) == (len(SECRET), True)
    assert (second["method"], second["characters"], second["audio_seconds"]) == ("ListVoices", 0, 0)
    assert (third["method"], third["characters"]) == ("StreamingSynthesize", len(SECRET) + 1)
    assert {name: fourth[name] for name in ("method", "status")} == {
        "method": "ListVoices",
        "status": "UNAUTHENTICATED",
    }
    assert "key" not in fourth
    used = fifth["since_start"]
    assert (used["requests"], used["characters"]) == (4, 2 * len(SECRET) + 1)
    assert used["audio_seconds"] == pytest.approx(first["audio_seconds"] + third["audio_seconds"], abs=0.01)
    assert (fifth["status"], fifth["audio_seconds"]) == ("INVALID_ARGUMENT", 0)


async def test_calls_of_other_servers_clients_are_lines_and_count(guarded: Stack, audited: Lines) -> None:
    """With the service in front: which of the methods of this name it was."""
    riva: Any = riva_tts_pb2_grpc.RivaSpeechSynthesisStub(guarded.channel)
    cosyvoice: Any = cosyvoice_pb2_grpc.CosyVoiceStub(guarded.channel)
    request = riva_tts_pb2.SynthesizeSpeechRequest(text=SECRET, sample_rate_hz=24_000)
    sft = cosyvoice_pb2.Request(sft_request=cosyvoice_pb2.sftRequest(tts_text=SECRET))
    key = {"metadata": PLANTED.metadata}
    whole = (await riva.Synthesize(request, **key)).audio
    parts = await all_of(riva.SynthesizeOnline(iter([request]), **key))
    assert await all_of(cosyvoice.Inference(sft, **key))
    assert (await riva.GetRivaSynthesisConfig(riva_tts_pb2.RivaSynthesisConfigRequest(), **key)).model_config
    await until(lambda: len(audited()) >= 4)
    lines = audited()
    assert [(line["method"], line["key"], line["characters"]) for line in lines] == [
        ("RivaSpeechSynthesis/Synthesize", "alice", len(SECRET)),
        ("RivaSpeechSynthesis/SynthesizeOnline", "alice", len(SECRET)),
        ("CosyVoice/Inference", "alice", len(SECRET)),
        ("RivaSpeechSynthesis/GetRivaSynthesisConfig", "alice", 0),
    ]
    sent = [len(whole), sum(len(part.audio) for part in parts)]
    assert [line["audio_seconds"] for line in lines[:2]] == [pytest.approx(size / 48_000, abs=0.01) for size in sent]
    assert (lines[2]["audio_seconds"] > 1, lines[3]["audio_seconds"]) == (True, 0)


async def test_the_limits_of_a_key_hold_for_other_servers_clients() -> None:
    limited = key_holder("alice", limits={"characters_per_day": len(SECRET)})
    async with stack(keys=keys_of([limited])) as running:
        riva: Any = riva_tts_pb2_grpc.RivaSpeechSynthesisStub(running.channel)
        cosyvoice: Any = cosyvoice_pb2_grpc.CosyVoiceStub(running.channel)
        request = riva_tts_pb2.SynthesizeSpeechRequest(text=SECRET, sample_rate_hz=24_000)
        sft = cosyvoice_pb2.Request(sft_request=cosyvoice_pb2.sftRequest(tts_text=SECRET))
        key = {"metadata": limited.metadata}
        assert await all_of(riva.SynthesizeOnline(iter([request]), **key))
        for refused in (
            riva.Synthesize(request, **key),
            riva.SynthesizeOnline(iter([request]), **key).read(),
            cosyvoice.Inference(sft, **key).read(),
        ):
            await refusal(refused, grpc.StatusCode.RESOURCE_EXHAUSTED, "characters a day are used")


async def test_a_warm_up_counts_as_a_request() -> None:
    limited = key_holder("alice", limits={"requests_per_minute": 1})
    async with stack(keys=keys_of([limited])) as running:
        info: Any = info_pb2_grpc.InfoServiceStub(running.channel)
        await info.WarmUp(info_pb2.WarmUpRequest(), metadata=limited.metadata)
        again = info.WarmUp(info_pb2.WarmUpRequest(), metadata=limited.metadata)
        await refusal(again, grpc.StatusCode.RESOURCE_EXHAUSTED, "requests a minute are used")


async def test_a_caller_that_hangs_up_and_one_over_its_limit(guarded: Stack, audited: Lines) -> None:
    hanging = asyncio.Event()

    async def wait(*_: Any) -> None:
        await hanging.wait()

    guarded.scripts["token2wav"][0].decode = wait
    async with AsyncClient(f"127.0.0.1:{guarded.orchestrator.port}", PLANTED.secret) as client:
        speaking = asyncio.create_task(client.synthesize("word").read())
        await until(lambda: guarded.scripts["token2wav"][0].active)
        with pytest.raises(LimitReached, match=r"key alice .* 1 of 1 requests at once") as caught:
            await client.synthesize("word").read()
        assert caught.value.retry_after
        speaking.cancel()
        await asyncio.wait((speaking,))
        await until(lambda: [line["status"] for line in audited()] == ["RESOURCE_EXHAUSTED", "CANCELLED"])
        hanging.set()
        assert await client.synthesize("word").read()


async def test_the_key_is_in_no_log_trace_or_error(
    guarded: Stack, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Requests that succeed, are refused and fail within, over gRPC and through the gateway, where
    the key is in every place that it may be in.
    """
    caplog.set_level(logging.DEBUG)
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(telemetry, "tracer", provider.get_tracer("test"))

    async def fail(*_: Any) -> None:
        raise RuntimeError("an engine broke")

    said = []
    async with gateway(f"127.0.0.1:{guarded.orchestrator.port}") as served:
        for broken in (None, fail):
            guarded.scripts["token2wav"][0].decode = broken
            for holder in (PLANTED, WRONG):
                for headers, address in (
                    (holder.headers, "/v1/audio/speech"),
                    ({"xi-api-key": holder.secret}, "/v1/text-to-speech/anna"),
                    ({"x-api-key": holder.secret}, "/inference_sft"),
                    ({}, f"/v1/audio/speech?api_key={holder.secret}"),
                    (holder.headers, "/v1/audio/voices/nobody"),
                    (holder.headers, f"/{holder.secret}"),
                ):
                    body = {"input": "word", "text": "word", "voice": "anna"}
                    answer = await served.http.post(address, headers=headers, json=body)
                    said.append(str(answer.headers) + (answer.text if answer.status_code != 200 else ""))
                call = guarded.stub.Synthesize(synthesis_pb2.SynthesizeRequest(text="word"), metadata=holder.metadata)
                try:
                    await call.read()
                except grpc.aio.AioRpcError as error:
                    said.append(str(error))
    spans = [f"{span.name} {dict(span.attributes or {})} {span.events}" for span in exporter.get_finished_spans()]
    assert len(spans) > 10
    # httpx writes the addresses that it asks for, as a client.
    logged = [each.getMessage() for each in caplog.records if not each.name.startswith("httpx")]
    assert logged
    for holder in (PLANTED, WRONG):
        for text in (*logged, *spans, *said):
            assert holder.secret not in text
            assert holder.record.sha256 not in text


def test_the_key_is_in_no_list_of_processes_nor_in_the_log_of_up(tmp_path: Path) -> None:
    keys, key = tmp_path / "keys.json", tmp_path / "key"
    made = run_cosyserve("keys", "add", "alice", "--keys", str(keys))
    assert made.returncode == 0, made.stderr
    key.write_text(made.stdout)
    secret = made.stdout.strip()
    up = Up("--keys", str(keys), "--http", "127.0.0.1:0", environ={"COSYSERVE_API_KEY": "csk-of-the-shell"})
    try:
        say = ("say", "Yes.", "--output", str(tmp_path / "x.wav"), "--server", up.address)
        refused = run_cosyserve(*say)
        assert refused.returncode == 1
        assert "UNAUTHENTICATED" in refused.stderr
        assert "--api-key-file FILE" in refused.stderr
        by_file, by_variable = (
            run_cosyserve(*say, "--api-key-file", str(key)),
            run_cosyserve(*say, COSYSERVE_API_KEY=secret),
        )
        for spoken in (by_file, by_variable):
            assert spoken.returncode == 0, spoken.stderr
            assert secret not in spoken.stdout + spoken.stderr
        children = [child for child in Path("/proc").glob("[0-9]*/stat") if _parent(child) == up.process.pid]
        assert len(children) == 5
        for child in children:
            folder = child.parent
            assert secret not in (folder / "cmdline").read_text()
            environment = (folder / "environ").read_text()
            assert secret not in environment
            assert "csk-of-the-shell" not in environment
    finally:
        up.end()
    assert any('"key": "alice"' in line for line in up.lines)
    assert not [line for line in up.lines if secret in line]


def _parent(stat: Path) -> int:
    try:
        return int(stat.read_text().rpartition(")")[2].split()[1])
    except OSError:
        return -1
