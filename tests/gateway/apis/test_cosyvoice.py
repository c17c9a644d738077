"""CosyVoice's own HTTP API over real sockets and real gRPC: forms by GET and POST, samples and
files, prompts of one request, refusals, callers that hang up, figures.
"""

import asyncio
import io
import wave
from typing import Any

import grpc
import httpx2
import pytest

from cosyserve.client import AsyncClient
from cosyserve.v1 import synthesis_pb2
from services.gateway.speech import encoded_speech
from tests.gateway.conversing import spoken
from tests.pipeline.calling import TEXT, abort_once, all_idle, busy, hang_after_some, hold_back, hook
from tests.stacks.gateway_server import Gateway
from tests.stacks.scripted_stages import Stack, expected_audio

RECORDING = ("prompt_wav", ("prompt_wav", bytes(range(1, 61)), "application/octet-stream"))
"""The scripted frontend makes a speech token of each byte."""


async def ask(served: Gateway, mode: str, *files: Any, method: str = "POST", **fields: Any) -> httpx2.Response:
    data = {"tts_text": TEXT, "seed": "7", **fields}
    return await served.http.request(method, f"/inference_{mode}", data=data, files=list(files) or None)


async def by_grpc(running: Stack, **options: Any) -> bytes:
    async with AsyncClient(f"127.0.0.1:{running.orchestrator.port}") as client:
        return await client.synthesize(TEXT, seed=7, max_sentence_characters=100, **options).read()


@pytest.mark.parametrize("method", ["GET", "POST"])
@pytest.mark.parametrize("stream", ["true", "false"])
async def test_samples_are_those_of_grpc(served: Gateway, running: Stack, method: str, stream: str) -> None:
    """CosyVoice's own client sends its form by GET."""
    response = await ask(served, "sft", method=method, spk_id="anna", stream=stream)
    assert response.status_code == 200, response.text
    assert response.content == await by_grpc(running, voice="anna")
    assert spoken(response.content) == expected_audio(TEXT)
    assert response.headers["content-type"] == "audio/pcm"
    assert response.headers["x-sample-rate"] == "24000"
    assert response.headers["x-synthetic-audio"] == "true"
    assert ("x-rtf" in response.headers) == (stream == "false")


async def test_a_file_is_whole_and_says_how_long_it_took(served: Gateway, running: Stack) -> None:
    response = await ask(served, "sft", spk_id="anna", format="wav")
    expected = await by_grpc(running)
    assert response.headers["content-type"] == "audio/wav"
    assert int(response.headers["content-length"]) == len(response.content) == len(expected) + 44
    with wave.open(io.BytesIO(response.content)) as file:
        assert (file.getframerate(), file.getnchannels(), file.getsampwidth()) == (24_000, 1, 2)
        assert file.readframes(file.getnframes()) == expected
    seconds = float(response.headers["x-processing-time"])
    assert seconds > 0
    assert float(response.headers["x-rtf"]) == pytest.approx(seconds / (len(expected) / 48_000), rel=0.05)


async def test_names_of_cosyvoices_speakers_are_voices(served: Gateway) -> None:
    response = await ask(served, "sft", spk_id="中文女")
    assert (response.status_code, response.headers["x-voice"]) == (200, "anna")


async def test_audio_begins_before_synthesis_ends(served: Gateway, running: Stack) -> None:
    hook(running, "token2wav", hang_after_some)
    data = {"tts_text": TEXT, "spk_id": "anna"}
    async with served.http.stream("POST", "/inference_sft", data=data) as response:
        assert await anext(response.aiter_raw())
    await all_idle(running)


