"""A request as the pipeline sees it: checked, defaults filled in, nothing of the wire left."""

from dataclasses import dataclass

from cosyserve import spec


@dataclass(frozen=True)
class Utterance:
    """What is to be said and how. `profile`, `growth` and `encoding` carry the numbers of their protobuf enums."""

    text: str
    voice: str
    language_code: str
    seed: int
    speed: float
    profile: int
    first_hop_tokens: int
    growth: int
    max_hop_tokens: int
    encoding: int
    sample_rate: int
    start_sample: int = 0
    """At `sample_rate`, over the whole utterance."""
    engine: str = ""
    """Name of the engines that must speak; empty: any."""


@dataclass(frozen=True)
class Voice:
    """Everything a voice is, as voice.proto says; it travels with every sentence."""

    id: str
    content_hash: str
    prompt_text_ids: tuple[int, ...]
    prompt_speech_tokens: tuple[int, ...]
    prompt_mel: bytes
    speaker_embedding: bytes

    @property
    def transcribed_speech_tokens(self) -> tuple[int, ...]:
        """The prompt's speech as the speech-token model may see it: only beside its transcript. Of a prompt without one the model would
        take the words for its own and garble those it is to say (compatibility specification section 2.4, cross_lingual)."""
        return self.prompt_speech_tokens if self.prompt_text_ids else ()


@dataclass(frozen=True)
class Sentence:
    """One utterance of the speech-token model: text token ids, and its place in the text."""

    index: int
    token_ids: tuple[int, ...]


def tokens_to_first_border(prompt_tokens: int, first_hop_tokens: int) -> int:
    """New tokens up to the first border of the 25-token grid (which starts at the first prompt token) with at least `first_hop_tokens`."""
    border = -(-(prompt_tokens + first_hop_tokens) // spec.CHUNK_TOKENS) * spec.CHUNK_TOKENS
    return border - prompt_tokens
