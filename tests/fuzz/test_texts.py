"""Odd texts through the whole analysis, in process and (one in a hundred) over gRPC.

Every text must give sentences of 1 to 200 ids that the model has, or be refused with InvalidRequest
(INVALID_ARGUMENT); in any cutting the same, whole and by token; and in time that is bounded by its
length with its pronunciations, which now and then make it much longer.
"""

import functools
import itertools
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

import grpc
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from cosyserve.errors import InvalidRequest
from cosyserve.model_directory import ModelDirectory
from cosyserve.rpc.server import running
from cosyserve.spec import LONGEST_SENTENCE
from cosyserve.v1 import frontend_pb2, frontend_pb2_grpc
from services.frontend.__main__ import SERVICE, load
from services.frontend.analysis.analyzer import Analyzer
from services.frontend.analysis.incremental_sentences import Sentence
from services.frontend.analysis.input_text import Piece, StreamingInput, parts_of
from services.frontend.analysis.prepared_text import Reading
from services.frontend.analysis.reading_context import MOST_RESPELT
from services.frontend.loading import read_tokenizer
from services.frontend.normalization.normalize import Normalizer
from services.frontend.normalization.wetext_package import WeText
from services.frontend.segmentation.pauses import Pause, added
from services.frontend.settings import FrontendSettings
from services.frontend.text.text_warnings import LONGEST_LEFT_OUT, MOST_LEFT_OUT, MOST_WARNINGS, WarningLog
from services.frontend.tokenizers.placeholders import CONTROLS
from services.frontend.tokenizers.tokenizer import Tokenizer
from tests.fuzz.strategies import INPUTS, LIMITS, ROUNDS, growing, one_in, texts

MODELS = ("models/demo", "tests/golden/tiny", "tests/golden/tiny3")
"""One that reads phonemes, one that reads bytes, and one that has marks for pronunciations too."""
LANGUAGES = ("", "", "", "zh", "en-US", "de", "ar")
PRONUNCIATIONS = {"hello": "hallo", "Smith": "smyth", "苹果": "平果"}
SECONDS, SECONDS_A_CHARACTER = 2.0, 0.002
"""What one text may take, in time of the processor: other work on the machine does not count."""
LONGEST_UNIT = 400
OVER_GRPC = 100


@dataclass(frozen=True)
class Case:
    """A text for one of MODELS. allowed: whether it may hold control tokens. cuts: where the text
    is divided when it is streamed as well; none: it is not. partial: by token.
    """

    model: str
    text: str
    language: str
    allowed: bool
    pronunciations: dict[str, str]
    cuts: list[int]
    partial: bool


@st.composite
def cases(draw: st.DrawFn) -> Case:
    model, text, grows = draw(st.sampled_from(MODELS)), draw(texts()), draw(one_in(10))
    fixed = st.sampled_from(({}, {}, {}, {}, PRONUNCIATIONS))
    return Case(
        model,
        text,
        language=draw(st.sampled_from(LANGUAGES)),
        allowed=draw(one_in(10)),
        pronunciations=draw(growing(text, phonemes=model == MODELS[0]) if grows else fixed),
        cuts=draw(st.lists(st.integers(0, 1000), min_size=4, max_size=4)) if grows or draw(one_in(20)) else [],
        partial=draw(st.booleans()),
    )


