"""Configuration of the speech-token model, read from the model directory: its generation's speech
vocabulary, layer sizes, rotary base, sampling parameters.

Sizes come from `CosyVoice-BlankEN/config.json`; sampling, the text:speech interleave and the bounds
of a sentence's length from the yaml. A model that needs what this implementation does not compute
(another activation, rotary scaling, a sliding window) is refused by name. Source: compatibility
specification sections 1 and 3.1.
"""

import math
from dataclasses import dataclass
from typing import Any

from cosyserve.errors import ModelError
from cosyserve.generations.generation import SpeechVocabulary
from cosyserve.generations.reading import VOCABULARY, end_of_prompt_id, generation_of
from cosyserve.model_directory import ModelDirectory, read_object
from cosyserve.spec import (
    MAX_TOKENS_PER_TEXT_TOKEN,
    MIN_TOKENS_PER_TEXT_TOKEN,
    SPEECH_BLOCK,
    TEXT_BLOCK,
)
from services.llm.generation.request import MOST_TOKENS, Prompt

WEIGHTS = "llm.pt"
BACKBONE_CONFIG = "CosyVoice-BlankEN/config.json"
_FIXED: dict[str, tuple[Any, ...]] = {"hidden_act": ("silu",), "rope_scaling": (None,), "use_sliding_window": (False,)}


@dataclass(frozen=True, kw_only=True)
class SamplingParameters:
    """Repetition-aware sampling: limits of the nucleus, and when a repeated id is drawn again."""

    top_p: float = 0.8
    """Probability mass of the nucleus, above 0 and at most 1."""
    top_k: int = 25
    """Most ids in the nucleus."""
    win_size: int = 10
    """Number of the latest decisions in which repetitions are counted."""
    tau_r: float = 0.1
    """Share of that window that an id must fill to count as repeated."""


@dataclass(frozen=True, kw_only=True)
class LengthBounds:
    """Bounds on the number of speech tokens of a sentence, per text id of its own text (without the
    prompt). Source: compatibility specification section 3.2.
    """

    min_token_text_ratio: float = MIN_TOKENS_PER_TEXT_TOKEN
    """Fewest speech tokens per text id."""
    max_token_text_ratio: float = MAX_TOKENS_PER_TEXT_TOKEN
    """Most speech tokens per text id."""
    shortest_limit: int = 1
    """Lower limit of `longest`, in tokens: a sentence of a single word also has silence on both
    sides.
    """

    @property
    def typical(self) -> float:
        """Geometric mean of the fewest and the most speech tokens per text id."""
        return math.sqrt(self.min_token_text_ratio * self.max_token_text_ratio)

    def shortest(self, text_ids: int) -> int:
        """Fewest speech tokens of a sentence of `text_ids` text ids."""
        return int(text_ids * self.min_token_text_ratio)

    def longest(self, text_ids: int) -> int:
        """Most speech tokens of a sentence of `text_ids` text ids; at least `shortest_limit`."""
        return min(max(self.shortest_limit, int(text_ids * self.max_token_text_ratio)), MOST_TOKENS)


PUBLISHED_LENGTHS = LengthBounds()


@dataclass(frozen=True, kw_only=True)
class LlmConfig:
    """Sizes of the decoder and of its embedding tables."""

    speech: SpeechVocabulary
    """Ids of the head and rows of the speech embedding."""
    end_of_prompt: int | None = None
    """Text id that every sentence has to have before its text; None: none is asked for."""
    hidden_size: int
    intermediate_size: int
    layers: int
    heads: int
    kv_heads: int
    head_size: int
    text_vocabulary: int
    """Rows of the text embedding; ids below it are legal."""
    rope_theta: float
    rms_norm_eps: float
    sampling: SamplingParameters
    text_block: int = TEXT_BLOCK
    """Text ids in one block when text arrives over time."""
    speech_block: int = SPEECH_BLOCK
    """Speech tokens in one block when text arrives over time."""

    lengths: LengthBounds = PUBLISHED_LENGTHS

    @property
    def kv_width(self) -> int:
        return self.kv_heads * self.head_size

    @property
    def shortest_prompt(self) -> Prompt:
        """The shortest prompt with which a sentence is accepted."""
        return Prompt() if self.end_of_prompt is None else Prompt((self.end_of_prompt,))

    def system_ids(self, prompt: Prompt) -> int:
        """Number of leading prompt text ids that are the system part: up to the first mark that
        ends it, with the mark. 0 where none is asked for, or there is none.
        """
        ids = prompt.text_ids
        return 0 if self.end_of_prompt not in ids else ids.index(self.end_of_prompt) + 1


def identity_files(directory: ModelDirectory) -> list[str]:
    """Names of the files that a model's hash covers: weights, sizes and sampling parameters; and
    the vocabulary, where an id of it is asked for.
    """
    names = [WEIGHTS, BACKBONE_CONFIG, directory.yaml_name]
    return [*names, VOCABULARY] if generation_of(directory).prompt.required else names


