"""What a request brings along (mode, instruction, recording) as it reaches the stages, to be spoken
or converted past the speech-token model: the right fields, also after a failure, streamed and
resumed like any other; and nothing goes on when its caller leaves.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import grpc
import numpy as np
import pytest

from cosyserve.errors import Overloaded
from cosyserve.rpc.calls import retry_delay
from cosyserve.rpc.service_info import ServiceFacts
from cosyserve.v1 import frontend_pb2, profile_pb2, synthesis_pb2, voice_pb2
from tests.pipeline.calling import (
    IMPATIENT,
    TEXT,
    abort_once,
    all_idle,
    audio_of,
    busy,
    hang,
    hang_up,
    hook,
    speak,
    spoken,
    unary,
)
from tests.pipeline.misbehaving import PromptedFrontend, misbehaving
from tests.stacks.calls import all_of, conversation, refusal, refused
from tests.stacks.in_process import until_serving
from tests.stacks.scripted_stages import LOUDNESS, Stack, expected_audio, prompted_voice, stack, stage

pb = synthesis_pb2
ANNA = prompted_voice("anna", [1, 2], [3, 4, 5])
UNTRANSCRIBED = prompted_voice("anna", [], [3, 4, 5])
PROMPT = voice_pb2.PromptRecording(audio=bytes([9, 8, 7, 6]), transcript="three words here", language_code="en")
MODES: list[tuple[dict[str, Any], list[int], list[int], list[int]]] = [
    # request, text and speech to the language model, speech to the decoder
    ({}, [1, 2], [3, 4, 5], [3, 4, 5]),
    ({"prompt_mode": pb.PROMPT_MODE_ZERO_SHOT}, [1, 2], [3, 4, 5], [3, 4, 5]),
    ({"prompt_mode": pb.PROMPT_MODE_CROSS_LINGUAL}, [], [], [3, 4, 5]),
    ({"prompt_mode": pb.PROMPT_MODE_SFT}, [], [], []),
    ({"instruction": " very slowly "}, [4, 6, 999], [], [3, 4, 5]),
    ({"prompt_mode": pb.PROMPT_MODE_INSTRUCT, "instruction": "sadly"}, [5, 999], [], [3, 4, 5]),
    ({"prompt": PROMPT}, [0, 1, 2], [9, 8, 7, 6], [9, 8, 7, 6]),
    ({"prompt": PROMPT, "prompt_mode": pb.PROMPT_MODE_CROSS_LINGUAL}, [], [], [9, 8, 7, 6]),
    ({"prompt": PROMPT, "instruction": "sadly"}, [5, 999], [], [9, 8, 7, 6]),
    ({"prompt": PROMPT, "prompt_mode": pb.PROMPT_MODE_SFT}, [], [], []),
]


def check_shown(running: Stack, text: list[int], heard: list[int], decoded: list[int]) -> None:
    """What every sentence of the last request sent to the stages."""
    llm = [setup for script in running.scripts["llm"] for setup in script.llm_setups]
    sound = [setup for script in running.scripts["token2wav"] for setup in script.decode_setups]
    assert {(tuple(setup.prompt_text_ids), tuple(setup.prompt_speech_tokens)) for setup in llm} == {
        (tuple(text), tuple(heard))
    }
    assert {tuple(setup.prompt_speech_tokens) for setup in sound} == {tuple(decoded)}
    for setup in sound:
        assert len(setup.prompt_mel) == len(decoded) * 2 * 80 * 4
        assert len(setup.speaker_embedding) == 192 * 4
        assert bool(setup.voice_hash) == bool(decoded)
    # The first border of the decoder's grid behind its own prompt, and the three tokens of
    # look-ahead.
    assert {setup.first_message_tokens for setup in llm} == {25 - len(decoded) + 3}


def aborting(status: grpc.StatusCode, text: str) -> Callable[[Any], Awaitable[None]]:
    """A frontend that refuses to read."""

    async def read(context: Any) -> None:
        await context.abort(status, text)

    return read


@pytest.mark.parametrize(("fields", "text", "heard", "decoded"), MODES)
@pytest.mark.start(voice=ANNA)
async def test_each_mode_shows_each_network_what_it_is_to_see(
    running: Stack, fields: dict[str, Any], text: list[int], heard: list[int], decoded: list[int]
) -> None:
    responses = await spoken(running, seed=1, **fields)
    check_shown(running, text, heard, decoded)
    assert responses[0].header.voice == ("recording-0" if "prompt" in fields else "anna")
    if "prompt" in fields:
        assert running.scripts["frontend"][0].recordings == [PROMPT]


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({}, [1, 2]),
        ({"prompt_mode": pb.PROMPT_MODE_CROSS_LINGUAL}, [77, 78]),
        ({"prompt_mode": pb.PROMPT_MODE_SFT}, [77, 78]),
        ({"instruction": "sadly"}, [5, 999]),
        ({"prompt": PROMPT, "prompt_mode": pb.PROMPT_MODE_CROSS_LINGUAL}, [77, 78]),
    ],
)
@pytest.mark.start(voice=ANNA)
async def test_a_system_part_is_shown_where_there_is_nothing_else(
    running: Stack, fields: dict[str, Any], text: list[int]
) -> None:
    running.scripts["frontend"][0].system_text_ids = [77, 78]
    await spoken(running, seed=1, **fields)
    assert {tuple(setup.prompt_text_ids) for setup in running.scripts["llm"][0].llm_setups} == {tuple(text)}


def instructed_by_token(**fields: Any) -> list[synthesis_pb2.StreamingSynthesizeRequest]:
    request = pb.SynthesizeRequest(instruction="sadly", sentence_pause_milliseconds=0, **fields)
    setup = pb.StreamingSynthesizeSetup(request=request, mode=pb.StreamingSynthesizeSetup.MODE_TOKENS)
    return [pb.StreamingSynthesizeRequest(setup=setup), pb.StreamingSynthesizeRequest(text=TEXT)]


@pytest.mark.start(voice=ANNA)
async def test_a_system_part_keeps_an_instruction_apart_from_words_that_are_being_written(running: Stack) -> None:
    running.scripts["frontend"][0].system_text_ids = [77, 78]
    for _ in range(2):
        await conversation(running.stub.StreamingSynthesize(), instructed_by_token())
    assert {tuple(setup.prompt_text_ids) for setup in running.scripts["llm"][0].llm_setups} == {(5, 999)}


@pytest.mark.parametrize("fields", [{}, {"prompt": PROMPT}], ids=["voice", "recording"])
@pytest.mark.start(voice=ANNA)
async def test_without_a_system_part_such_an_instruction_is_refused_before_any_call(
    running: Stack, fields: dict[str, Any]
) -> None:
    """The first request of all finds out of the answer with its voice; later ones ask no stage."""
    frontend = running.scripts["frontend"][0]
    asked = []
    for _ in range(3):
        status, message = await refused(conversation(running.stub.StreamingSynthesize(), instructed_by_token(**fields)))
        assert status == grpc.StatusCode.INVALID_ARGUMENT
        assert "in MODE_TOKENS this model would speak it" in message
        asked.append((len(frontend.voices_asked), len(frontend.recordings), len(frontend.calls)))
    assert asked[0] == asked[1] == asked[2] != (0, 0, 0)
    assert not running.scripts["llm"][0].calls


@pytest.mark.start(voice=ANNA)
async def test_a_frontend_that_comes_up_with_another_model_is_asked_again(running: Stack) -> None:
    await refused(conversation(running.stub.StreamingSynthesize(), instructed_by_token()))
    port, script = running.services["frontend"][0].port, running.scripts["frontend"][0]
    await running.kill("frontend", 0)
    await until_serving(running.channel, serving=False)
    script.system_text_ids = [77, 78]
    async with stage("frontend", script, f"127.0.0.1:{port}"):
        await until_serving(running.channel)
        await conversation(running.stub.StreamingSynthesize(), instructed_by_token())


@pytest.mark.start(voice=ANNA)
async def test_the_unary_call_takes_them_too(running: Stack) -> None:
    answer = await unary(running, prompt=PROMPT, instruction="sadly")
    assert (answer.audio, answer.header.voice) == (expected_audio(TEXT), "recording-0")
    check_shown(running, [5, 999], [], [9, 8, 7, 6])


@pytest.mark.start(voice=ANNA)
async def test_a_text_that_is_being_written_takes_them_too(running: Stack) -> None:
    request = pb.SynthesizeRequest(instruction="sadly", sentence_pause_milliseconds=0)
    setup = pb.StreamingSynthesizeSetup(request=request)
    messages = [pb.StreamingSynthesizeRequest(setup=setup), pb.StreamingSynthesizeRequest(text=TEXT)]
    assert audio_of(await conversation(running.stub.StreamingSynthesize(), messages)) == expected_audio(TEXT)
    check_shown(running, [5, 999], [], [3, 4, 5])


@pytest.mark.parametrize("stage", ["llm", "token2wav"])
@pytest.mark.parametrize(("fields", "text", "heard", "decoded"), [MODES[0], MODES[3], MODES[8]])
@pytest.mark.start(replicas={"llm": 2, "token2wav": 2}, voice=ANNA, recovery_seconds=5.0, attempts=3)
async def test_a_takeover_is_shown_the_same(
    running: Stack, stage: str, fields: dict[str, Any], text: list[int], heard: list[int], decoded: list[int]
) -> None:
    hook(running, stage, abort_once(grpc.StatusCode.UNAVAILABLE, "gone", 10 if stage == "llm" else 9_600))
    assert (await spoken(running, seed=1, **fields))[-1].summary.resumptions == 1
    check_shown(running, text, heard, decoded)


@pytest.mark.parametrize("fields", [mode[0] for mode in MODES])
@pytest.mark.start(voice=ANNA)
async def test_a_resumed_request_is_heard_to_its_end(running: Stack, fields: dict[str, Any]) -> None:
    whole, responses = await speak(running, seed=1, **fields)
    rest, _ = await speak(running, seed=1, start_sample=30_001, engine=responses[0].header.engine, **fields)
    assert rest == whole[2 * 30_001 :]


@pytest.mark.start(replicas={"frontend": 2}, **IMPATIENT)
async def test_a_frontend_that_dies_over_a_recording_is_replaced(running: Stack) -> None:
    gone = abort_once(grpc.StatusCode.UNAVAILABLE, "gone", 0)
    for script in running.scripts["frontend"]:
        script.read = lambda context: gone(context, 0)
    await spoken(running, prompt=PROMPT, instruction="sadly")


@pytest.mark.start(replicas={"frontend": 2}, **IMPATIENT)
async def test_a_frontend_of_the_release_before_is_passed_over(running: Stack) -> None:
    unknown = aborting(grpc.StatusCode.UNIMPLEMENTED, "Method not found!")
    running.scripts["frontend"][0].read = unknown
    await spoken(running, prompt=PROMPT)
    running.scripts["frontend"][1].read = unknown
    await refusal(speak(running, prompt=PROMPT), grpc.StatusCode.FAILED_PRECONDITION, "Method not found!")


@pytest.mark.start(**IMPATIENT)
async def test_a_recording_may_take_longer_than_any_other_answer(running: Stack) -> None:
    running.scripts["frontend"][0].read = lambda context: asyncio.sleep(1.2)
    assert (await spoken(running, "word", prompt=PROMPT))[-1].summary.first_sound.frontend > 1_000
    converted = await all_of(running.stub.ConvertVoice(pb.ConvertVoiceRequest(audio=b"abc")))
    assert converted[-1].summary.first_sound.frontend > 1_000


@pytest.mark.parametrize(
    ("fields", "status", "text"),
    [
        (
            {"prompt_mode": pb.PROMPT_MODE_ZERO_SHOT},
            grpc.StatusCode.FAILED_PRECONDITION,
            "voice 'anna' has no transcript",
        ),
        ({"voice": "nobody", "instruction": "sadly"}, grpc.StatusCode.NOT_FOUND, "no voice 'nobody'"),
    ],
)
@pytest.mark.start(voice=UNTRANSCRIBED)
async def test_what_the_voice_lacks_is_reported(
    running: Stack, fields: dict[str, Any], status: grpc.StatusCode, text: str
) -> None:
    await refusal(speak(running, **fields), status, text)
    await all_idle(running)
    assert not running.scripts["llm"][0].calls


@pytest.mark.parametrize(
    ("status", "text"),
    [
        (grpc.StatusCode.INVALID_ARGUMENT, "the recording is silent"),
        (grpc.StatusCode.FAILED_PRECONDITION, "no speech tokenizer"),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, "4 of 4 recordings are being read"),
    ],
)
@pytest.mark.parametrize("call", ["prompt", "instruction", "convert"])
async def test_what_the_frontend_refuses_the_caller_reads(
    running: Stack, call: str, status: grpc.StatusCode, text: str
) -> None:
    running.scripts["frontend"][0].read = aborting(status, text)
    answers = {
        "prompt": lambda: speak(running, prompt=PROMPT),
        "instruction": lambda: speak(running, instruction="sadly"),
        "convert": lambda: all_of(running.stub.ConvertVoice(pb.ConvertVoiceRequest(audio=b"abc"))),
    }
    await refusal(answers[call](), status, text)
    await all_idle(running)


async def test_the_hint_when_to_come_back_is_passed_on(running: Stack) -> None:
    async def full(context: Any) -> None:
        raise Overloaded("4 of 4 recordings are being read", retry_after=2.0)

    running.scripts["frontend"][0].read = full
    assert retry_delay(await refusal(speak(running, prompt=PROMPT))) == 2.0


@pytest.mark.parametrize("call", ["prompt", "convert"])
@pytest.mark.start(voice=ANNA)
async def test_hanging_up_stops_the_reading(running: Stack, call: str) -> None:
    running.scripts["frontend"][0].read = hang
    waiting: Any = (
        running.stub.Synthesize(pb.SynthesizeRequest(text=TEXT, prompt=PROMPT))
        if call == "prompt"
        else running.stub.ConvertVoice(pb.ConvertVoiceRequest(audio=b"abc"))
    )
    await hang_up(running, waiting, busy(running, "frontend"))


async def test_the_largest_recordings_come_through(running: Stack) -> None:
    await refusal(
        speak(running, prompt=voice_pb2.PromptRecording(audio=bytes(10_485_761))), grpc.StatusCode.INVALID_ARGUMENT
    )
    running.scripts["frontend"][0].read = aborting(grpc.StatusCode.INVALID_ARGUMENT, "seen")
    largest = bytes(10_485_760)
    spoken = running.stub.Synthesize(pb.SynthesizeRequest(text="a", prompt={"audio": largest}))
    for call in (spoken, running.stub.ConvertVoice(pb.ConvertVoiceRequest(audio=largest, prompt={"audio": largest}))):
        assert await refused(call.read()) == (grpc.StatusCode.INVALID_ARGUMENT, "seen")


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


@pytest.mark.start(voice=ANNA)
async def test_a_conversion_is_not_resumed_with_another_rate_of_its_tokens(running: Stack) -> None:
    """Its frontend or its orchestrator was replaced by one that reads more or fewer tokens."""
    script = running.scripts["frontend"][0]
    engines: dict[float, str] = {}
    for rate in (0.0, 1.0, 160 / 110):
        script.speech_rate = rate
        engines[rate] = (await convert(running, seed=1))[1][0].header.engine
    assert engines[0.0] == engines[1.0] != engines[160 / 110]
    await convert(running, seed=1, start_sample=960, engine=engines[160 / 110])
    await refusal(convert(running, seed=1, start_sample=960, engine=engines[1.0]), grpc.StatusCode.FAILED_PRECONDITION)
    script.speech_rate = 0.0
    await refusal(
        convert(running, seed=1, start_sample=960, engine=engines[160 / 110]), grpc.StatusCode.FAILED_PRECONDITION
    )


@pytest.mark.start(replicas={"token2wav": 2, "frontend": 2}, voice=ANNA, **IMPATIENT)
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


class Finer(PromptedFrontend):
    """Reads a quarter more tokens than the reference where it may."""

    async def ReadSpeech(
        self, request: frontend_pb2.ReadSpeechRequest, context: Any
    ) -> frontend_pb2.ReadSpeechResponse:
        rate = 1.25 if request.most_rate >= 1.25 else 1.0
        return frontend_pb2.ReadSpeechResponse(speech_tokens=[1] * int(80 * rate), rate=rate)


@pytest.mark.parametrize(
    ("fields", "tokens", "samples"),
    [
        ({}, 100, 80 * 960),
        ({"speed": 0.5}, 100, 160 * 960),
        ({"speed": 1.6}, 80, 50 * 960),
        ({"speed": 2.0}, 80, 40 * 960),
        ({"profile": profile_pb2.PROFILE_UPSTREAM}, 80, 80 * 960),
    ],
)
async def test_more_tokens_are_spoken_as_much_faster(
    fields: dict[str, Any], tokens: int, samples: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the reference is followed, and where the decoder would have to be too fast, there are
    no more tokens.
    """
    monkeypatch.setattr("tests.pipeline.misbehaving.PromptedFrontend", Finer)
    async with misbehaving() as stub:
        request = pb.ConvertVoiceRequest(audio=bytes(200), seed=1, onset=pb.ONSET_NATURAL, **fields)
        responses = await all_of(stub.ConvertVoice(request, timeout=20))
    assert responses[-1].summary.speech_tokens == tokens
    assert len(audio_of(responses)) == 2 * samples


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


@pytest.mark.parametrize(
    ("setting", "said", "first"), [(None, True, 28), (None, False, 25), (False, True, 25), (True, False, 28)]
)
async def test_the_first_message_is_cut_for_the_decoders_grid(setting: bool | None, said: bool, first: int) -> None:
    """Of a voice with three tokens of prompt: the grid starts at the prompt, or behind it. A
    setting says more than token2wav does.
    """
    async with stack(voice=ANNA, prompt_as_block=setting) as running:
        (replica,) = running.services["token2wav"]
        replica.info.describe(ServiceFacts(prompt_as_block=said), _warm)
        for serving in (False, True):  # it comes up again
            await replica.set_serving(serving)
            await until_serving(running.channel, serving)
        while await first_message(running) != first:
            await asyncio.sleep(0.01)
        assert await first_message(running) == first


async def first_message(running: Stack) -> int:
    """Tokens in the first message that the orchestrator asks the LLM for."""
    await spoken(running, seed=1)
    return running.scripts["llm"][0].llm_setups[-1].first_message_tokens


async def _warm() -> None:
    pass
