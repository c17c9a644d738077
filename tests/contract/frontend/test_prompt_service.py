"""The prompt methods over real gRPC: one frontend without a storage, with the real networks of the
bundled model.
"""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import grpc
import numpy as np
import onnxruntime
import pytest
import torch

from cosyserve.generations.cosyvoice2 import COSYVOICE2
from cosyserve.rpc.calls import retry_delay
from cosyserve.telemetry import Timing
from cosyserve.v1 import frontend_pb2 as pb
from cosyserve.v1 import voice_pb2
from services.frontend.prompts.features.whisper_mel import whisper_log_mel
from services.frontend.prompts.prompt_reader import PromptReader
from services.frontend.prompts.recording_reader import RecordingReader
from services.frontend.settings import FrontendSettings
from tests.contract.frontend import test_voice_service as voices
from tests.contract.frontend.frontend_calls import served
from tests.contract.frontend.test_voice_service import (
    DEMO,
    FILES,
    FULL,
    GOOD,
    INVALID,
    LOUD,
    RATE,
    WRONG_STATE,
)
from tests.fuzz.upload_seeds import wav
from tests.stacks.calls import refusal, refused, until
from tests.stacks.up_process import TINY

pytestmark = pytest.mark.start(model=DEMO, normalizer="none")
REFERENCE = TINY / "features.npz"
TRANSCRIPT = "A little sound."
SILENCE = np.zeros(RATE // 2, np.float32)


def recording(audio: bytes = GOOD, transcript: str = "", language_code: str = "") -> pb.ReadRecordingRequest:
    return pb.ReadRecordingRequest(
        recording=voice_pb2.PromptRecording(audio=audio, transcript=transcript, language_code=language_code)
    )


def speech(audio: bytes = GOOD) -> pb.ReadSpeechRequest:
    return pb.ReadSpeechRequest(audio=audio)


class Analyses:
    """Counts the analyses; while it is held, they block."""

    def __init__(self) -> None:
        self.count = 0
        self._free = threading.Event()
        self._free.set()

    def begin(self) -> None:
        self.count += 1
        if not self._free.wait(20):
            raise RuntimeError("held for too long")

    @contextmanager
    def held(self) -> Iterator[None]:
        self._free.clear()
        try:
            yield
        finally:
            self._free.set()

    async def reach(self, count: int) -> None:
        await until(lambda: self.count >= count)


@pytest.fixture
def analyses(monkeypatch: pytest.MonkeyPatch) -> Analyses:
    counted = Analyses()
    for owner, name in ((RecordingReader, "analyse"), (PromptReader, "speech_tokens")):
        monkeypatch.setattr(owner, name, _counted(getattr(owner, name), counted))
    return counted


def _counted(method: Any, analyses: Analyses) -> Any:
    def counted(*arguments: Any) -> Any:
        analyses.begin()
        return method(*arguments)

    return counted


@pytest.mark.start(voices_url="voices")
async def test_a_recording_gives_the_voice_that_would_be_created_from_it(stub: Any) -> None:
    await stub.CreateVoice(voices.draft(transcript=TRANSCRIPT, language_code="en"))
    made = (await stub.GetVoice(pb.GetVoiceRequest(id="me"))).voice
    read = (await stub.ReadRecording(recording(GOOD, TRANSCRIPT, "en"))).voice
    assert read.prompt_text_ids
    assert read.id.startswith("recording-")
    assert read.content_hash == made.content_hash
    read.id = made.id
    assert read == made
    listed = (await stub.ListVoices(pb.FrontendServiceListVoicesRequest())).voices
    assert [voice.id for voice in listed] == ["af_heart", "am_michael", "me"], "nothing of a recording is kept"


async def test_every_kind_of_file_is_read(stub: Any) -> None:
    for name, data in FILES.items():
        voice = (await stub.ReadRecording(recording(data))).voice
        tokens = (await stub.ReadSpeech(speech(data))).speech_tokens
        assert 23 <= len(voice.prompt_speech_tokens) <= 33, name
        assert len(voice.prompt_speech_tokens) <= len(tokens) <= 33, name


async def test_the_same_recording_is_listened_to_once(stub: Any, analyses: Analyses) -> None:
    first = (await stub.ReadRecording(recording(GOOD, TRANSCRIPT))).voice
    for _ in range(3):
        assert (await stub.ReadRecording(recording(GOOD, TRANSCRIPT))).voice == first
    assert analyses.count == 1
    other = (await stub.ReadRecording(recording(GOOD))).voice
    assert analyses.count == 2
    assert other.id != first.id
    assert (other.prompt_speech_tokens, list(other.prompt_text_ids)) == (first.prompt_speech_tokens, [])


@pytest.mark.start(recordings_cache_bytes=0)
async def test_a_cache_of_nothing_holds_nothing(stub: Any, analyses: Analyses) -> None:
    one, two = [(await stub.ReadRecording(recording())).voice for _ in range(2)]
    assert one == two
    assert analyses.count == 2


async def test_one_read_for_all_calls_and_none_for_cancelled_ones(stub: Any, analyses: Analyses) -> None:
    with analyses.held():
        calls = [stub.ReadRecording(recording()) for _ in range(8)]
        await analyses.reach(1)
        for _ in range(5):  # answered behind the others on the same connection: by then all have joined
            await stub.ListVoices(pb.FrontendServiceListVoicesRequest())
        calls[0].cancel()
        calls[3].cancel()
    answers = [await call for place, call in enumerate(calls) if place not in (0, 3)]
    assert len({answer.voice.content_hash for answer in answers}) == 1
    assert analyses.count == 1


@pytest.mark.start(max_voice_makings=1)
async def test_hanging_up_gives_the_place_back(stub: Any, analyses: Analyses) -> None:
    for request in (recording(), speech()):
        method = stub.ReadRecording if isinstance(request, pb.ReadRecordingRequest) else stub.ReadSpeech
        before = analyses.count
        with analyses.held():
            call = method(request)
            await analyses.reach(before + 1)
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
        while (status := await stub.ReadSpeech(speech()).code()) == FULL:
            await asyncio.sleep(0.02)
        assert status == grpc.StatusCode.OK


@pytest.mark.start(max_voice_makings=1, voices_url="voices")
async def test_one_bound_for_all_that_read_recordings(stub: Any, analyses: Analyses) -> None:
    known = (await stub.ReadRecording(recording())).voice
    others = voices.wave(LOUD[::-1], RATE)
    for holder, request in (
        (stub.ReadRecording, recording(others)),
        (stub.ReadSpeech, speech(others)),
        (stub.CreateVoice, voices.draft(others)),
    ):
        before = analyses.count
        with analyses.held():
            holding = holder(request)
            await analyses.reach(before + 1)
            for call in (
                stub.ReadRecording(recording(GOOD, TRANSCRIPT)),
                stub.ReadSpeech(speech()),
                stub.CreateVoice(voices.draft(voice_id="other")),
            ):
                error = await refusal(call, FULL)
                assert (error.details(), retry_delay(error)) == (
                    "1 of 1 recordings are being read; try again in 2 s",
                    2.0,
                )
            assert (await stub.ReadRecording(recording())).voice == known, "what is known needs no place"
            assert analyses.count == before + 1
        await holding


RECORDINGS_REFUSED = [
    (request.draft, said)
    for request, said in voices.REFUSED
    if request.draft.audio != GOOD or request.draft.transcript or request.draft.language_code
]


async def test_a_recording_is_refused_like_a_draft_and_not_stored(stub: Any, analyses: Analyses) -> None:
    assert len(RECORDINGS_REFUSED) == 13
    for draft, said in RECORDINGS_REFUSED:
        request = recording(draft.audio, draft.transcript, draft.language_code)
        error = await refusal(stub.ReadRecording(request), INVALID, said)
        assert await refused(stub.ReadRecording(request)) == (INVALID, error.details())
    again = analyses.count
    await refused(stub.ReadRecording(recording(GOOD, "你好")))
    assert analyses.count == again + 1, "what was refused is read again"
    assert await refused(stub.ReadRecording(pb.ReadRecordingRequest())) == (
        INVALID,
        "audio has 0 bytes, allowed 1 to 10485760",
    )


async def test_speech_is_refused_as_a_recording_is_but_for_silence_at_its_ends(stub: Any) -> None:
    for draft, said in RECORDINGS_REFUSED:
        if draft.audio == GOOD:
            continue
        if said.startswith("the recording is too short"):
            # Less than a second of speech, but a second of audio.
            assert len((await stub.ReadSpeech(speech(draft.audio))).speech_tokens) > 60
            continue
        await refusal(stub.ReadSpeech(speech(draft.audio)), INVALID, said)
    assert await refused(stub.ReadSpeech(speech(bytes(10485761)))) == (
        INVALID,
        "audio has 10485761 bytes, allowed 1 to 10485760",
    )


async def test_the_timing_of_speech_is_kept(stub: Any) -> None:
    bare = voices.wave(LOUD, RATE)
    padded = voices.wave(np.concatenate([SILENCE, LOUD, SILENCE, SILENCE]), RATE)
    lengths = [len((await stub.ReadSpeech(speech(audio))).speech_tokens) for audio in (bare, padded)]
    assert abs(lengths[0] - 25 * 1.15) <= 1
    assert abs(lengths[1] - 25 * 2.65) <= 1
    voice = (await stub.ReadRecording(recording(padded))).voice
    assert len(voice.prompt_speech_tokens) < lengths[0] + 10, "a prompt is trimmed"


async def test_more_tokens_are_read_for_who_can_use_them(stub: Any) -> None:
    once = await stub.ReadSpeech(speech())
    assert once == await stub.ReadSpeech(pb.ReadSpeechRequest(audio=GOOD, most_rate=1.0))
    finer = await stub.ReadSpeech(pb.ReadSpeechRequest(audio=GOOD, most_rate=1.25))
    assert (once.rate, finer.rate) == (1.0, 1.25)
    assert abs(len(finer.speech_tokens) - 1.25 * len(once.speech_tokens)) <= 2


async def test_thirty_seconds_of_speech(stub: Any) -> None:
    rate = 16_000
    longest = np.tile(voices.voiced(rate), 27)[: 30 * rate]
    assert len((await stub.ReadSpeech(speech(voices.wave(longest, rate)))).speech_tokens) == 750


def tokens_of(log_mel: np.ndarray) -> list[int]:
    """The output of the bundled model's speech tokenizer, computed without our code."""
    session = onnxruntime.InferenceSession(str(DEMO / COSYVOICE2.speech_tokenizer), providers=["CPUExecutionProvider"])
    given = [entry.name for entry in session.get_inputs()]
    (tokens, *_) = session.run(None, {given[0]: log_mel, given[1]: np.array([log_mel.shape[2]], np.int32)})
    return np.asarray(tokens).reshape(-1).tolist()


def as_file(samples: np.ndarray, rate: int) -> bytes:
    """Every bit of float32 samples."""
    return wav(3, 32, rate, samples.astype("<f4").tobytes())


async def test_speech_tokens_are_those_of_the_reference_features(stub: Any) -> None:
    with np.load(REFERENCE) as arrays:
        low, high, resampled, log_mel = (
            arrays[name] for name in ("wav16k", "wav24k", "resample_24k_to_16k", "whisper_logmel128")
        )
    heard = list((await stub.ReadSpeech(speech(as_file(low[0], 16_000)))).speech_tokens)
    assert heard == tokens_of(log_mel)
    assert len(set(heard)) > 1
    again = list((await stub.ReadSpeech(speech(as_file(high[0], 24_000)))).speech_tokens)
    assert again == tokens_of(whisper_log_mel(torch.from_numpy(resampled)).numpy())


@pytest.mark.start(model=TINY)
async def test_where_nothing_can_be_heard(stub: Any) -> None:
    for call in (stub.ReadRecording(recording()), stub.ReadSpeech(speech())):
        assert await refused(call) == (
            WRONG_STATE,
            "no recording can be read: the model directory has no speech tokenizer or no speaker encoder",
        )
    for bad in (stub.ReadRecording(recording(b"<html>")), stub.ReadSpeech(speech(b"<html>"))):
        await refusal(bad, INVALID)


@pytest.mark.start(model=TINY)
async def test_an_instruction(stub: Any) -> None:
    answers = [
        await stub.ReadInstruction(pb.ReadInstructionRequest(instruction=text))
        for text in ("Speak slowly, 3 times.", "  Speak slowly, 3 times.<|endofprompt|> ")
    ]
    assert [list(answer.token_ids) for answer in answers] == [[*b"Speak slowly, 3 times.", 259]] * 2
    for bad in ("", "   ", "a" * 501, "<|endofprompt|>"):
        await refusal(stub.ReadInstruction(pb.ReadInstructionRequest(instruction=bad)), INVALID, "instruction h")


async def test_the_bundled_model_says_which_model_follows_instructions(stub: Any) -> None:
    assert await refused(stub.ReadInstruction(pb.ReadInstructionRequest(instruction="Speak slowly."))) == (
        WRONG_STATE,
        "this model follows no instructions: its tokenizer has no <|endofprompt|>. Needed is a model that was trained "
        "on them, such as the "
        "published CosyVoice2-0.5B",
    )


async def test_spans_carry_lengths_and_language_and_no_text(
    stub: Any, settings: FrontendSettings, spans: list[Timing]
) -> None:
    await stub.ReadRecording(recording(GOOD, TRANSCRIPT, "en"))
    await stub.ReadSpeech(speech())
    async with served(replace(settings, model=TINY)) as small:
        await small.ReadInstruction(pb.ReadInstructionRequest(instruction="Slowly."))
    assert [(span.name, span.attributes) for span in spans] == [
        (
            "frontend.read_recording",
            {"voice.prompt_seconds": 1.12, "voice.transcript_characters": 15, "text.language": "en"},
        ),
        ("frontend.read_speech", {"speech.tokens": 29}),
        ("frontend.read_instruction", {"instruction.characters": 7, "instruction.ids": 8}),
    ]
