"""Settings of the frontend: variables COSYSERVE_FRONTEND_*."""

import re
from dataclasses import dataclass
from pathlib import Path

from cosyserve.rpc.server import ServerSettings

PREFIX = "COSYSERVE_FRONTEND_"
NORMALIZERS = ("wetext", "none")
MOST_CHARACTERS = 20_000
MOST_STREAM_CHARACTERS = 10_000_000
MOST_FRESH_SECONDS = 300
MOST_TEXT_WORKERS = 64
PROMPT_DEVICE = re.compile(r"cpu|cuda(:\d+)?")


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
    text_workers: int = 1
    """Texts worked on at the same moment, 1 to 64; the others take turns with them. The grammars
    hold the interpreter lock, so that more than one gain only where the tokenizer takes most of the
    time."""
    default_voice: str | None = None
    """The voice an empty id means; unset: the first by id."""
    allow_special: bool = False
    """Parse `<|...|>` control tokens in every text, whether or not its request allows them. They
    steer the model.
    """
    pronunciations: Path | None = None
    """A JSON file, an object of written form to respelling or /phonemes/, for all texts
    (services.frontend.analysis.pronunciations).
    """

    voices_url: str | None = None
    """Where voices that callers make are kept: a directory or any URL of fsspec
    (s3://bucket/prefix), the same for every replica. Unset: there are only the model's own, and
    none can be made."""
    voices_fresh_seconds: float = 1.0
    """How long a voice that another replica deleted may still be known to this one; 0 asks the
    storage for every request.
    """
    voices_cache_bytes: int = 64 * 1024 * 1024
    """Of the voices that were used last, held in memory; one of 30 s takes 0.6 MB."""
    max_voices: int = 10_000
    """Voices kept at once; more are refused with RESOURCE_EXHAUSTED."""
    max_voice_makings: int = 4
    """Recordings being read at once, whether for a new voice, for one request or to be spoken anew;
    more are refused with RESOURCE_EXHAUSTED and a retry hint."""
    recordings_cache_bytes: int = 64 * 1024 * 1024
    """Of the voices of recordings that came with a request, held in memory, those that were used
    last; 0 holds none.
    """
    prompt_device: str = "auto"
    """Of the two networks that listen to a prompt: cpu, cuda, or auto for a GPU where this build of
    ONNX Runtime knows one.
    """
    prompt_threads: int = 1
    """Of one analysis on the CPU."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 1 <= self.max_stream_characters <= MOST_STREAM_CHARACTERS:
            raise ValueError(
                f"MAX_STREAM_CHARACTERS is {self.max_stream_characters}, allowed 1 to {MOST_STREAM_CHARACTERS}"
            )
        if self.normalizer not in NORMALIZERS:
            raise ValueError(f"NORMALIZER is {self.normalizer!r}, expected one of {', '.join(NORMALIZERS)}")
        if not 1 <= self.max_characters <= MOST_CHARACTERS:
            raise ValueError(f"MAX_CHARACTERS is {self.max_characters}, allowed 1 to {MOST_CHARACTERS}")
        if not 1 <= self.text_workers <= MOST_TEXT_WORKERS:
            raise ValueError(f"TEXT_WORKERS is {self.text_workers}, allowed 1 to {MOST_TEXT_WORKERS}")
        for name in ("max_voices", "max_voice_makings", "prompt_threads"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name.upper()} is {getattr(self, name)}, allowed from 1")
        if not 0 <= self.voices_fresh_seconds <= MOST_FRESH_SECONDS:
            raise ValueError(
                f"VOICES_FRESH_SECONDS is {self.voices_fresh_seconds:g}, allowed 0 to {MOST_FRESH_SECONDS}"
            )
        for name in ("voices_cache_bytes", "recordings_cache_bytes"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name.upper()} is {getattr(self, name)}, allowed from 0")
        if self.prompt_device != "auto" and not PROMPT_DEVICE.fullmatch(self.prompt_device):
            raise ValueError(f"PROMPT_DEVICE is {self.prompt_device!r}, expected auto, cpu, cuda or cuda:0")
