"""`cosyserve convert`: speaks what a recording says with another voice."""

import argparse
import asyncio
from pathlib import Path

from cosyserve.client import AsyncClient
from cosyserve.commands.terminal.audio_output import deliver
from cosyserve.commands.terminal.synthesis_arguments import (
    add_synthesis_options,
    check_usage,
    form_options,
    read_recording,
    stream_options,
)
from cosyserve.load.player import Heard, Play, listen

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
    check_usage(arguments)
    how = {**await form_options(arguments), **stream_options(arguments)}
    audio = await asyncio.to_thread(read_recording, arguments.recording)

    async def speak(client: AsyncClient, play: Play) -> Heard:
        speech = client.convert_voice(audio, timeout=arguments.timeout, resumptions=arguments.resume, **how)
        return await listen(speech, play=play)

    return await deliver(arguments, speak)