class Subject:
    """One model's analysis."""

    def __init__(self, model: str) -> None:
        self.tokenizer: Tokenizer = read_tokenizer(ModelDirectory(Path(model)))
        self.analyzer = Analyzer(Normalizer(WeText()), self.tokenizer)
        controls = (self.tokenizer.id_of(token) for token in CONTROLS)
        self.controls = {token_id for token_id in controls if token_id is not None}

    def try_text(self, case: Case) -> str:
        """What came of it: "spoken", "silent" or "refused"."""
        text = case.text
        begin = time.thread_time()
        try:
            reading = self.analyzer.reading(
                case.language, allow_control_tokens=case.allowed, pronunciations=case.pronunciations
            )
            parts = list(parts_of(self.analyzer, text, reading))
        except InvalidRequest:
            return "refused"
        seconds = time.thread_time() - begin
        limit = SECONDS + SECONDS_A_CHARACTER * max(len(text), _grown(text, reading))
        assert seconds < limit, f"took {seconds:.2f} s, allowed {limit:.2f} s"
        sentences = [part for part in parts if isinstance(part, Sentence)]
        for sentence in sentences:
            self._check(sentence, allowed=case.allowed)
        _check_warnings(reading)
        if len(text) < 1000 and case.cuts:
            begin = time.thread_time()
            whole = self._streamed(text, [], reading, partial=case.partial)
            assert time.thread_time() - begin < 2 * limit, (
                f"a stream took {time.thread_time() - begin:.2f} s, allowed {2 * limit:.2f} s"
            )
            cuts = sorted(cut % (len(text) + 1) for cut in case.cuts)
            assert self._streamed(text, cuts, reading, partial=case.partial) == whole, "the cutting shows"
        return "spoken" if sentences else "silent"

    def _check(self, sentence: Sentence, *, allowed: bool) -> None:
        assert 1 <= len(sentence.token_ids) <= LONGEST_SENTENCE, f"a sentence of {len(sentence.token_ids)} ids"
        assert all(0 <= token_id < len(self.tokenizer) for token_id in sentence.token_ids), (
            "an id that the model does not have"
        )
        sentence.text.encode()
        assert allowed or not self.controls.intersection(sentence.token_ids), "a control token that was not allowed"

    def _streamed(self, text: str, cuts: list[int], reading: Reading, *, partial: bool) -> list[object]:
        """Sentences and the pauses between them, of a text that comes in pieces, as far as it is
        not refused.
        """
        reading = replace(reading, log=WarningLog())
        of = StreamingInput(self.analyzer, reading, LONGEST_UNIT, partial=partial)
        heard, waiting, ids = list[object](), 0, list[int]()

        def pieces() -> Iterator[Piece]:
            for start, end in itertools.pairwise([0, *cuts, len(text)]):
                yield from of.feed(text[start:end])
            yield from of.finish()

        try:
            for piece in pieces():
                # Warnings belong to the sentence that is returned with them, not to the part of it.
                heard += [] if isinstance(piece, Sentence) and piece.unfinished else _warnings(reading)
                if isinstance(piece, Pause):
                    waiting = added(waiting, piece)
                elif partial:
                    ids += piece.token_ids
                    heard += [] if piece.unfinished else [waiting, tuple(ids)]
                    waiting, ids = (waiting, ids) if piece.unfinished else (0, [])
                else:
                    heard, waiting = [*heard, waiting, piece], 0
        except InvalidRequest:
            return [*heard, tuple(ids), "refused"]
        return [*heard, *_warnings(reading), waiting]


def _check_warnings(reading: Reading) -> None:
    warnings = [] if reading.log is None else reading.log.take()
    assert len(warnings) <= MOST_WARNINGS, f"{len(warnings)} warnings"
    assert all(len(warning.left_out) <= MOST_LEFT_OUT for warning in warnings), "a warning names more than it may"
    assert all(len(stretch) <= LONGEST_LEFT_OUT for warning in warnings for stretch in warning.left_out), (
        "a stretch is too long"
    )


def _warnings(reading: Reading) -> list[object]:
    return [] if reading.log is None else list(reading.log.take())


def _grown(text: str, reading: Reading) -> int:
    """Characters of `text` with its pronunciations."""
    try:
        return len(reading.dictionary.apply(text, str)) if reading.dictionary else len(text)
    except InvalidRequest:
        return MOST_RESPELT


async def over_grpc(texts: list[str], model: str) -> Counter[str]:
    """The statuses that `texts` get from a running frontend. A lone surrogate has no place in a
    message: it goes as a question mark.
    """
    settings = FrontendSettings(listen="127.0.0.1:0", model=Path(model), drain_seconds=1)
    statuses: Counter[str] = Counter()
    async with (
        running(SERVICE, settings, lambda service: load(service, settings)) as service,
        grpc.aio.insecure_channel(f"127.0.0.1:{service.port}") as channel,
    ):
        stub = cast("frontend_pb2_grpc.FrontendServiceAsyncStub", frontend_pb2_grpc.FrontendServiceStub(channel))
        for text in texts:
            request = frontend_pb2.AnalyzeRequest(text=text.encode("utf-8", "replace").decode())
            try:
                async for _ in stub.Analyze(request, timeout=10 * (SECONDS + SECONDS_A_CHARACTER * len(text))):
                    pass
                statuses["OK"] += 1
            except grpc.aio.AioRpcError as error:
                statuses[error.code().name if error.details() else "a refusal without a word"] += 1
    return statuses


@functools.cache
def subject(model: str) -> Subject:
    return Subject(model)


@ROUNDS
@LIMITS
@given(case=cases())
def test_every_text_is_spoken_or_refused_in_time(number: int, case: Case) -> None:
    event(subject(case.model).try_text(case))


@pytest.mark.parametrize("model", MODELS)
async def test_over_grpc_it_is_ok_or_an_invalid_argument(model: str) -> None:
    sent = list[str]()

    @settings(LIMITS, max_examples=max(INPUTS // OVER_GRPC, 3))
    @given(texts())
    def draw(text: str) -> None:
        sent.append(text)

    draw()
    statuses = await over_grpc(sent, model)
    assert statuses["OK"] > 0
    assert set(statuses) <= {"OK", "INVALID_ARGUMENT"}


def test_a_rule_that_is_broken_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"{__name__}.LONGEST_SENTENCE", 3)
    with pytest.raises(AssertionError, match="a sentence of"):
        subject(MODELS[0]).try_text(Case(MODELS[0], "One more sentence.", "", False, {}, [], False))
