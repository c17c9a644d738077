"""CosyVoice's Inference: our own speech in another contract."""

import asyncio
import logging
from typing import Any

import grpc
import pytest

from cosyserve.audio.wav import wav_header
from cosyserve.foreign import cosyvoice_pb2 as cosyvoice
from cosyserve.foreign import cosyvoice_pb2_grpc
from tests.pipeline.calling import TEXT, all_idle, busy, hold_back, speak
from tests.stacks.calls import all_of, refusal, until
from tests.stacks.scripted_stages import Stack

SAMPLES = b"\1\0\2\0"
Sft, ZeroShot = cosyvoice.sftRequest, cosyvoice.zeroshotRequest
CrossLingual, Instruct = cosyvoice.crosslingualRequest, cosyvoice.instructRequest


def inference(running: Stack, **payload: Any) -> Any:
    stub: Any = cosyvoice_pb2_grpc.CosyVoiceStub(running.channel)
    return stub.Inference(cosyvoice.Request(**payload), timeout=20)


@pytest.mark.parametrize("speaker", ["", "anna", "中文女"])
async def test_sft_is_the_speech_of_our_own_service(running: Stack, speaker: str) -> None:
    call = inference(running, sft_request=Sft(spk_id=speaker, tts_text=TEXT))
    responses = await all_of(call)
    metadata = dict(await call.trailing_metadata())
    audio = b"".join(response.tts_audio for response in responses)
    own = await speak(running, seed=int(metadata["x-seed"]), sentence_pause_milliseconds=None)
    assert audio == own[0]
    assert len(responses) > 3
    assert all(response.tts_audio for response in responses)
    assert metadata["x-voice"] == "anna"


async def test_zero_shot(running: Stack) -> None:
    told = ZeroShot(tts_text=TEXT, prompt_text="what was said", prompt_audio=SAMPLES)
    assert await all_of(inference(running, zero_shot_request=told))
    (recording,) = running.scripts["frontend"][0].recordings
    assert (recording.audio, recording.transcript) == (wav_header(16_000, 2) + SAMPLES, "what was said")
    assert running.scripts["llm"][0].llm_setups[0].prompt_text_ids == [0, 1, 2]


async def test_cross_lingual_takes_a_file_as_it_is(running: Stack) -> None:
    file = wav_header(24_000, 2) + SAMPLES
    assert await all_of(inference(running, cross_lingual_request=CrossLingual(tts_text=TEXT, prompt_audio=file)))
    (recording,) = running.scripts["frontend"][0].recordings
    assert (recording.audio, recording.transcript) == (file, "")
    assert not running.scripts["llm"][0].llm_setups[0].prompt_speech_tokens
    assert running.scripts["token2wav"][0].decode_setups[0].prompt_speech_tokens


async def test_instruct(running: Stack) -> None:
    told = Instruct(tts_text=TEXT, spk_id="anna", instruct_text="Speak slowly.<|endofprompt|>")
    assert await all_of(inference(running, instruct_request=told))
    assert running.scripts["llm"][0].llm_setups[0].prompt_text_ids == [5, 7, 999]


@pytest.mark.parametrize(
    ("payload", "code", "said"),
    [
        ({}, "INVALID_ARGUMENT", "the request carries nothing; expected sft_request"),
        ({"sft_request": Sft(tts_text="")}, "INVALID_ARGUMENT", "nothing to speak"),
        ({"sft_request": Sft(tts_text=TEXT, spk_id="nobody")}, "NOT_FOUND", "'nobody'"),
        (
            {"zero_shot_request": ZeroShot(tts_text=TEXT, prompt_audio=SAMPLES)},
            "INVALID_ARGUMENT",
            "zero_shot_request.prompt_text is empty",
        ),
        (
            {"cross_lingual_request": CrossLingual(tts_text=TEXT)},
            "INVALID_ARGUMENT",
            "cross_lingual_request.prompt_audio is empty",
        ),
        (
            {"cross_lingual_request": CrossLingual(tts_text=TEXT, prompt_audio=b"\1\0\2")},
            "INVALID_ARGUMENT",
            "cross_lingual_request.prompt_audio has 3 bytes, expected whole 16-bit samples",
        ),
        (
            {"instruct_request": Instruct(tts_text=TEXT, instruct_text="<|endofprompt|>")},
            "INVALID_ARGUMENT",
            "instruct_request.instruct_text is empty",
        ),
    ],
)
async def test_a_wrong_request_is_refused_before_any_work(
    running: Stack, payload: dict[str, Any], code: str, said: str
) -> None:
    await refusal(all_of(inference(running, **payload)), grpc.StatusCode[code], said)
    assert not running.scripts["llm"][0].calls


@pytest.mark.start(max_streams=1)
async def test_it_is_admitted_and_cancelled_as_our_own(running: Stack, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    hold_back(running)
    call = inference(running, sft_request=Sft(tts_text=TEXT))
    listening = asyncio.create_task(call.read())
    await busy(running, "token2wav")
    second = all_of(inference(running, sft_request=Sft(tts_text=TEXT)))
    await refusal(second, grpc.StatusCode.RESOURCE_EXHAUSTED, "1 of 1 streams")
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await listening
    await all_idle(running)
    await until(lambda: "CosyVoiceInference voice=anna audio=0.00 s" in caplog.text)
    assert "status=CANCELLED" in caplog.text
    assert TEXT not in caplog.text