def read_config(directory: ModelDirectory) -> LlmConfig:
    """The model's sizes and sampling parameters. Raises ModelError naming file and key."""
    generation = generation_of(directory)
    path = directory.file(BACKBONE_CONFIG)
    backbone = read_object(path)
    for key, allowed in _FIXED.items():
        if key in backbone and backbone[key] not in allowed:
            raise ModelError(f"{path}: {key} is {backbone[key]!r}, only {allowed[0]!r} is supported")
    hidden, heads = _positive(backbone, "hidden_size", path), _positive(backbone, "num_attention_heads", path)
    kv_heads = _positive(backbone, "num_key_value_heads", path)
    head_size = _positive(backbone, "head_dim", path) if backbone.get("head_dim") is not None else hidden // heads
    if heads % kv_heads or head_size % 2 or ("head_dim" not in backbone and hidden % heads):
        raise ModelError(
            f"{path}: {heads} heads of {head_size} with {kv_heads} key heads do not fit a width of {hidden}"
        )
    section = directory.section("llm")
    sizes = {"llm_input_size": hidden, "llm_output_size": hidden, "speech_token_size": generation.speech.tokens}
    for key, expected in sizes.items():
        if key in section and section[key] != expected:
            raise ModelError(f"{directory.path}: yaml key llm.{key} is {section[key]!r}, expected {expected}")
    ratio = section.get("mix_ratio", [TEXT_BLOCK, SPEECH_BLOCK])
    if not (isinstance(ratio, list) and len(ratio) == 2 and all(isinstance(part, int) and part > 0 for part in ratio)):
        raise ModelError(f"{directory.path}: yaml key llm.mix_ratio is {ratio!r}, expected two positive integers")
    text_vocabulary = _positive(backbone, "vocab_size", path)
    end_of_prompt = end_of_prompt_id(directory, generation) if generation.prompt.required else None
    if end_of_prompt is not None and end_of_prompt >= text_vocabulary:
        raise ModelError(
            f"{path}: vocab_size is {text_vocabulary}; {generation.title} has to have {generation.prompt.end_mark}, "
            f"which is id {end_of_prompt} of this tokenizer"
        )
    return LlmConfig(
        speech=generation.speech,
        end_of_prompt=end_of_prompt,
        hidden_size=hidden,
        intermediate_size=_positive(backbone, "intermediate_size", path),
        layers=_positive(backbone, "num_hidden_layers", path),
        heads=heads,
        kv_heads=kv_heads,
        head_size=head_size,
        text_vocabulary=text_vocabulary,
        rope_theta=float(_number(backbone, "rope_theta", path)),
        rms_norm_eps=float(_number(backbone, "rms_norm_eps", path)),
        sampling=_sampling(directory),
        text_block=ratio[0],
        speech_block=ratio[1],
        lengths=_lengths(directory, section),
    )


def _lengths(directory: ModelDirectory, section: dict[str, Any]) -> LengthBounds:
    where = f"{directory.path}: yaml llm"
    given = {
        "min_token_text_ratio": MIN_TOKENS_PER_TEXT_TOKEN,
        "max_token_text_ratio": MAX_TOKENS_PER_TEXT_TOKEN,
    } | section
    least, most = _number(given, "min_token_text_ratio", where), _number(given, "max_token_text_ratio", where)
    if not (math.isfinite(least) and math.isfinite(most)) or least > most:
        raise ModelError(f"{where}: min_token_text_ratio {least} and max_token_text_ratio {most} are no range")
    limit = _positive({"shortest_limit": 1} | section, "shortest_limit", where)
    if limit > MOST_TOKENS:
        raise ModelError(f"{where}: shortest_limit is {limit}, allowed 1 to {MOST_TOKENS}")
    return LengthBounds(min_token_text_ratio=least, max_token_text_ratio=most, shortest_limit=limit)


def _sampling(directory: ModelDirectory) -> SamplingParameters:
    section = directory.section("llm", "sampling")
    where = f"{directory.path}: yaml llm.sampling"
    top_p, tau_r = _number(section, "top_p", where), _number(section, "tau_r", where)
    top_k, win_size = _positive(section, "top_k", where), _positive(section, "win_size", where)
    if not 0 < top_p <= 1:
        raise ModelError(f"{where}: top_p is {top_p}, expected above 0 and at most 1")
    return SamplingParameters(top_p=float(top_p), top_k=top_k, win_size=win_size, tau_r=float(tau_r))


def _number(values: dict[str, Any], key: str, where: object) -> float:
    value = values.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float) or value <= 0:
        raise ModelError(f"{where}: {key} is {value!r}, expected a positive number")
    return value


def _positive(values: dict[str, Any], key: str, where: object) -> int:
    value = _number(values, key, where)
    if not isinstance(value, int):
        raise ModelError(f"{where}: {key} is {value!r}, expected a whole number")
    return value
