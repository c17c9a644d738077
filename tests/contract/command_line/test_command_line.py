"""The command line as a user or a script runs it against a running system, and what it says when
something is not there or not right, to people and to programs.
"""

import json
import os
import socket
import subprocess
import sys
import time
import wave
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any
from unittest import mock

import av
import pytest

from cosyserve.__main__ import main
from tests.stacks.up_process import ROOT

TEXT = "What a script hears is what a person hears."


def _cosyserve(*arguments: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    """The command in this process, with files in place of its standard streams."""
    with TemporaryFile() as text, TemporaryFile("w+") as out, TemporaryFile("w+") as problems:
        text.write(stdin)
        text.seek(0)
        with mock.patch("sys.stdin", text), redirect_stdout(out), redirect_stderr(problems):
            code = main(arguments)
        written = []
        for stream in (out, problems):
            stream.flush()
            stream.buffer.seek(0)
            written.append(stream.buffer.read())
        return subprocess.CompletedProcess(arguments, code, *written)


def _by_a_shell(*arguments: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-m", "cosyserve", *arguments],
        cwd=ROOT,
        input=stdin,
        capture_output=True,
        timeout=120,
        check=False,
    )


def _running(*arguments: str) -> Any:
    """The command as a process, with pipes."""
    command, pipe = [sys.executable, "-m", "cosyserve", *arguments], subprocess.PIPE
    return subprocess.Popen(command, cwd=ROOT, stdin=pipe, stdout=pipe, stderr=pipe)


def test_say_writes_a_wav_file_and_says_what_it_cost(endpoint: str, tmp_path: Path) -> None:
    target = tmp_path / "out.wav"
    done = _by_a_shell("say", TEXT, "-o", str(target), "--seed", "4", "--server", endpoint, "--json")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    with wave.open(str(target)) as file:
        assert (file.getnchannels(), file.getsampwidth(), file.getframerate()) == (1, 2, 24_000)
        assert file.getnframes() / 24_000 == pytest.approx(told["seconds"])
        audio = file.readframes(file.getnframes())
    assert told["seed"] == 4
    assert 0 < told["first_sound_seconds"] <= told["real_time_factor"] * told["seconds"]
    assert (
        told["first_sound_seconds"]
        <= told["first_audible_seconds"]
        < told["real_time_factor"] * told["seconds"] + told["seconds"]
    )
    assert told["onset"] == "trimmed"
    assert set(told["server"]["first_sound"]) == {"frontend", "llm_prefill", "llm_decode", "flow", "vocoder"}

    piped = _by_a_shell("say", "-", "-o", "-", "--seed", "4", "--server", endpoint, stdin=TEXT.encode())
    assert (piped.returncode, piped.stdout) == (0, audio)
    assert b"first byte after" in piped.stderr
    assert b"first audible sample after" in piped.stderr


@pytest.mark.parametrize("ending", [".mp3", ".opus", ".aac", ".flac"])
def test_say_writes_compressed_files(ending: str, endpoint: str, tmp_path: Path) -> None:
    target = tmp_path / f"out{ending}"
    done = _cosyserve("say", TEXT, "-o", str(target), "--seed", "4", "--server", endpoint, "--json")
    assert done.returncode == 0, done.stderr
    with av.open(target) as container:
        seconds = sum(frame.samples / frame.sample_rate for frame in container.decode(audio=0))
    assert seconds == pytest.approx(json.loads(done.stdout)["seconds"], abs=0.1)


def test_say_in_another_form(endpoint: str, tmp_path: Path) -> None:
    target = tmp_path / "out.wav"
    options = ("--rate", "8000", "--encoding", "mulaw", "--unary", "--server", endpoint)
    assert _cosyserve("say", TEXT, "-o", str(target), *options).returncode == 0
    header = target.read_bytes()[:44]
    assert (int.from_bytes(header[20:22], "little"), int.from_bytes(header[24:28], "little")) == (7, 8_000)


def test_say_in_every_mode(endpoint: str, tmp_path: Path) -> None:
    """Of a zero-shot voice; the fakes do not hear the difference, the tests of the pipeline do."""
    modes = [("--prompt-mode", mode) for mode in ("zero_shot", "cross_lingual", "sft")]
    for options in (*modes, ("--instruction", "Slowly.")):
        target = tmp_path / "out.wav"
        spoken = _cosyserve(
            "say", TEXT, "-o", str(target), "--voice", "zs_a", *options, "--retry", "--server", endpoint
        )
        assert spoken.returncode == 0, spoken.stderr
        assert target.stat().st_size > 10_000
        target.unlink()


def test_a_word_is_read_as_it_is_pronounced(endpoint: str) -> None:
    options = ("-o", "-", "--seed", "1", "--server", endpoint)
    told = _cosyserve(
        "say", "A cosy voice.", *options, "--pronounce", "cosy=very long and winding", "--allow-control-tokens"
    )
    assert told.returncode == 0, told.stderr
    assert told.stdout == _cosyserve("say", "A very long and winding voice.", *options).stdout
    assert told.stdout != _cosyserve("say", "A cosy voice.", *options).stdout


def test_a_long_sentence_is_spoken_in_parts_where_it_is_asked_for(endpoint: str) -> None:
    text = "We walked along the river, talked about old times, and came home late."
    options = ("-o", "-", "--seed", "1", "--server", endpoint)
    whole = _cosyserve("say", text, *options)
    limited = _cosyserve("say", text, *options, "--longest-sentence", "40")
    assert limited.returncode == 0, limited.stderr
    assert limited.stdout != whole.stdout
    assert _cosyserve("say", text, *options, "--longest-sentence", "100").stdout == whole.stdout


def test_what_is_not_spoken_as_it_is_written_is_told_beside_the_sound(endpoint: str, tmp_path: Path) -> None:
    text = '<speak>A <emphasis>loud</emphasis> word <prosody rate="slow">slowly</prosody>.</speak>'
    for options in ((), ("--unary",)):
        done = _cosyserve("say", text, "-o", str(tmp_path / "out.wav"), *options, "--server", endpoint, "--json")
        assert done.returncode == 0, done.stderr
        message = (
            "SSML that is not supported; the text inside an element is read, except in metadata, meta, desc and lexicon"
        )
        assert done.stderr.decode() == f"warning: sentence 0: {message}: 'emphasis'\n"
        (told,) = json.loads(done.stdout)["server"]["warnings"]
        assert told == {"kind": "unsupported_markup", "message": message, "left_out": ["emphasis"], "sentence": 0}
    wrong = _cosyserve(
        "say", "<speak>A <break time='9ms'/></speak>", "-o", str(tmp_path / "none.wav"), "--server", endpoint
    )
    assert wrong.returncode == 1
    assert b"SSML, line 1, column 10: break: time is 9 ms, allowed are 10 to 5000 ms" in wrong.stderr


def test_a_listener_who_leaves_is_no_error(endpoint: str) -> None:
    with _running("say", TEXT * 20, "-o", "-", "--server", endpoint) as process:
        os.read(process.stdout.fileno(), 100)
        process.stdout.close()
        assert (process.wait(60), process.stderr.read()) == (0, b"")


def test_voices(endpoint: str) -> None:
    listed = json.loads(_cosyserve("voices", "--server", endpoint, "--json").stdout)["voices"]
    assert [voice["id"] for voice in listed] == ["spk_a", "zs_a"]
    assert [voice["is_default"] for voice in listed] == [True, False]
    head, first, second = _cosyserve("voices", "list", "--server", endpoint).stdout.decode().splitlines()
    assert head.split() == ["ID", "LANGUAGE", "SEX", "PROMPT", "MADE", "CONTENT", "NAME"]
    assert first.split()[:5] == ["spk_a", "-", "-", "vector", "only"]
    assert first.endswith("(default)")
    assert (second.split()[0], second.split()[4]) == ("zs_a", "s")


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (("say", "...", "-o", "{file}"), "cosyserve: INVALID_ARGUMENT: text has nothing to speak"),
        (("say", TEXT, "-o", "{file}", "--voice", "nobody"), "cosyserve: NOT_FOUND: "),
        (
            ("say", TEXT, "-o", "{file}", "--rate", "7999"),
            "cosyserve: INVALID_ARGUMENT: audio_format.sample_rate_hertz is 7999",
        ),
        (
            ("say", TEXT, "-o", "/nowhere/out.wav"),
            "cosyserve: /nowhere/out.wav: cannot be written, /nowhere is no directory",
        ),
        (("say", TEXT, "-o", "/usr"), "cosyserve: /usr: cannot be written, it is a directory"),
        (("convert", "/nowhere/in.wav", "-o", "{file}"), "cosyserve: /nowhere/in.wav: No such file or directory"),
        (("say", TEXT, "-o", "{file}", "--prompt-mode", "zero_shot"), "cosyserve: FAILED_PRECONDITION: server at "),
        (("say", TEXT, "-o", "{file}", "--prompt", "README.md"), "cosyserve: INVALID_ARGUMENT: "),
        (("convert", "README.md", "-o", "{file}"), "cosyserve: INVALID_ARGUMENT: "),
        (
            ("convert", "/dev/null", "-o", "{file}"),
            "cosyserve: INVALID_ARGUMENT: /dev/null has 0 bytes, allowed 1 to 10485760",
        ),
        (("voices", "--server", "127.0.0.1:1"), "cosyserve: UNAVAILABLE: server at 127.0.0.1:1: "),
    ],
)
def test_an_error_is_one_line_and_leaves_no_file(
    endpoint: str, tmp_path: Path, arguments: tuple[str, ...], line: str
) -> None:
    target = tmp_path / "out.wav"
    filled = [argument.format(file=target) for argument in arguments]
    done = _cosyserve(*filled, *(() if "--server" in filled else ("--server", endpoint)))
    assert (done.returncode, done.stdout) == (1, b"")
    assert done.stderr.decode().splitlines()[0].startswith(line)
    assert len(done.stderr.splitlines()) == 1
    assert not target.exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("sing",), "invalid choice: 'sing'"),
        (("say", "x"), "where to: -o FILE, -o - for standard output, or --play"),
        (("say", "x", "-o", "y.wma"), "y.wma: no encoder writes .wma; endings that work: .wav, .wave, or none"),
        (("say", "x", "-o", "y.mp3", "--encoding", "mulaw"), "y.mp3: --encoding mulaw is for WAV files and raw audio"),
        (("say", "x", "-o", "y.opus", "--rate", "44100"), "--rate: opus cannot hold 44100 Hz; allowed are 8000"),
        (("demo", "-o", "y.mp3"), "y.mp3: no encoder writes .mp3"),
        (("say", "x", "-o", "y", "--seed", "-1"), "argument --seed: -1 is not allowed: 0 to 18446744073709551615"),
        (("say", "x", "-o", "y", "--rate", "fast"), "argument --rate: 'fast' is no whole number"),
        (("say", "x", "-o", "y", "--timeout", "0"), "argument --timeout: '0' is no number of seconds above 0"),
        (
            ("say", "x", "-o", "y", "--server", "localhost:99999"),
            "the port of 'localhost:99999' is 99999, allowed 1 to 65535",
        ),
        (("voices", "list", "--server", "localhost"), "'localhost' is not of the form HOST:PORT"),
        (("say", "x", "--play", "--encoding", "mulaw"), "--play plays linear16, and no other encoding"),
        (("say", "x", "-o", "y", "--encoding", "mp3"), "y: --encoding mp3 is for a file that ends in .mp3, or -"),
        (("say", "x", "-o", "y", "--encoding", "mp5"), "'mp5' is none of linear16, mulaw, alaw, mp3, opus, aac, flac"),
        (("say", "x", "-o", "y", "--pronounce", "cosy"), "'cosy' is not of the form WRITTEN=SPOKEN"),
        (
            ("say", "x", "-o", "y", "--least-euler-steps", "4"),
            "argument --least-euler-steps: 4 is not allowed: 5 to 10",
        ),
        (
            ("say", "x", "-o", "y", "--unary", "--least-euler-steps", "6"),
            "--least-euler-steps is for speech that is streamed, --unary always takes ten",
        ),
        (
            ("say", "x", "-o", "y", "--longest-sentence", "9"),
            "argument --longest-sentence: 9 is not allowed: 10 to 20000",
        ),
        (
            ("say", "x", "-o", "y", "--transcript", "what"),
            "--transcript, --prompt-language and --cut-prompt need --prompt",
        ),
        (
            ("convert", "x.wav", "-o", "y", "--voice", "a", "--prompt", "z"),
            "--voice and --prompt: speak like one of them",
        ),
        (("convert", "x.wav", "-o", "y", "--prompt-mode", "instruct"), "invalid choice: 'instruct'"),
        (("up", "--replicas", "llm"), "'llm' is not of the form token2wav=2,llm=1"),
        (
            ("up", "--replicas", "gateway=2"),
            "'gateway' has no replicas; services that can have some: frontend, llm, token2wav",
        ),
        (("up", "--replicas", "llm=17"), "17 replicas of llm were asked for, allowed are 1 to 16"),
        (("up", "--listen", "50051"), "'50051' is not an address to listen on"),
    ],
)
def test_wrong_usage_is_exit_code_2(
    arguments: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    if arguments[0] == "up":
        arguments = (*arguments, "--model", str(ROOT / "tests" / "golden" / "tiny"))
    try:
        code = main(arguments)
    except SystemExit as stop:
        code = stop.code
    assert code == 2
    told = capsys.readouterr()
    assert message in told.err
    assert told.out == ""


def test_a_model_directory_that_is_not_there(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(("up", "--model", str(tmp_path / "none"))) == 1
    assert capsys.readouterr().err == f"cosyserve: {tmp_path / 'none'}: no such model directory\n"


def test_say_speaks_standard_input_while_it_is_written(endpoint: str, tmp_path: Path) -> None:
    options = ("--seed", "4", "--server", endpoint)
    whole = _cosyserve("say", "--stream", "-o", "-", *options, stdin=b"One. Two sentences.")
    assert whole.returncode == 0, whole.stderr
    with _running("say", "--stream", "-o", "-", *options) as process:
        process.stdin.write(b"One. T")
        process.stdin.flush()
        heard = os.read(process.stdout.fileno(), 1_000)
        assert heard, "nothing is heard before the text is over"
        process.stdin.write(b"wo sentences.")
        process.stdin.close()
        heard += process.stdout.read()
        assert process.wait(60) == 0
    assert heard == whole.stdout

    both = _cosyserve("say", "Hello", "--stream", "-o", "-", *options)
    neither = _cosyserve("say", "-o", "-", *options)
    unary = _cosyserve("say", "--stream", "--unary", "-o", "-", *options)
    assert (both.returncode, neither.returncode, unary.returncode) == (2, 2, 2)
    assert b"choose one" in unary.stderr
    assert b"--stream to speak standard input" in both.stderr


COMMANDS = [
    ("say", "x", "-o", "-"),
    ("convert", "README.md", "-o", "-"),
    ("voices",),
    ("voices", "show", "x"),
    ("info",),
]


@pytest.mark.parametrize("command", COMMANDS)
def test_a_server_that_is_not_there_is_reported_within_five_seconds(command: tuple[str, ...]) -> None:
    begin = time.monotonic()
    done = _by_a_shell(*command, "--server", "127.0.0.1:1")
    # Five on an idle machine, with the start of Python; it was ninety.
    assert time.monotonic() - begin < 10
    assert done.returncode == 1
    said = b"cosyserve: UNAVAILABLE: server at 127.0.0.1:1: nothing can be reached there; is it running? cosyserve up\n"
    assert (done.stdout, done.stderr) == (b"", said)


@pytest.fixture
def silent_address() -> Iterator[str]:
    """Where connections are taken and nothing is ever said."""
    with socket.socket() as door:
        door.bind(("127.0.0.1", 0))
        door.listen()
        yield f"127.0.0.1:{door.getsockname()[1]}"


@pytest.mark.parametrize("given", [(), ("--timeout", "1")])
def test_an_address_that_takes_connections_and_says_nothing(silent_address: str, given: tuple[str, ...]) -> None:
    begin = time.monotonic()
    done = _cosyserve("say", "x", "-o", "-", "--server", silent_address, *given)
    assert time.monotonic() - begin < 15
    assert done.returncode == 1
    # A second may be over before the first answer of the address could have come.
    assert b"is it running? cosyserve up" in done.stderr or (
        given and b"not over within the 1 s of --timeout" in done.stderr
    )


def test_a_timeout_bounds_everything(endpoint: str, tmp_path: Path) -> None:
    """Also the waiting for a reader who takes nothing."""
    begin = time.monotonic()
    with _running("say", TEXT * 20, "-o", "-", "--timeout", "2", "--server", endpoint) as process:
        said = process.stderr.read()
        assert process.wait(30) == 1
    assert time.monotonic() - begin < 12
    assert said.startswith(b"cosyserve: DEADLINE_EXCEEDED: ")


@pytest.mark.parametrize(
    ("arguments", "code", "status", "message"),
    [
        (("say", "x", "-o", "a.wav", "--voice", "nobody"), 1, "NOT_FOUND", "cosyserve voices list"),
        (("say", "x", "-o", "a.wma"), 2, "", "endings that work"),
        (("say", "x", "-o", "a.wav", "--seed", "-1"), 2, "", "argument --seed"),
        (("say", "x", "-o", "/nowhere/a.wav"), 1, "", "/nowhere is no directory"),
        (("voices", "show", "nobody"), 1, "NOT_FOUND", "there is no voice 'nobody'"),
    ],
)
def test_errors_are_json_objects_where_results_are(
    endpoint: str, tmp_path: Path, arguments: tuple[str, ...], code: int, status: str, message: str
) -> None:
    done = _cosyserve(*arguments, "--json", "--server", endpoint)
    assert (done.returncode, done.stderr) == (code, b"")
    error = json.loads(done.stdout)["error"]
    assert error["status"] == status
    assert message in error["message"]


def test_with_sound_on_standard_output_the_json_error_is_beside_it(endpoint: str) -> None:
    done = _cosyserve("say", "x", "-o", "-", "--voice", "nobody", "--json", "--server", endpoint)
    assert (done.returncode, done.stdout) == (1, b"")
    assert json.loads(done.stderr)["error"]["status"] == "NOT_FOUND"


def test_an_unknown_voice_is_told_where_voices_are_named(endpoint: str) -> None:
    said = _cosyserve("say", "x", "-o", "-", "--voice", "nobody", "--server", endpoint).stderr.decode()
    assert f"(cosyserve voices list --server {endpoint} names all voices)" in said
    assert _cosyserve("voices", "list", "--server", endpoint).returncode == 0


def test_a_reader_who_leaves_a_list_is_no_error(endpoint: str) -> None:
    command = [sys.executable, "-m", "cosyserve", "voices", "list", "--server", endpoint]
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(command, cwd=ROOT, stdout=write, stderr=subprocess.PIPE, timeout=60, check=False)
    os.close(write)
    assert (done.returncode, done.stderr) == (0, b"")


def test_the_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["--version"])
    assert stop.value.code == 0
    name, version = capsys.readouterr().out.split()
    assert name == "cosyserve"
    assert version[0].isdigit() or version == "unknown"


def test_words_need_no_quotes(endpoint: str) -> None:
    options = ("-o", "-", "--seed", "4", "--server", endpoint)
    whole = _cosyserve("say", "Hello wide world.", *options)
    assert whole.returncode == 0, whole.stderr
    assert _cosyserve("say", "Hello", "wide", "world.", *options).stdout == whole.stdout
    assert _cosyserve("say", "-", *options, stdin=b"Hello wide world.").stdout == whole.stdout
    nothing = _cosyserve("say", *options, stdin=b"Hello wide world.")
    assert nothing.returncode == 2
    assert b"- to read it from standard input" in nothing.stderr


def test_figures_have_one_style(endpoint: str, tmp_path: Path) -> None:
    assert "e+" not in _cosyserve("info", "--server", endpoint).stdout.decode()
    done = json.loads(
        _cosyserve("say", TEXT, "-o", str(tmp_path / "out.wav"), "--server", endpoint, "--json").stdout, parse_float=str
    )
    figures = [done["seconds"], done["real_time_factor"], *done["server"]["total"].values()]
    assert all(len(figure.partition(".")[2]) <= 6 for figure in figures if isinstance(figure, str))