@pytest.mark.parametrize(
    ("mode", "fields", "transcript", "ids", "prompt_mode"),
    [
        ("zero_shot", {"prompt_text": "what is said there"}, "what is said there", 4, "zero_shot"),
        ("cross_lingual", {}, "", 0, "cross_lingual"),
        ("instruct2", {"instruct_text": "speak slowly<|endofprompt|>"}, "", 3, "instruct"),
    ],
)
async def test_a_recording_is_the_voice_of_one_request(
    served: Gateway, running: Stack, mode: str, fields: dict[str, str], transcript: str, ids: int, prompt_mode: Any
) -> None:
    script = running.scripts["frontend"][0]
    response = await ask(served, mode, RECORDING, **fields)
    assert response.status_code == 200, response.text
    assert spoken(response.content) == expected_audio(TEXT)
    assert response.headers["x-voice"].startswith("recording-")
    assert [(prompt.audio, prompt.transcript) for prompt in script.recordings] == [(bytes(range(1, 61)), transcript)]
    assert len(running.scripts["llm"][0].llm_setups[0].prompt_text_ids) == ids
    assert (await served.http.get("/list_voices")).json()["voices"] == ["anna"]


async def test_a_speaker_of_the_server_may_stand_for_the_recording(served: Gateway, running: Stack) -> None:
    response = await ask(served, "instruct2", spk_id="anna", instruct_text="speak slowly")
    older = await ask(served, "instruct", spk_id="anna", instruct_text="speak slowly")
    assert running.scripts["frontend"][0].calls.count("read") == 2
    assert response.content == older.content
    assert spoken(older.content) == expected_audio(TEXT)


async def test_a_model_without_instructions_refuses_them(served: Gateway, running: Stack) -> None:
    async def refuse(context: Any) -> None:
        await context.abort(grpc.StatusCode.FAILED_PRECONDITION, "this model follows no instructions")

    running.scripts["frontend"][0].read = refuse
    response = await ask(served, "instruct2", spk_id="anna", instruct_text="speak slowly")
    assert (response.status_code, response.json()["code"]) == (400, "failed_precondition")
    assert "follows no instructions" in response.json()["detail"]


@pytest.mark.parametrize(
    ("fields", "limit"),
    [({}, 100), ({"max_text_length": "40"}, 40), ({"max_text_length": "40", "enable_smart_split": "false"}, 0)],
)
async def test_the_limit_of_a_sentence_reaches_the_frontend(
    served: Gateway, running: Stack, fields: dict[str, str], limit: int
) -> None:
    assert (await ask(served, "sft", **fields)).status_code == 200
    assert [setup.max_sentence_characters for setup in running.scripts["frontend"][0].text_setups] == [limit]


@pytest.mark.parametrize(
    ("mode", "fields", "status", "field", "words"),
    [
        ("sft", {"tts_text": ""}, 422, "tts_text", "required"),
        ("sft", {"tts_text": "..."}, 422, "tts_text", "nothing to speak"),
        ("sft", {"tts_text": "x" * 20_001}, 422, "tts_text", "allowed are 1 to 20000"),
        ("sft", {"spk_id": "nobody"}, 404, None, "nobody"),
        ("sft", {"spk_id": "x" * 129}, 422, "spk_id", "at most 128"),
        ("sft", {"speed": "9"}, 422, "speed", "allowed are 0.5 to 2.0"),
        ("sft", {"speed": "nan"}, 422, "speed", "allowed are 0.5 to 2.0"),
        ("sft", {"speed": "fast"}, 422, "speed", "fast"),
        ("sft", {"max_text_length": "9"}, 422, "max_text_length", "allowed are 10 to 20000"),
        ("sft", {"seed": "-1"}, 422, "seed", "allowed are 0 to 18446744073709551615"),
        ("sft", {"format": "mp3"}, 422, "format", "'stream' or 'wav'"),
        ("sft", {"stream": "perhaps"}, 422, "stream", "perhaps"),
        ("zero_shot", {}, 422, "prompt_wav", "spk_id"),
        ("zero_shot", {"spk_id": "anna", "prompt_wav": RECORDING}, 422, "prompt_text", "1 to 1000"),
        ("zero_shot", {"prompt_text": "x" * 1_001, "prompt_wav": RECORDING}, 422, "prompt_text", "1000"),
        ("cross_lingual", {"spk_id": "anna", "prompt_wav": RECORDING}, 422, "prompt_wav", "not both"),
        ("cross_lingual", {"prompt_wav": ("prompt_wav", ("x", b"", "audio/wav"))}, 422, "prompt_wav", "1 to 10485760"),
        ("instruct2", {"spk_id": "anna"}, 422, "instruct_text", "1 to 500"),
        ("instruct2", {"spk_id": "anna", "instruct_text": "x" * 501}, 422, "instruct_text", "1 to 500"),
    ],
)
async def test_refusals_name_the_field_and_its_range(
    served: Gateway, running: Stack, mode: str, fields: dict[str, Any], status: int, field: str | None, words: str
) -> None:
    files = [fields[name] for name in fields if name == "prompt_wav"]
    response = await ask(served, mode, *files, **{name: fields[name] for name in fields if name != "prompt_wav"})
    assert response.status_code == status, response.text
    assert running.scripts["llm"][0].llm_setups == []
    detail = response.json()["detail"]
    if field is None:
        assert words in detail
    else:
        assert detail[0]["loc"] == ["body", field]
        assert words in detail[0]["msg"]


