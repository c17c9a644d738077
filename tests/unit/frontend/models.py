"""The two models of the repository, read once, and their analysis of texts; and waiting for a
condition.
"""

import asyncio
from collections.abc import Callable
from functools import cache

from cosyserve.model_directory import ModelDirectory
from services.frontend.analysis.analyzer import Analyzer
from services.frontend.loading import read_tokenizer
from services.frontend.normalization.normalize import Normalizer
from services.frontend.normalization.wetext_package import WeText
from services.frontend.tokenizers.phonemes.tokenizer import PhonemeTokenizer
from services.frontend.tokenizers.tokenizer import Tokenizer
from tests.stacks.up_process import ROOT

DEMO, TINY = "models/demo", "tests/golden/tiny"
"""A model that reads phonemes of English, and one that reads bytes of any text."""
MODELS = (DEMO, TINY)
TINY3 = "tests/golden/tiny3"
"""As TINY, of CosyVoice3."""


@cache
def tokenizer(model: str) -> Tokenizer:
    return read_tokenizer(ModelDirectory(ROOT / model))


@cache
def phonemes() -> PhonemeTokenizer:
    return PhonemeTokenizer(ModelDirectory(ROOT / DEMO))


async def until(condition: Callable[[], object]) -> None:
    """Let the event loop run until `condition` holds."""
    while not condition():
        await asyncio.sleep(0.001)


@cache
def analyzer(model: str) -> Analyzer:
    return Analyzer(Normalizer(WeText()), tokenizer(model))
