"""`python -m tools.quality.formats`: what a compressed format costs. Held-out sentences are spoken
over HTTP in every format with one seed and decoded by ffmpeg; how long is each, and how many more
words does a recogniser mishear than in pcm?

flac and wav have to be the samples of pcm themselves: of five sentences, which are not recognised.

Exit status: 0 within the limits, 1 a limit is exceeded or it failed, 2 bad arguments.
"""

import argparse
import asyncio
import json
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cosyserve.audio.encoding import from_pcm
from cosyserve.commands.terminal.arguments import model_directory
from cosyserve.host.supervision.supervisor import local_deployment
from cosyserve.spec import SAMPLE_RATE
from tools.clients.decoding import decoded
from tools.quality.command import add_speaking, ending, reported
from tools.quality.recordings.recording import Recording, Sentence, read_sentences, spread, write_recording
from tools.quality.words.alignment import WordErrors, align
from tools.quality.words.recognition import Recogniser
from tools.quality.words.spelling import words_of

PCM = "pcm"
LOSSLESS = ("wav", "flac")
LOSSY = ("mp3", "opus", "aac")
LONGER_SECONDS = {"mp3": 0.1, "aac": 0.1}
"""How much longer than pcm docs/http.md allows a format to be; others are exact."""
MAX_WER_ABOVE_PCM = 0.005
_LOSSLESS_SENTENCES = 5
_SEED = 1
_SECONDS = 120.0
_PATIENCE = 600.0


@dataclass(frozen=True)
class FormatQuality:
    """errors: None where the samples are those of pcm. longer: seconds beyond pcm, for each
    sentence. kilobits: of the file in a second of speech.
    """

    name: str
    errors: WordErrors | None
    longer: tuple[float, ...]
    same_samples: bool
    kilobits: float


def main(argv: Sequence[str] | None = None) -> int:
    top = argparse.ArgumentParser(
        prog="python -m tools.quality.formats", description="Speak sentences in every format; what does each cost?"
    )
    source = top.add_mutually_exclusive_group()
    source.add_argument("--model", type=Path, metavar="DIR", help="start the services on it (default: models/demo)")
    source.add_argument("--server", metavar="URL", help="use a running gateway, such as http://127.0.0.1:8080")
    add_speaking(top, count=40)
    top.add_argument("--json", type=Path, metavar="FILE", help="write everything that was measured")
    arguments = top.parse_args(argv)
    with ending(top, bad_arguments=()):
        sentences = spread(read_sentences(), arguments.count)
        spoken = asyncio.run(_spoken(arguments, sentences))
        qualities = measured(spoken, arguments.threads)
    if arguments.keep:
        for name, recordings in spoken.items():
            for recording, _ in recordings:
                write_recording(arguments.keep / name, recording)
    exceeded = limits_exceeded(qualities)
    figures = [
        {
            "format": quality.name,
            "word_error_rate": quality.errors.rate if quality.errors else None,
            "same_samples": quality.same_samples,
            "longer_seconds": max(quality.longer),
            "kilobits_per_second": quality.kilobits,
        }
        for quality in qualities
    ]
    report = {"sentences": len(sentences), "formats": figures, "exceeded": exceeded}
    return reported(as_table(qualities), json.dumps(report, indent=1), exceeded, arguments.json)


Spoken = dict[str, list[tuple[Recording, int]]]
"""By format: what was decoded, and the bytes of the file."""


async def _spoken(arguments: argparse.Namespace, sentences: Sequence[Sentence]) -> Spoken:
    if arguments.server:
        return await asyncio.to_thread(spoken_over, arguments.server.rstrip("/"), sentences)
    async with local_deployment(model_directory(arguments.model), http="127.0.0.1:0") as stack:
        return await asyncio.to_thread(spoken_over, f"http://{stack.http}", sentences)


