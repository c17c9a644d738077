"""What differs from one generation of CosyVoice to the next, as data.

The services read a description from the model directory (`cosyserve.generations.reading`) and ask
it; which generation it is matters only to the loaders of networks. What all generations share, as
the rates and the look-ahead of the flow, is in `cosyserve.spec`; a loader refuses a yaml that has
another.
"""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field

from cosyserve.spec import MEL_FRAMES_PER_TOKEN


@dataclass(frozen=True, kw_only=True)
class SpeechVocabulary:
    """Rows of the speech embedding and of the head of the speech-token model.

    Ids 0 to `tokens` - 1 are sound; the rest are special. Every special id ends a sentence whose
    text is known.
    """

    tokens: int
    rows: int
    end: int
    """The id that ends a sentence."""
    fill: int
    """The id that asks for more text while text arrives."""
    start: int | None
    """The row of the speech embedding that starts a sequence; None: row 0 of `llm_embedding`."""
    task: int | None
    """The row of the speech embedding between text and speech; None: row 1 of `llm_embedding`."""
    masked_by_reference: int
    """The only id that the reference masks before the shortest length, and in its blocks of
    arriving text. It is not the id that ends a sentence in every generation.
    """
    head_bias: bool
    """Whether the head has a bias."""
    special_names: tuple[str, ...]
    """Tokens of the first special ids in the published conversions for other engines; those of the
    later ones are named like sounds.
    """

    @property
    def special(self) -> tuple[int, ...]:
        """All ids that are no sound, in order."""
        return tuple(range(self.tokens, self.rows))

    def all_but(self, special: int) -> tuple[int, ...]:
        """All special ids but one."""
        return tuple(one for one in self.special if one != special)


@dataclass(frozen=True, kw_only=True)
class TextPrompt:
    """What stands before the text that is spoken."""

    end_mark: str
    """The special token that ends an instruction or the system part."""
    required: bool
    """Whether every sequence has to have the mark before its text."""
    system: str
    """The system part that goes before the mark where a request brings none; empty: none."""


@dataclass(frozen=True, kw_only=True)
class SilentTokens:
    """Speech tokens of silence and breath, of which long runs are not spoken."""

    ids: frozenset[int]
    longest_run: int
    """So many tokens of a run are spoken; the rest of it is left out."""


@dataclass(frozen=True)
class WeightMark:
    """What a file of weights of this generation has and one of another generation has not."""

    file: str
    tensor: str
    """How the tensor's name begins."""
    taps: int | None = None
    """Length of its kernel, where the other generation has the name too."""


@dataclass(frozen=True, kw_only=True)
class Generation:
    """One generation of the model; every field is a fact of its published checkpoints."""

    name: str
    title: str
    """The name as people write it."""
    yaml_names: tuple[str, ...]
    """Files that describe a model directory, the preferred one first. Their names have the form
    cosyvoice*.yaml, which `ModelDirectory` reads.
    """
    classes: tuple[tuple[str, str], ...]
    """Section of the yaml, and the class that it names, without its package."""
    speech: SpeechVocabulary
    prompt: TextPrompt
    text_marks: tuple[str, ...]
    """Special tokens of the text tokenizer after those of its own, in the order of their ids."""
    silent: SilentTokens | None
    """None: every token is spoken."""
    speech_tokenizer: str
    """File that makes speech tokens of recordings. Its ids mean another sound in each generation.
    """
    mel_highest_hertz: float
    """Upper edge of the mel filters of a recording at 24 kHz; the lower one is 0."""
    flow_network: str
    """Name of the network that makes mel of tokens; token2wav has a loader for each."""
    vocoder_network: str
    """Name of the network that makes samples of mel; token2wav has a loader for each."""
    hold_back_frames: int
    """Mel frames at the end of what has arrived whose samples the vocoder holds back until more
    follow; a few samples may be added to them.
    """
    state_bytes_per_second: int
    """Of the flow's kept state with the published sizes in float32, for a second of sound."""
    weight_marks: tuple[WeightMark, ...]
    """By which weights of token2wav in the wrong directory are recognised."""

    @property
    def kept_seconds(self) -> float | None:
        """Sound behind the prompt that the flow keeps at most; None: all of a sentence."""
        return None

    @property
    def hold_back_tokens(self) -> int:
        """The longest first hop, in tokens, that gives no sound."""
        return -(-self.hold_back_frames // MEL_FRAMES_PER_TOKEN)


@dataclass
class SilentRuns:
    """The tokens of one sentence, without what is too long of its silences (compatibility
    specification of CosyVoice3, section 3.6): of each run of silent tokens the first ones are
    spoken. The state is the length of the run at the end, so the tokens may come in any pieces.
    """

    silent: SilentTokens | None = None
    """None: every token is spoken. Set before the first token comes."""
    spoken: list[int] = field(default_factory=list)
    """The tokens that are spoken, in order."""
    run: int = 0
    """How many tokens at the end are silent, spoken or not."""
    _generated: int = 0
    _left_out: list[int] = field(default_factory=list)
    """Positions, among all tokens, of those that are not spoken."""

    def extend(self, tokens: Sequence[int]) -> None:
        """Append the next tokens."""
        for token in tokens:
            is_silent = self.silent is not None and token in self.silent.ids
            self.run = self.run + 1 if is_silent else 0
            if self.silent is not None and self.run > self.silent.longest_run:
                self._left_out.append(self._generated)
            else:
                self.spoken.append(token)
            self._generated += 1

    def spoken_before(self, place: int) -> int:
        """How many of the first `place` tokens are spoken."""
        return place - bisect_left(self._left_out, place)
