"""`cosyserve demo`: start everything, say one sentence twice, show what the first sound cost, stop everything."""

import argparse
import json
import sys
from pathlib import Path

import numpy as np

from cosyserve.audio import from_pcm
from cosyserve.client import Client
from cosyserve.commands.hearing import Heard, hear
from cosyserve.commands.options import add_json, add_stack, model_directory
from cosyserve.spec import SAMPLE_RATE
from cosyserve.supervision.stack import running_stack
from cosyserve.utterance import STAGES
from cosyserve.wav import WavWriter

HELP = "start everything, say a sentence, stop everything"
TEXT = "Hello! This sentence went through four services before you heard it, and it began to sound while it was still being made."
_SEED = 7
_SHORTEST_SECONDS = 1.0
_SILENCE = 1e-3
"""Root mean square, of full scale 1, below which a recording counts as silent: -60 dB."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-o", "--output", type=Path, default=Path("hello.wav"), metavar="FILE", help="WAV file (default: %(default)s)")
    parser.add_argument("--text", default=TEXT, help="what to say")
    add_stack(parser)
    add_json(parser)


async def run(arguments: argparse.Namespace) -> int:
    model = model_directory(arguments.model)
    print(f"starting frontend, llm, token2wav and orchestrator on {model}", file=sys.stderr)
    stack_of = running_stack(
        model,
        backend=arguments.backend,
        device=arguments.device,
        report=lambda line: print(f"  {line}", file=sys.stderr),
    )
    async with stack_of as stack, Client(stack.address) as client:
        cold, audio = await _speak(client, arguments.text)
        warm, again = await _speak(client, arguments.text)
    if problem := _fault(cold, audio, again):
        print(f"cosyserve: {problem}", file=sys.stderr)
        return 1
    with WavWriter(arguments.output, SAMPLE_RATE) as file:
        file.write(audio)
    if arguments.json:
        print(json.dumps({"output": str(arguments.output), "cold": cold.as_dict(), "warm": warm.as_dict()}))
    else:
        print(f"{arguments.output}: {cold.seconds:.2f} s of audio, voice {cold.header.voice}, seed {cold.header.seed}")
        print(_table({"cold": cold, "warm": warm}))
    return 0


async def _speak(client: Client, text: str) -> tuple[Heard, bytes]:
    pieces: list[bytes] = []

    async def play(audio: bytes) -> None:
        pieces.append(audio)

    heard = await hear(client.synthesize(text, seed=_SEED), play)
    return heard, b"".join(pieces)


def _fault(heard: Heard, audio: bytes, again: bytes) -> str | None:
    """What is wrong with the audio, if anything."""
    if heard.seconds < _SHORTEST_SECONDS:
        return f"the audio has only {heard.seconds:.2f} s"
    loudness = float(np.sqrt(np.mean(np.square(from_pcm(audio), dtype=np.float64))))
    if loudness < _SILENCE:
        return f"the audio is silent: root mean square {loudness:.1e} of full scale"
    if audio != again:
        return "the same request with the same seed gave other samples"
    return None


def _table(runs: dict[str, Heard]) -> str:
    columns = ("first sound", "RTF", *(stage.replace("_", " ") for stage in STAGES))
    lines = [f"{'':<22}" + "".join(f"{column:>13}" for column in columns)]
    for name, heard in runs.items():
        first = f"{1000 * heard.first_sound_seconds:.0f} ms"
        for kind, stages in (("to first sound", heard.summary.first_sound), ("in all", heard.summary.total)):
            head = (first, f"{heard.real_time_factor:.2f}") if kind == "to first sound" else ("", "")
            cells = (*head, *(f"{stages[stage]:.0f} ms" for stage in STAGES))
            lines.append(f"{name + ', ' + kind:<22}" + "".join(f"{cell:>13}" for cell in cells))
    return "\n".join(lines)