def spoken_over(http: str, sentences: Sequence[Sentence]) -> Spoken:
    """Every sentence in every format. Raises OSError for a server that fails, ValueError for a file
    that cannot be decoded.
    """
    spoken: Spoken = {}
    for name in (PCM, *LOSSLESS, *LOSSY):
        for sentence in sentences[:_LOSSLESS_SENTENCES] if name in LOSSLESS else sentences:
            file = _speech(http, sentence.text, name)
            samples = from_pcm(file if name == PCM else decoded(file))
            spoken.setdefault(name, []).append((Recording(sentence, samples, SAMPLE_RATE), len(file)))
    return spoken


def measured(spoken: Spoken, threads: int) -> list[FormatQuality]:
    """One for each format, pcm first."""
    recogniser = Recogniser(threads)
    pcm = [recording for recording, _ in spoken[PCM]]
    qualities = []
    for name, recordings in spoken.items():
        errors = None
        if name not in LOSSLESS:
            errors = sum((_errors(recogniser, recording) for recording, _ in recordings), WordErrors())
        pairs = list(zip((recording for recording, _ in recordings), pcm, strict=False))
        qualities.append(
            FormatQuality(
                name,
                errors,
                tuple(one.seconds - other.seconds for one, other in pairs),
                all(one.samples.tobytes() == other.samples.tobytes() for one, other in pairs),
                8 * sum(size for _, size in recordings) / 1000 / sum(other.seconds for _, other in pairs),
            )
        )
    return qualities


def limits_exceeded(qualities: Sequence[FormatQuality]) -> list[str]:
    """What does not hold, in words."""
    pcm = next(quality for quality in qualities if quality.name == PCM).errors or WordErrors()
    exceeded = []
    for quality in qualities:
        most = LONGER_SECONDS.get(quality.name, 0.0)
        if not all(-1e-9 <= seconds <= most for seconds in quality.longer):
            longest = max(quality.longer, key=abs)
            exceeded.append(f"{quality.name} decodes to {longest:+.3f} s from pcm, allowed 0 to {most:g} s")
        if quality.name in LOSSLESS and not quality.same_samples:
            exceeded.append(f"{quality.name} does not decode to the samples of pcm")
        if quality.errors and quality.errors.rate - pcm.rate > MAX_WER_ABOVE_PCM + 1e-9:
            exceeded.append(
                f"{quality.name}: word error rate {quality.errors.rate:.2%}, pcm {pcm.rate:.2%}, "
                f"allowed {MAX_WER_ABOVE_PCM:.1%} more"
            )
    return exceeded


def as_table(qualities: Sequence[FormatQuality]) -> str:
    """For people."""
    lines = [f"{'format':8}{'word errors':>20}{'longer than pcm':>18}{'kbit/s':>9}"]
    for quality in qualities:
        errors = "the samples of pcm" if quality.same_samples else "other samples"
        if quality.errors:
            errors = f"{quality.errors.errors} of {quality.errors.words}, {quality.errors.rate:.2%}"
        lines.append(f"{quality.name:8}{errors:>20}{1000 * max(quality.longer):>15.0f} ms{quality.kilobits:>9.1f}")
    return "\n".join(lines)


def _errors(recogniser: Recogniser, recording: Recording) -> WordErrors:
    return align(words_of(recording.sentence.text), words_of(recogniser.text_of(recording))).errors


def _speech(http: str, text: str, response_format: str) -> bytes:
    """Asks again while the server is busy."""
    fields: dict[str, Any] = {"input": text, "seed": _SEED, "response_format": response_format}
    request = urllib.request.Request(  # noqa: S310 - an address that was given as an option
        f"{http}/v1/audio/speech", json.dumps(fields).encode(), headers={"content-type": "application/json"}
    )
    until = time.monotonic() + _PATIENCE
    while True:
        try:
            with urllib.request.urlopen(request, timeout=_SECONDS) as answer:  # noqa: S310
                content: bytes = answer.read()
                return content
        except urllib.error.HTTPError as error:
            if error.code not in (429, 503, 504) or time.monotonic() > until:
                raise
            time.sleep(float(error.headers.get("retry-after", 1)))


if __name__ == "__main__":
    sys.exit(main())
