"""Laws of the text path: the fragmentation of a text never changes its sentences."""

import functools
import itertools

from hypothesis import given, settings
from hypothesis import strategies as st

from services.frontend.analysis.analyzer import Analyzer
from services.frontend.analysis.input_text import StreamingText
from services.frontend.normalization.normalize import Normalizer
from services.frontend.normalization.wetext_package import WeText
from services.frontend.segmentation.sentence_splitter import Split, Splitter, cut_to_limit
from services.frontend.segmentation.text_units import LONGEST_UNIT, Units, runs_of
from tests.unit.frontend.models import TINY, tokenizer

TEXT = st.text(
    st.sampled_from('ab1 .,;:!?"”’)\n中文。？！；，、Dr') | st.characters(exclude_categories=["Cs"]), max_size=120
)
WORDS = (
    "Yes", "No", "What", "okay", "Dr. Smith", "the U.S.", "at 5 p.m.", "42 cats", "$3.50", "plan B", "Hmm", "he said",
    "今天", "很好",
    "well...", "…", '"Go!"', "(so)", "[pause 50ms]", "3", "and then,",
)  # fmt: skip
SENTENCES = st.lists(
    st.tuples(
        st.lists(st.sampled_from(WORDS), min_size=1, max_size=5).map(" ".join),
        st.sampled_from([". ", "! ", "? ", "。", "; ", ": ", " "]),
    ),
    max_size=12,
).map(lambda parts: "".join(words + mark for words, mark in parts))
CUTS = st.lists(st.integers(0, 120), max_size=12)


@functools.cache
def analyzer() -> Analyzer:
    return Analyzer(Normalizer(None), tokenizer(TINY))


def fragments(text: str, cuts: list[int]) -> list[str]:
    borders = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    return [text[start:end] for start, end in itertools.pairwise(borders)]


def units(parts: list[str], longest: int) -> list[str]:
    cutter = Units(longest)
    return [unit for part in parts for unit in cutter.feed(part)] + [cutter.finish()]


@settings(deadline=None, max_examples=300)
@given(TEXT, CUTS, st.integers(1, 40))
def test_any_cutting_gives_the_same_units_and_loses_nothing(text: str, cuts: list[int], longest: int) -> None:
    whole = units([text], longest)
    assert units(fragments(text, cuts), longest) == whole == units(list(text), longest)
    assert "".join(whole) == text
    assert all(len(unit) <= longest for unit in whole)


@settings(deadline=None, max_examples=200)
@given(TEXT, CUTS, st.sampled_from(["zh", "en", "de"]))
def test_the_splitter_does_not_see_run_borders(text: str, cuts: list[int], language: str) -> None:
    def split(runs: list[str]) -> list[str]:
        splitter = Splitter(language, len)
        return [segment for run in runs for segment in splitter.feed(run)] + list(splitter.finish())

    assert split(fragments(text * 3, cuts)) == split([text * 3])


@settings(deadline=None, max_examples=100)
@given(TEXT, st.integers(1, 60))
def test_runs_are_the_text(text: str, longest: int) -> None:
    runs = list(runs_of(text, longest))
    assert "".join(runs) == text
    assert all(len(run) <= longest for run in runs)


@settings(deadline=None, max_examples=100)
@given(TEXT, st.integers(4, 20))
def test_the_cut_to_the_limit_keeps_all(text: str, limit: int) -> None:
    parts = list(cut_to_limit(text, limit, lambda part: len(part.encode())))
    assert "".join(parts) == text
    assert all(len(part.encode()) <= limit for part in parts)


@settings(deadline=None, max_examples=200)
@given(TEXT, st.sampled_from(["", "zh", "en", "fr"]))
def test_any_text_gives_sentences_with_ids(text: str, language: str) -> None:
    sentences = list(analyzer().sentences(text, language))
    assert sentences == list(analyzer().sentences(text, language))
    assert all(sentence.token_ids and sentence.text.strip() for sentence in sentences)


@functools.cache
def by_sentence() -> Analyzer:
    return Analyzer(Normalizer(WeText()), tokenizer(TINY), split=Split.SENTENCES)


@settings(deadline=None, max_examples=150)
@given(SENTENCES, CUTS, st.sampled_from(["zh", "en", "fr"]))
def test_a_whole_text_has_the_sentences_of_one_that_is_being_written(text: str, cuts: list[int], language: str) -> None:
    """For a model directory that splits by sentence, with a language code: without one, the
    language of a whole text depends on all its letters, that of a streamed text on the letters so
    far.
    """
    reading = by_sentence().reading(language, allow_control_tokens=False, pronunciations={})
    written = StreamingText(by_sentence(), reading, Units(LONGEST_UNIT), partial=False)
    streamed = [piece for fragment in fragments(text, cuts) for piece in written.feed(fragment)] + list(
        written.finish()
    )
    assert list(by_sentence().parts(text, reading)) == streamed