async def test_a_recording_that_is_refused_is_the_upload(served: Gateway, running: Stack) -> None:
    async def refuse(context: Any) -> None:
        await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "the recording lasts 0.67 s, allowed 1 to 30 s")

    running.scripts["frontend"][0].read = refuse
    response = await ask(served, "cross_lingual", RECORDING)
    assert response.status_code == 422
    (wrong,) = response.json()["detail"]
    assert (wrong["loc"], wrong["msg"]) == (["body", "prompt_wav"], "prompt_wav lasts 0.67 s, allowed 1 to 30 s")


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        (b"", "application/x-www-form-urlencoded"),
        (b"{}", "application/json"),
        (b"\xff\xfe=%ff&tts_text", "application/x-www-form-urlencoded"),
        (b"--x\r\n", "multipart/form-data"),
        (b"--x\r\nContent-Disposition: form-data; name=tts_text", "multipart/form-data; boundary=x"),
    ],
)
async def test_bodies_of_another_form_are_refused(served: Gateway, running: Stack, content: bytes, kind: str) -> None:
    response = await served.http.post("/inference_sft", content=content, headers={"content-type": kind})
    assert response.status_code in (400, 422), response.text
    assert "detail" in response.json()
    assert running.scripts["llm"][0].llm_setups == []


@pytest.mark.start(max_streams=1)
async def test_one_too_many_is_told_when_to_come_back(served: Gateway, running: Stack) -> None:
    gate = hold_back(running)
    held = asyncio.create_task(ask(served, "sft"))
    await busy(running, "token2wav")
    refused = await ask(served, "sft", format="wav")
    gate.set()
    assert (await held).status_code == 200
    assert (refused.status_code, refused.json()["code"]) == (429, "overloaded")
    assert int(refused.headers["retry-after"]) >= 1


@pytest.mark.parametrize("fields", [{}, {"format": "wav"}])
async def test_a_caller_that_hangs_up_leaves_every_stage_idle(
    served: Gateway, running: Stack, fields: dict[str, str]
) -> None:
    hold_back(running)
    asking = asyncio.create_task(ask(served, "sft", **fields))
    await busy(running, "token2wav")
    asking.cancel()
    await asyncio.wait((asking,))
    await all_idle(running)
    await asyncio.sleep(0)
    assert (await served.http.get("/performance_info")).json()["held_bytes"] == 0


async def test_a_failure_while_a_file_is_made_has_a_status(served: Gateway, running: Stack) -> None:
    hook(running, "token2wav", abort_once(grpc.StatusCode.INTERNAL, "broken", 20 * 960))
    response = await ask(served, "sft", format="wav")
    figures = (await served.http.get("/performance_info")).json()
    assert response.status_code == 500
    assert figures["requests"]["failed"] == 1
    assert figures["held_bytes"] == 0


