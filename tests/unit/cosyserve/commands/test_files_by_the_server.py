"""`--encoding mp3` and its like: the server encodes, the command writes what it sends."""

import argparse
from pathlib import Path

import pytest

from cosyserve.audio.encoding import CompressedEncoding
from cosyserve.commands.terminal import audio_output
from cosyserve.commands.terminal.audio_output import _Output
from cosyserve.commands.terminal.output import WrongUsage
from cosyserve.commands.terminal.synthesis_arguments import add_synthesis_options, check_usage


def parsed(*options: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    add_synthesis_options(parser, ("sft",))
    return parser.parse_args(options)


@pytest.mark.parametrize("name", ["x.mp3", "x.MP3", "-"])
def test_a_file_of_its_ending_and_standard_output_are_allowed(name: str, tmp_path: Path) -> None:
    output = name if name == "-" else str(tmp_path / name)
    check_usage(parsed("--encoding", "mp3", "-o", output))


@pytest.mark.parametrize(
    ("options", "wrong"),
    [
        (("--encoding", "mp3", "-o", "x.wav"), "x.wav: --encoding mp3 is for a file that ends in .mp3, or -"),
        (("--encoding", "opus", "-o", "x.mp3"), "x.mp3: --encoding opus is for a file that ends in .opus, .ogg, or -"),
        (("--encoding", "mulaw", "-o", "x.mp3"), "x.mp3: --encoding mulaw is for WAV files and raw audio"),
        (("--encoding", "opus", "-o", "-", "--rate", "44100"), "--rate: opus cannot hold 44100 Hz"),
        (("--encoding", "mp3", "-o", "-", "--play"), "--play plays linear16"),
    ],
)
def test_others_are_wrong_usage(options: tuple[str, ...], wrong: str) -> None:
    with pytest.raises(WrongUsage, match=wrong):
        check_usage(parsed(*options))


def test_the_command_needs_no_encoder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audio_output, "is_installed", lambda: False)
    file = str(tmp_path / "x.flac")
    check_usage(parsed("--encoding", "flac", "-o", file))
    with pytest.raises(WrongUsage, match=r"needs the extra audio.*or have the server encode: --encoding flac"):
        check_usage(parsed("-o", file))


async def test_the_bytes_of_the_server_are_the_file(tmp_path: Path) -> None:
    file = tmp_path / "x.opus"
    out = _Output(argparse.Namespace(output=str(file), encoding=CompressedEncoding.OGG_OPUS, rate=24_000), None)
    await out.play(b"Ogg")
    await out.play(b"S")
    out.close()
    assert file.read_bytes() == b"OggS"
