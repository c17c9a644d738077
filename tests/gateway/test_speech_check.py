"""What `helm test` runs, against a stack of the bundled voice and one that does not speak."""

import argparse

import numpy as np
import pytest

from cosyserve import speech_check
from cosyserve.errors import Unavailable
from cosyserve.spec import SAMPLE_RATE
from tests.stacks.gateway_server import gateway
from tests.stacks.up_process import DEMO
from tests.stacks.whole_stack import whole_stack

TEXT = "The quick brown fox jumps over the lazy dog."


def arguments(*words: str) -> argparse.Namespace:
    return speech_check.parser().parse_args(list(words))


def tone(seconds: float, loudness: float) -> bytes:
    phase = np.arange(round(seconds * SAMPLE_RATE)) * (2 * np.pi * 200 / SAMPLE_RATE)
    return (loudness * 32767 * np.sin(phase)).astype("<i2").tobytes()


@pytest.mark.parametrize(
    ("samples", "fault"),
    [
        (tone(2.5, 0.3), ""),
        (tone(0.5, 0.3), "0.50 s"),
        (tone(40, 0.3), "40.00 s"),
        (tone(2.5, 0.005), "can be heard"),
        (tone(2.5, 0.3)[:-1], "bytes"),
        (b"", "0.00 s"),
    ],
)
def test_speech_is_as_long_as_its_text_and_can_be_heard(samples: bytes, fault: str) -> None:
    found = speech_check.Spoken("gRPC", samples).fault(TEXT)
    assert fault in found
    assert bool(found) == bool(fault)


async def test_a_stack_that_speaks_over_both_and_a_gateway_that_does_not() -> None:
    async with whole_stack(DEMO) as stack, gateway(stack.address) as door:
        given = arguments("--server", stack.address, "--http", f"http://{door.address}", "--text", "It works.")
        assert (await speech_check.check(given)).endswith("over HTTP, the same samples")
        wrong = arguments("--server", stack.address, "--http", f"http://{door.address}/other", "--text", "It works.")
        with pytest.raises(Unavailable, match="HTTP 404"):
            await speech_check.check(wrong)


@pytest.mark.parametrize(
    ("words", "status"),
    [
        (["--server", "127.0.0.1:1"], 1),
        (["--server", "127.0.0.1:1", "--api-key-file", "no-such-file"], 2),
    ],
)
def test_a_failure_is_one_line_and_a_status(words: list[str], status: int, capsys: pytest.CaptureFixture[str]) -> None:
    assert speech_check.main(words) == status
    captured = capsys.readouterr()
    assert captured.out == ""
    assert len(captured.err.splitlines()) == 1


@pytest.mark.parametrize("words", [["--http", "ftp://host"], ["--text", " "]])
def test_wrong_usage_ends_with_2(words: list[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        speech_check.main(words)
    assert caught.value.code == 2
