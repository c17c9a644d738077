"""`cosyserve voices`: lists voices and creates new ones."""

import argparse
import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from pathlib import Path

from cosyserve.client import AsyncClient
from cosyserve.client.types import VoiceDetails, VoiceLine
from cosyserve.commands.terminal.arguments import add_json, add_server, model_directory, pair, voices_url
from cosyserve.commands.terminal.connection_arguments import api_key, client_tls
from cosyserve.commands.terminal.output import print_json, print_table, printable
from cosyserve.commands.terminal.server_package import require_engines, run_module
from cosyserve.commands.terminal.synthesis_arguments import CUT_PROMPT, read_recording

HELP = "list, add, show, change and remove voices; import and export spk2info.pt"
_COLUMNS = ("ID", "LANGUAGE", "SEX", "PROMPT", "MADE", "CONTENT", "NAME")
_TRANSFER = "services.frontend.speaker_transfer"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="ACTION", help="default: list")
    add_server(parser)
    add_json(parser)
    for name, help_ in (
        ("list", "list all voices"),
        ("show", "what is known of a voice"),
        ("rm", "delete a voice for good"),
    ):
        action = actions.add_parser(name, help=help_)
        if name != "list":
            action.add_argument("id", metavar="ID")
        _add_server_and_json(action)
    add = actions.add_parser("add", help="make a voice of a recording")
    add.add_argument(
        "recording", type=Path, metavar="FILE", help="WAV, FLAC, MP3 or Ogg, 1 to 30 s of one person, 16000 Hz or more"
    )
    add.add_argument(
        "--name", default="", metavar="ID", help="what to call it in requests (default: chosen by the server)"
    )
    add.add_argument("--transcript", default="", metavar="TEXT", help="what is said in the recording")
    add.add_argument(
        "--language", default="", metavar="TAG", help="BCP-47 tag such as en-US or zh (default: by script)"
    )
    add.add_argument(
        "--provenance", default="", metavar="TEXT", help="who allowed it and where the recording is from; kept for good"
    )
    add.add_argument("--cut-prompt", action="store_true", help=f"{CUT_PROMPT}; `voices show` says what it would gain")
    _add_labels(add)
    change = actions.add_parser("set", help="change what people call a voice")
    change.add_argument("id", metavar="ID")
    _add_labels(change)
    for name, help_ in (
        ("import", "keep the voices of a spk2info.pt"),
        ("export", "write kept voices as a spk2info.pt"),
    ):
        transfer = actions.add_parser(name, help=f"{help_}; works on the storage itself, on a machine with the engines")
        transfer.add_argument("file", type=Path, metavar="FILE")
        transfer.add_argument(
            "--model", type=Path, metavar="DIR", help="model directory that the voices are for (default: models/demo)"
        )
        transfer.add_argument(
            "--voices",
            metavar="URL",
            help="storage, as COSYSERVE_FRONTEND_VOICES_URL (default: that of `cosyserve up`)",
        )
        transfer.add_argument(
            "--only", action="append", default=[], metavar="ID", help="this voice; may be given again (default: all)"
        )
        if name == "export":
            transfer.add_argument(
                "--layout", choices=("zero-shot", "triton"), default="zero-shot", help="(default: %(default)s)"
            )


def _add_server_and_json(parser: argparse.ArgumentParser) -> None:
    """The options of the command again, so that they work before and after the action."""
    add_server(parser, default=argparse.SUPPRESS)
    add_json(parser, default=argparse.SUPPRESS)


