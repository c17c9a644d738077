"""Settings of the frontend: variables COSYSERVE_FRONTEND_*."""

import math
import re
from dataclasses import dataclass
from pathlib import Path

from cosyserve.rpc.server_settings import ServerSettings

PREFIX = "COSYSERVE_FRONTEND_"
NORMALIZERS = ("wetext", "none")
_RANGES: dict[str, tuple[int, float]] = {
    "max_characters": (1, 20_000),
    "max_stream_characters": (1, 10_000_000),
    "text_workers": (1, 64),
    "voices_fresh_seconds": (0, 300),
    "voices_cache_bytes": (0, math.inf),
    "recordings_cache_bytes": (0, math.inf),
    "max_voices": (1, math.inf),
    "max_tenant_voices": (1, math.inf),
    "max_voice_makings": (1, math.inf),
    "prompt_threads": (1, math.inf),
}
"""Smallest and largest value of each numeric setting."""
PROMPT_DEVICE = re.compile(r"cpu|cuda(:\d+)?")


@dataclass(frozen=True, kw_only=True)
class FrontendSettings(ServerSettings):
    model: Path
    """The model directory: tokenizer and voices are read from it."""
    normalizer: str = "wetext"
    """wetext, or none: only the character rules apply and the model reads Chinese digits itself."""
    max_characters: int = 20_000
    """Characters in the text of one call, 1 to 20000."""
    max_stream_characters: int = 200_000
    """Characters in the text of one AnalyzeStream call, 1 to 10000000."""
    text_workers: int = 1
    """Texts that are processed concurrently, 1 to 64; further texts are scheduled in turns. The
    grammars hold the GIL, so more than one worker helps only where the tokenizer takes most of the
    time.
    """
    default_voice: str | None = None
    """The voice that an empty id selects. Unset: the first by id."""
    allow_special: bool = False
    """Parse `<|...|>` control tokens, which steer the model, in every text, whether or not its
    request allows them.
    """
    pronunciations: Path | None = None
    """A JSON file that maps written forms to respellings or /phonemes/, applied to all texts
    (services.frontend.analysis.pronunciations).
    """

    voices_url: str | None = None
    """Storage of the voices that callers create: a directory or any URL of fsspec
    (s3://bucket/prefix), the same for every replica. Unset: only the presets are served and no
    voice can be created.
    """
    voices_fresh_seconds: float = 1.0
    """Seconds for which this replica may still serve a voice that another replica deleted, 0 to
    300; 0 checks the storage on every request.
    """
    voices_cache_bytes: int = 64 * 1024 * 1024
    """Bytes of the LRU cache of stored voices, from 0. A voice of 30 s takes 0.6 MB."""
    max_voices: int = 10_000
    """Stored voices, from 1; creating more fails with RESOURCE_EXHAUSTED."""
    max_tenant_voices: int = 1_000
    """Stored voices of one tenant, from 1; the same. Those of everyone count in `max_voices` alone.
    """
    max_voice_makings: int = 4
    """Recordings that are read concurrently, from 1: for a new voice, for one request or for voice
    conversion. Further ones fail with RESOURCE_EXHAUSTED and a retry hint.
    """
    recordings_cache_bytes: int = 64 * 1024 * 1024
    """Bytes of the LRU cache of voices that were read from a request's recording, from 0; 0
    disables it.
    """
    prompt_device: str = "auto"
    """Device of the two prompt networks: cpu, cuda, cuda:N, or auto for a GPU where this build of
    ONNX Runtime supports one.
    """
    prompt_threads: int = 1
    """CPU threads of one prompt analysis, from 1."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.normalizer not in NORMALIZERS:
            raise ValueError(f"NORMALIZER is {self.normalizer!r}, expected one of {', '.join(NORMALIZERS)}")
        for name, (least, most) in _RANGES.items():
            value = getattr(self, name)
            if not least <= value <= most:
                allowed = f"from {least}" if most == math.inf else f"{least} to {most}"
                raise ValueError(f"{name.upper()} is {value:.12g}, allowed {allowed}")
        if self.prompt_device != "auto" and not PROMPT_DEVICE.fullmatch(self.prompt_device):
            raise ValueError(f"PROMPT_DEVICE is {self.prompt_device!r}, expected auto, cpu, cuda or cuda:0")
