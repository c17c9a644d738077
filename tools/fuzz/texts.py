"""`python -m tools.fuzz.texts`: mutated texts through the whole analysis, in process and (one in a
hundred) over gRPC.

Every text must give sentences of 1 to 200 ids that the model has, or be refused with InvalidRequest
(INVALID_ARGUMENT); in any cutting the same, whole and by token; and in time that is bounded by its
length with its pronunciations, which now and then make it much longer. A failure is printed with
the seed that makes it again, and ends the run with status 1.
"""

import argparse
import asyncio
import itertools
import random
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import cast

import grpc
from services.frontend.analysis.streaming import Piece, StreamingInput

from cosyserve.errors import InvalidRequest
from cosyserve.model_directory import ModelDirectory
from cosyserve.rpc.server import running
from cosyserve.spec import LONGEST_SENTENCE
from cosyserve.v1 import frontend_pb2, frontend_pb2_grpc
from services.frontend.__main__ import SERVICE, load
from services.frontend.analysis.analyzer import Analyzer, Sentence
from services.frontend.analysis.incremental_sentences import SentencePart
from services.frontend.analysis.prepared_text import Reading
from services.frontend.analysis.reading_context import MOST_RESPELT
from services.frontend.analysis.whole_input import parts_of
from services.frontend.loading import read_tokenizer
from services.frontend.normalization.normalize import Normalizer
from services.frontend.normalization.wetext_package import WeText
from services.frontend.segmentation.pauses import Pause, added
from services.frontend.settings import FrontendSettings
from services.frontend.text.text_warnings import LONGEST_LEFT_OUT, MOST_LEFT_OUT, MOST_WARNINGS, WarningLog
from services.frontend.tokenizers.placeholders import CONTROLS
from services.frontend.tokenizers.tokenizer import Tokenizer
from tools.fuzz.mutation import growing, mutated

MODELS = ("models/demo", "tests/golden/tiny")
"""One that reads phonemes, one that reads bytes."""
LANGUAGES = ("", "", "", "zh", "en-US", "de", "ar")
PRONUNCIATIONS = {"hello": "hallo", "Smith": "smyth", "苹果": "平果"}
SECONDS, SECONDS_A_CHARACTER = 2.0, 0.002
"""What one text may take, in time of the processor: other work on the machine does not count."""
LONGEST_UNIT = 400
OVER_GRPC = 100
REPORTED = 10_000


class Failure(Exception):
    """What must not be."""


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise Failure(message)


class Subject:
    """One model's analysis."""

    def __init__(self, model: str) -> None:
        self.tokenizer: Tokenizer = read_tokenizer(ModelDirectory(Path(model)))
        self.analyzer = Analyzer(Normalizer(WeText()), self.tokenizer)
        controls = (self.tokenizer.id_of(token) for token in CONTROLS)
        self.controls = {token_id for token_id in controls if token_id is not None}

    def try_text(self, text: str, source: random.Random) -> str:
        """What came of it, "spoken", "silent" or "refused". Raises Failure for anything that must
        not be.
        """
        allowed = source.random() < 0.1
        pronunciations = PRONUNCIATIONS if source.random() < 0.2 else {}
        language = source.choice(LANGUAGES)
        grows = source.random() < 0.1
        if grows:
            pronunciations = growing(text, source, phonemes=self.tokenizer.is_phonemes is not None)
        begin = time.thread_time()
        try:
            reading = self.analyzer.reading(language, allow_control_tokens=allowed, pronunciations=pronunciations)
            parts = list(parts_of(self.analyzer, text, reading))
        except InvalidRequest:
            return "refused"
        seconds = time.thread_time() - begin
        limit = SECONDS + SECONDS_A_CHARACTER * max(len(text), _grown(text, reading))
        _require(seconds < limit, f"took {seconds:.2f} s, allowed {limit:.2f} s")
        sentences = [part for part in parts if isinstance(part, Sentence)]
        for sentence in sentences:
            self._check(sentence, allowed=allowed)
        _check_warnings(reading)
        if len(text) < 1000 and (grows or source.random() < 0.05):
            cuts, partial = sorted(source.randint(0, len(text)) for _ in range(4)), source.random() < 0.5
            begin = time.thread_time()
            whole = self._streamed(text, [], reading, partial=partial)
            _require(
                time.thread_time() - begin < 2 * limit,
                f"a stream took {time.thread_time() - begin:.2f} s, allowed {2 * limit:.2f} s",
            )
            _require(self._streamed(text, cuts, reading, partial=partial) == whole, "the cutting shows")
        return "spoken" if sentences else "silent"

    def _check(self, sentence: Sentence, *, allowed: bool) -> None:
        _require(1 <= len(sentence.token_ids) <= LONGEST_SENTENCE, f"a sentence of {len(sentence.token_ids)} ids")
        _require(
            all(0 <= token_id < len(self.tokenizer) for token_id in sentence.token_ids),
            "an id that the model does not have",
        )
        sentence.text.encode()
        _require(allowed or not self.controls.intersection(sentence.token_ids), "a control token that was not allowed")

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
                heard += [] if isinstance(piece, SentencePart) and piece.unfinished else _warnings(reading)
                if isinstance(piece, Pause):
                    waiting = added(waiting, piece)
                elif isinstance(piece, SentencePart):
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
    _require(len(warnings) <= MOST_WARNINGS, f"{len(warnings)} warnings")
    _require(all(len(warning.left_out) <= MOST_LEFT_OUT for warning in warnings), "a warning names more than it may")
    _require(
        all(len(stretch) <= LONGEST_LEFT_OUT for warning in warnings for stretch in warning.left_out),
        "a stretch is too long",
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
                statuses[error.code().name] += 1
                _require(error.code() == grpc.StatusCode.INVALID_ARGUMENT, f"{error.code().name}: {error.details()}")
                _require(bool(error.details()), "a refusal without a word")
    return statuses


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=100_000, help="texts to try (100000)")
    parser.add_argument("--seed", type=int, default=1, help="of the first text; text n has seed + n")
    options = parser.parse_args(arguments)
    subjects = [Subject(model) for model in MODELS]
    outcomes: Counter[str] = Counter()
    slowest, characters, sent = 0.0, 0, list[str]()
    begin = time.monotonic()
    for number in range(options.seed, options.seed + options.count):
        source = random.Random(number)  # noqa: S311  # to be made again, not to be secret
        text = mutated(source)
        characters += len(text)
        if number % OVER_GRPC == 0:
            sent.append(text)
        started = time.thread_time()
        try:
            outcomes[subjects[number % len(subjects)].try_text(text, source)] += 1
        except Exception as error:
            print(f"seed {number}: {type(error).__name__}: {error}; text of {len(text)} characters: {text[:300]!a}")
            return 1
        slowest = max(slowest, time.thread_time() - started)
        if (done := number - options.seed + 1) % REPORTED == 0:
            print(f"{done} texts, {time.monotonic() - begin:.0f} s", flush=True)
    statuses: Counter[str] = Counter()
    for model in MODELS:
        statuses += asyncio.run(over_grpc(sent, model))
    print(
        f"{options.count} texts of {characters} characters: {dict(sorted(outcomes.items()))}, slowest {slowest:.2f} s; "
        f"over gRPC {dict(sorted(statuses.items()))}; {time.monotonic() - begin:.0f} s in all; no failure"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