def _add_labels(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--display-name", metavar="TEXT", help="name for people")
    parser.add_argument("--description", metavar="TEXT")
    parser.add_argument(
        "--label", action="append", type=pair("KEY=VALUE"), metavar="KEY=VALUE", help="may be given again"
    )
    _add_server_and_json(parser)


async def run(arguments: argparse.Namespace) -> int:
    if arguments.action in ("import", "export"):
        return await _transfer(arguments)
    async with AsyncClient(arguments.server, api_key(arguments), tls=client_tls(arguments)) as client:
        await client.connect()
        return await _ACTIONS[arguments.action or "list"](client, arguments)


async def _list(client: AsyncClient, arguments: argparse.Namespace) -> int:
    voices = await client.voices()
    if arguments.json:
        print_json({"voices": [asdict(voice) for voice in voices]})
        return 0
    print_table([_COLUMNS, *map(_cells, voices)])
    return 0


async def _show(client: AsyncClient, arguments: argparse.Namespace) -> int:
    return _print(await client.voice(arguments.id), arguments)


async def _remove(client: AsyncClient, arguments: argparse.Namespace) -> int:
    await client.delete_voice(arguments.id)
    if arguments.json:
        print_json({"deleted": arguments.id})
    else:
        print(f"{arguments.id}: deleted")
    return 0


async def _add(client: AsyncClient, arguments: argparse.Namespace) -> int:
    voice = await client.create_voice(
        await asyncio.to_thread(read_recording, arguments.recording),
        voice_id=arguments.name,
        transcript=arguments.transcript,
        language_code=arguments.language,
        provenance=arguments.provenance,
        display_name=arguments.display_name or "",
        description=arguments.description or "",
        labels=dict(arguments.label or ()),
        cut_prompt=arguments.cut_prompt,
    )
    return _print(voice, arguments)


async def _set(client: AsyncClient, arguments: argparse.Namespace) -> int:
    labels = None if arguments.label is None else dict(arguments.label)
    changed = await client.update_voice(
        arguments.id, display_name=arguments.display_name, description=arguments.description, labels=labels
    )
    return _print(changed, arguments)


async def _transfer(arguments: argparse.Namespace) -> int:
    require_engines(f"voices {arguments.action}", "services")
    where = ["--model", str(model_directory(arguments.model)), "--voices", arguments.voices or voices_url()]
    chosen = [option for voice_id in arguments.only for option in ("--only", voice_id)]
    layout = ["--layout", arguments.layout] if arguments.action == "export" else []
    return await run_module(_TRANSFER, arguments.action, str(arguments.file), *where, *chosen, *layout)


def _print(voice: VoiceDetails, arguments: argparse.Namespace) -> int:
    if arguments.json:
        print_json(asdict(voice))
        return 0
    print(f"{voice.id}: {_line(voice)}")
    for name in ("description", "transcript", "provenance"):
        if value := getattr(voice, name):
            print(f"  {name}: {printable(value)}")
    if now := voice.tokens_before_sound:
        cut = voice.tokens_before_sound_if_cut
        gain = f"; {cut} if it is made with --cut-prompt" if cut < now else ""
        print(f"  first sound: after {now} speech tokens{gain}")
    for key, value in voice.labels.items():
        print(f"  {key}={printable(value)}")
    return 0


def _cells(voice: VoiceLine) -> tuple[str, ...]:
    """The cells of _COLUMNS; - for unknown values."""
    language, sex = (printable(text) or "-" for text in (voice.language_code, voice.sex))
    name = printable(voice.display_name) + (" (default)" if voice.is_default else "")
    return (voice.id, language, sex, _prompt(voice), voice.created or "-", voice.content_hash, name.strip())


def _prompt(voice: VoiceLine) -> str:
    return f"{voice.prompt_seconds:.1f} s" if voice.prompt_seconds else "vector only"


def _line(voice: VoiceLine) -> str:
    parts = [f"prompt {_prompt(voice)}", voice.content_hash]
    parts += [part for part in (voice.language_code, voice.created, printable(voice.display_name)) if part]
    return "  ".join(parts) + ("  (default)" if voice.is_default else "")


_ACTIONS: dict[str, Callable[[AsyncClient, argparse.Namespace], Awaitable[int]]] = {
    "list": _list, "show": _show, "rm": _remove, "add": _add, "set": _set,
}  # fmt: skip
