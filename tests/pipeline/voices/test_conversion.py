"""Voice conversion past the speech-token model: the tokens of a recording become sound, streamed,
resumed and taken over like any other.
"""

import asyncio
from typing import Any

import grpc
import numpy as np
import pytest

from cosyserve.v1 import frontend_pb2, profile_pb2, synthesis_pb2, voice_pb2
from tests.pipeline.calling import IMPATIENT, abort_once, audio_of, hook
from tests.pipeline.misbehaving import PromptedFrontend, misbehaving
from tests.stacks.calls import all_of, refusal
from tests.stacks.scripted_stages import LOUDNESS, Stack, prompted_voice

pb = synthesis_pb2
ANNA = prompted_voice("anna", [1, 2], [3, 4, 5])
SPEECH = bytes(range(60))
HEARD = np.repeat(np.frombuffer(SPEECH, np.uint8).astype("<i2") + np.int16(LOUDNESS), 960).tobytes()


async def convert(running: Stack, **fields: Any) -> tuple[bytes, list[synthesis_pb2.SynthesizeResponse]]:
    request = pb.ConvertVoiceRequest(**{"audio": SPEECH, **fields})
    responses = await all_of(running.stub.ConvertVoice(request, timeout=20))
    return audio_of(responses), responses


@pytest.mark.start(voice=ANNA)
async def test_the_recordings_tokens_are_spoken_and_nothing_else_is_asked(running: Stack) -> None:
    audio, responses = await convert(running, seed=7)
    assert running.scripts["llm"][0].calls == []
    assert sorted(running.scripts["frontend"][0].calls) == ["read"]
    (setup,) = running.scripts["token2wav"][0].decode_setups
    assert audio == HEARD
    assert (list(setup.prompt_speech_tokens), setup.voice_hash, setup.seed) == ([3, 4, 5], "hash of anna", 7)
    assert not setup.guards, "a recording may pause for as long as it likes"
    assert not setup.holds_silence
    header, summary = responses[0].header, responses[-1].summary
    assert (header.seed, header.voice, header.profile) == (7, "anna", profile_pb2.PROFILE_CONTINUOUS)
    assert (summary.speech_tokens, summary.sentences, summary.audio_seconds) == (60, 1, 2.4)
    assert (summary.total.llm_prefill, summary.total.llm_decode) == (0, 0)
    assert summary.first_sound.frontend > 0
    assert not any(response.words for response in responses)


@pytest.mark.parametrize(
    ("fields", "voice", "decoded"),
    [
        ({"prompt_mode": pb.PROMPT_MODE_CROSS_LINGUAL}, "anna", [3, 4, 5]),
        ({"prompt_mode": pb.PROMPT_MODE_SFT}, "anna", []),
        ({"prompt": voice_pb2.PromptRecording(audio=b"\x09\x08")}, "recording-0", [9, 8]),
    ],
)
@pytest.mark.start(voice=ANNA)
async def test_whom_to_hear(running: Stack, fields: dict[str, Any], voice: str, decoded: list[int]) -> None:
    audio, responses = await convert(running, **fields)
    (setup,) = running.scripts["token2wav"][0].decode_setups
    assert (audio, responses[0].header.voice, list(setup.prompt_speech_tokens)) == (HEARD, voice, decoded)


async def test_a_voice_that_is_only_a_vector_converts_as_such(running: Stack) -> None:
    assert (await convert(running))[0] == HEARD
    error = await refusal(
        convert(running, prompt_mode=pb.PROMPT_MODE_CROSS_LINGUAL), grpc.StatusCode.FAILED_PRECONDITION
    )
    assert error.details().endswith("it can be spoken in PROMPT_MODE_SFT")


@pytest.mark.start(voice=ANNA)
async def test_resume_and_engine(running: Stack) -> None:
    whole, responses = await convert(running, seed=1)
    engine = responses[0].header.engine
    spoken = [each async for each in running.stub.Synthesize(pb.SynthesizeRequest(text="word", seed=1))]
    assert engine != spoken[0].header.engine, "the speech-token model has no part in it"
    assert (await convert(running, seed=1, start_sample=30_001, engine=engine))[0] == whole[2 * 30_001 :]
    await refusal(convert(running, seed=1, engine=spoken[0].header.engine), grpc.StatusCode.FAILED_PRECONDITION)
    await refusal(convert(running, seed=1, start_sample=10**6), grpc.StatusCode.OUT_OF_RANGE, "57600 samples")


@pytest.mark.start({"token2wav": 2, "frontend": 2}, voice=ANNA, **IMPATIENT)
async def test_a_decoder_that_dies_is_replaced(running: Stack) -> None:
    hook(running, "token2wav", abort_once(grpc.StatusCode.UNAVAILABLE, "gone", 9_600))
    audio, responses = await convert(running)
    assert (audio, responses[-1].summary.resumptions) == (HEARD, 1)


@pytest.mark.start(max_streams=1)
async def test_a_full_door_refuses_a_conversion(running: Stack) -> None:
    held = running.stub.StreamingSynthesize()
    await held.write(pb.StreamingSynthesizeRequest(setup=pb.StreamingSynthesizeSetup()))
    await held.initial_metadata()
    # A stream without text would give its place up.
    await held.write(pb.StreamingSynthesizeRequest(text="one sentence "))
    await asyncio.sleep(0.1)
    await refusal(convert(running), grpc.StatusCode.RESOURCE_EXHAUSTED)
    held.cancel()


class Reading(PromptedFrontend):
    """The shipped fakes speak sixty tokens."""

    async def ReadSpeech(
        self, request: frontend_pb2.ReadSpeechRequest, context: Any
    ) -> frontend_pb2.ReadSpeechResponse:
        return frontend_pb2.ReadSpeechResponse(speech_tokens=request.audio)


@pytest.mark.parametrize(
    ("fault", "status"), [("silence", None), ("pause", None), ("non_finite", grpc.StatusCode.INTERNAL)]
)
async def test_silence_is_no_fault_and_what_is_no_number_is(
    fault: str, status: grpc.StatusCode | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.pipeline.misbehaving.PromptedFrontend", Reading)
    async with misbehaving(token2wav={"fake_fault": fault}) as stub:
        call = stub.ConvertVoice(pb.ConvertVoiceRequest(audio=bytes(200), seed=1), timeout=20)
        if status is None:
            assert len(audio_of(await all_of(call))) == 200 * 1920
        else:
            await refusal(all_of(call), status, "finite")
