"""`cosyserve voices`: which voices the server has."""

import argparse
import json
from dataclasses import asdict

from cosyserve.client import Client
from cosyserve.commands.options import add_json, add_server

HELP = "list the voices of a server"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_server(parser)
    add_json(parser)


async def run(arguments: argparse.Namespace) -> int:
    async with Client(arguments.server) as client:
        voices = await client.voices()
    if arguments.json:
        print(json.dumps({"voices": [asdict(voice) for voice in voices]}))
        return 0
    width = max((len(voice.id) for voice in voices), default=0)
    for voice in voices:
        prompt = f"{voice.prompt_seconds:4.1f} s prompt" if voice.prompt_seconds else "speaker vector only"
        print(f"{voice.id:<{width}}  {prompt}  {voice.content_hash}{'  (default)' if voice.is_default else ''}")
    return 0