@pytest.mark.start(settings={"max_held_bytes": 1 << 20})
async def test_what_encoded_speechs_hold_is_bounded(
    served: Gateway, running: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(encoded_speech, "MOST_BYTES", 100_000)
    long = await ask(served, "sft", format="wav")
    assert long.status_code == 400
    assert "100000 bytes" in long.json()["detail"]
    await all_idle(running)
    monkeypatch.setattr(encoded_speech, "MOST_BYTES", 10 << 20)
    too_much = await ask(served, "sft", tts_text=" ".join(["everlasting"] * 12), format="wav")
    assert (too_much.status_code, too_much.json()["code"]) == (429, "overloaded")
    await all_idle(running)
    assert (await ask(served, "sft")).status_code == 200, "a stream holds nothing"


async def test_voices_are_listed(served: Gateway) -> None:
    answer = (await served.http.get("/list_voices")).json()
    assert (answer["code"], answer["voices"], answer["count"]) == (0, ["anna"], 1)
    assert answer["details"] == [{"spk_id": "anna", "name": "anna", "language": "", "is_default": True}]


async def test_warming_speaks_a_sentence_and_says_so(served: Gateway, running: Stack) -> None:
    answer = (await served.http.post("/warmup_trt", data={"sample_text": "one two", "spk_id": "anna"})).json()
    default = await served.http.post("/warmup_trt")
    refused = await served.http.post("/warmup_trt", data={"sample_text": "x" * 201})
    unknown = await served.http.post("/warmup_trt", data={"spk_id": "nobody"})
    assert running.scripts["llm"][0].active == 0
    assert (answer["code"], answer["audio_seconds"]) == (0, len(expected_audio("one two")) / 48_000)
    assert answer["warmup_time"] >= answer["first_audio_seconds"] > 0
    assert "spoken" in answer["note"]
    assert default.json()["audio_seconds"] > 0
    assert refused.status_code == 422
    assert refused.json()["detail"][0]["loc"] == ["body", "sample_text"]
    assert unknown.status_code == 404


async def test_figures_are_those_of_what_was_spoken(served: Gateway, running: Stack) -> None:
    before = (await served.http.get("/performance_info")).json()
    first = await ask(served, "sft")
    await served.http.post("/v1/audio/speech", json={"input": TEXT, "response_format": "pcm"})
    await ask(served, "sft", spk_id="nobody")
    gate = hold_back(running)
    asking = asyncio.create_task(ask(served, "sft"))
    await busy(running, "token2wav")
    during = (await served.http.get("/performance_info")).json()
    gate.set()
    await asking
    after = (await served.http.get("/performance_info")).json()
    assert before["requests"]["total"] == 0
    assert before["first_audio_seconds"] == {"count": 0, "p50": None, "p95": None, "max": None}
    assert during["requests"] == {"total": 4, "in_progress": 1, "complete": 2, "failed": 1, "cancelled": 0}
    assert after["requests"]["complete"] == 3
    assert after["audio_seconds"] == pytest.approx(3 * len(first.content) / 48_000)
    assert after["first_audio_seconds"]["count"] == after["real_time_factor"]["count"] == 3
    assert 0 < after["first_audio_seconds"]["p50"] <= after["first_audio_seconds"]["max"]


async def test_the_prompt_mode_is_that_of_the_endpoint(served: Gateway) -> None:
    """Values of the request itself, as the speech service receives it."""
    seen: list[synthesis_pb2.SynthesizeRequest] = []
    inner = AsyncClient.synthesize

    def synthesize(self: AsyncClient, text: str, **how: Any) -> Any:
        speech = inner(self, text, **how)
        assert isinstance(speech.request, synthesis_pb2.SynthesizeRequest)
        seen.append(speech.request)
        return speech

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(AsyncClient, "synthesize", synthesize)
        for mode, fields in (
            ("sft", {}),
            ("zero_shot", {"prompt_text": "there"}),
            ("cross_lingual", {}),
            ("instruct2", {"instruct_text": "slowly"}),
        ):
            await ask(served, mode, *([] if mode == "sft" else [RECORDING]), speed="1.5", **fields)
    modes = synthesis_pb2.PromptMode
    assert [modes.Name(request.prompt_mode) for request in seen] == [
        "PROMPT_MODE_UNSPECIFIED",
        "PROMPT_MODE_ZERO_SHOT",
        "PROMPT_MODE_CROSS_LINGUAL",
        "PROMPT_MODE_INSTRUCT",
    ]
    assert {request.speed for request in seen} == {1.5}
