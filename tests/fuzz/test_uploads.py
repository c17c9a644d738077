"""Damaged sound files through everything that an upload goes through, from its first byte to a
voice.

Every upload must become a voice or be refused with InvalidRequest (INVALID_ARGUMENT) within its
time. The work is done in a process of its own, so that a crash or a hang is seen.
"""

import multiprocessing
import os
import sys
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from cosyserve.errors import InvalidRequest
from cosyserve.model_directory import ModelDirectory
from services.frontend.analysis.analyzer import Analyzer
from services.frontend.loading import read_tokenizer
from services.frontend.normalization.normalize import Normalizer
from services.frontend.prompts.prompt_reader import PromptReader
from services.frontend.prompts.recording_reader import Draft, PromptRecording, RecordingReader
from services.frontend.recordings.compressed_audio import read_compressed
from services.frontend.recordings.decoding import kind_of
from services.frontend.recordings.wav_reader import read_wav
from services.frontend.voices.voice_notes import Labels
from tests.fuzz.strategies import LIMITS, ROUNDS, damaged, one_in
from tests.fuzz.upload_seeds import seeds

MODEL = Path("models/demo")
MOST_TOKENS = 750
SECONDS = 20.0
"""What one upload may take, many times what it does: the machine may be busy."""
_LOADING_SECONDS = 120.0
_TEXTS = (
    "",
    "",
    "a little sound",
    "一点声音而已",
    "x",
    "\x00<|endofprompt|>",
    "12 " * 300,
    "very " * 100,
    "مرحبا بالعالم",
    "...",
    "y" * 1001,
)
_IDS = ("", "voice", "a" * 64, "a" * 65, "../x", ".", "a/b", "a\x00", "é", "-x", "_")
_TAGS = ("", "en", "zh-CN", "ar", "en_US", "x" * 65)


def uploads() -> st.SearchStrategy[Draft]:
    """One in five with odd fields."""
    audio = damaged(list(seeds().values()))
    plain = st.builds(PromptRecording, audio=audio, transcript=st.sampled_from(_TEXTS[:3]))
    odd = st.builds(
        PromptRecording, audio=audio, transcript=st.sampled_from(_TEXTS), language_code=st.sampled_from(_TAGS)
    )
    rest = {"labels": st.just(Labels()), "request_id": st.just("")}
    provenance = st.sampled_from((0, 2000, 2001)).map("p".__mul__)
    return one_in(5).flatmap(
        lambda is_odd: (
            st.builds(Draft, id=st.sampled_from(_IDS), recording=odd, provenance=provenance, **rest)
            if is_odd
            else st.builds(Draft, id=st.just("voice"), recording=plain, provenance=st.just(""), **rest)
        )
    )


def try_upload(reader: RecordingReader, draft: Draft) -> str:
    """What came of it: "voice", or "refused" and the first words why."""
    try:
        checked = draft.checked()
        audio = checked.recording.audio
        kind = kind_of(audio)
        sound = read_wav(audio) if kind == "wav" else read_compressed(audio, kind)
        voice = reader.analyse(checked.id, checked.recording, sound)
    except InvalidRequest as error:
        return f"refused: {' '.join(error.message.split()[:4])}" if draft.id == "voice" else "refused: a draft"
    if not 0 < len(voice.prompt_speech_tokens) <= MOST_TOKENS:
        raise ValueError(f"a voice of {len(voice.prompt_speech_tokens)} tokens")
    return "voice"


def recording_reader(model: Path) -> RecordingReader:
    """As the frontend reads recordings, but for the pools."""
    directory = ModelDirectory(model)
    return RecordingReader(
        PromptReader(directory), Analyzer(Normalizer(None), read_tokenizer(directory)), ThreadPoolExecutor(1), 1
    )


class Worker:
    """A process that tries uploads; another takes its place when it crashes or hangs."""

    def __init__(self) -> None:
        self._start()

    def _start(self) -> None:
        self._pool = ProcessPoolExecutor(1, multiprocessing.get_context("spawn"), _load)
        self._pool.submit(os.getpid).result(_LOADING_SECONDS)

    def attempt(self, draft: Draft) -> str:
        """As `try_upload`."""
        try:
            return self._pool.submit(_attempt, draft).result(SECONDS)
        except (BrokenProcessPool, TimeoutError):
            self.close()
            self._start()
            raise

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)
        for child in multiprocessing.active_children():
            child.kill()


_reader: RecordingReader


def _load() -> None:
    """In the worker."""
    global _reader
    # The decoder of MP3 complains of every file.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())
    _reader = recording_reader(MODEL)


def _attempt(draft: Draft) -> str:
    return try_upload(_reader, draft)


@pytest.fixture(scope="module")
def worker() -> Iterator[Worker]:
    running = Worker()
    yield running
    running.close()


@ROUNDS
def test_every_upload_becomes_a_voice_or_is_refused(number: int, worker: Worker) -> None:
    outcomes: Counter[str] = Counter()

    # Not simplified: each attempt at a hang takes its time.
    @settings(LIMITS, phases=[Phase.generate])
    @given(uploads())
    def attempt(draft: Draft) -> None:
        outcomes[worker.attempt(draft)] += 1

    attempt()
    print(outcomes.most_common(40))
    assert outcomes["voice"] > 0.05 * outcomes.total()
