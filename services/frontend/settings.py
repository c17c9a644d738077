"""Settings of the frontend: variables COSYSERVE_FRONTEND_*."""

from dataclasses import dataclass
from pathlib import Path

from cosyserve.server import ServerSettings

PREFIX = "COSYSERVE_FRONTEND_"
NORMALIZERS = ("wetext", "none")
MOST_CHARACTERS = 20_000
MOST_STREAM_CHARACTERS = 10_000_000


@dataclass(frozen=True, kw_only=True)
class FrontendSettings(ServerSettings):
    model: Path
    """The model directory: tokenizer and voices are read from it."""
    normalizer: str = "wetext"
    """wetext, or none: only the character rules (Chinese digits are left to the model)."""
    max_characters: int = MOST_CHARACTERS
    """Longest text of one call, 1 to 20000."""
    max_stream_characters: int = 200_000
    """Longest text of one AnalyzeStream call, 1 to 10000000."""
    default_voice: str | None = None
    """The voice an empty id means; unset: the first by id."""
    allow_special: bool = False
    """Parse `<|...|>` control tokens in every text, whether or not its request allows them. They steer the model."""
    pronunciations: Path | None = None
    """A JSON file, an object of written form to respelling or /phonemes/, for all texts (services.frontend.pronunciations)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 1 <= self.max_stream_characters <= MOST_STREAM_CHARACTERS:
            raise ValueError(f"MAX_STREAM_CHARACTERS is {self.max_stream_characters}, allowed 1 to {MOST_STREAM_CHARACTERS}")
        if self.normalizer not in NORMALIZERS:
            raise ValueError(f"NORMALIZER is {self.normalizer!r}, expected one of {', '.join(NORMALIZERS)}")
        if not 1 <= self.max_characters <= MOST_CHARACTERS:
            raise ValueError(f"MAX_CHARACTERS is {self.max_characters}, allowed 1 to {MOST_CHARACTERS}")
