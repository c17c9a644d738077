"""The system's player: which is taken, what it is given, and what is said when it fails. The
programs are stand-ins.
"""

import wave
from pathlib import Path

import pytest

from cosyserve.commands.terminal.players import PROGRAMS, Player, PlayerError, Program, installed_player
from tests.unit.cosyserve.host.fake_gpu import put_program

PCM = bytes(range(256)) * 400


def install(folder: Path, name: str, body: str) -> None:
    """A program that keeps what it is given beside itself."""
    put_program(folder, name, f"import pathlib, sys\nhere = pathlib.Path(__file__).parent\n{body}\n")


KEEPS = "(here / 'heard').write_bytes(sys.stdin.buffer.read()); (here / 'told').write_text(' '.join(sys.argv[1:]))"
READS_FILE = "(here / 'heard').write_bytes(pathlib.Path(sys.argv[-1]).read_bytes())"


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PATH", str(tmp_path))
    return tmp_path


async def played(program: Program) -> None:
    async with Player(program, 16_000) as player:
        for start in range(0, len(PCM), 10_000):
            await player.play(PCM[start : start + 10_000])


@pytest.mark.parametrize("program", PROGRAMS, ids=[program.name for program in PROGRAMS])
async def test_each_program_gets_all_samples_and_their_rate(programs: Path, program: Program) -> None:
    install(programs, program.name, READS_FILE if program.takes == "file" else KEEPS)
    assert installed_player() is program
    await played(program)
    heard = (programs / "heard").read_bytes()
    if program.takes == "raw":
        assert heard == PCM
        assert "16000" in (programs / "told").read_text()
    else:
        assert heard[:4] == b"RIFF"
        assert int.from_bytes(heard[24:28], "little") == 16_000
        assert heard[44:] == PCM
    if program.takes == "file":
        with wave.open(str(programs / "heard")) as file:
            assert file.getnframes() == len(PCM) // 2


def test_the_first_that_is_there_is_taken_and_none_is_said(programs: Path) -> None:
    with pytest.raises(
        PlayerError,
        match=r"no player is installed; looked for pw-play, paplay, aplay, ffplay, afplay, play\. Install one",
    ):
        installed_player()
    for name in ("play", "aplay"):
        install(programs, name, KEEPS)
    assert installed_player().name == "aplay"


@pytest.mark.parametrize("reads", ["", "sys.stdin.buffer.read();"])
async def test_a_player_that_fails_is_named_with_what_it_said(programs: Path, reads: str) -> None:
    install(programs, "aplay", f"{reads}sys.exit('audio open error: no such device')")
    with pytest.raises(PlayerError, match="--play: aplay ended with status 1: audio open error: no such device"):
        await played(installed_player())


async def test_a_speech_that_fails_ends_the_player(programs: Path) -> None:
    install(programs, "aplay", "sys.stdin.buffer.read(1); import time; time.sleep(60)")
    player = Player(installed_player(), 16_000)

    async def fail() -> None:
        async with player:
            await player.play(PCM[:100])
            raise KeyError

    with pytest.raises(KeyError):
        await fail()
    assert player._process.returncode == -9
