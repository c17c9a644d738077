"""`cosyserve convert`: speaks what a recording says with another voice."""

import argparse
import asyncio
from pathlib import Path

from cosyserve.client import AsyncClient
from cosyserve.client.playback import Heard, Play, hear
from cosyserve.commands.terminal.audio_output import deliver, require_writable
from cosyserve.commands.terminal.output import WrongUsage
from cosyserve.commands.terminal.synthesis_arguments import (
    add_synthesis_options,
    form_options,
    read_recording,
    stream_options,
    usage_problem,
)

HELP = "speak what is said in a recording with another voice"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "recording",
        type=Path,
        metavar="FILE",
        help="recording of speech: WAV, FLAC, MP3 or Ogg, 1 to 30 s, 16000 Hz or more",
    )
    add_synthesis_options(parser, ("cross_lingual", "sft"))


async def run(arguments: argparse.Namespace) -> int:
    if problem := usage_problem(arguments):
        raise WrongUsage(problem)
    require_writable(arguments.output)
    how = {**await form_options(arguments), **stream_options(arguments)}
    audio = await asyncio.to_thread(read_recording, arguments.recording)

    async def speak(client: AsyncClient, play: Play) -> Heard:
        return await hear(
            client.convert_voice(audio, timeout=arguments.timeout, resumptions=arguments.resume, **how), play
        )

    return await deliver(arguments, speak)
