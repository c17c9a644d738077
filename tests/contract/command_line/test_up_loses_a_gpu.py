"""A token2wav whose GPU is lost, below `cosyserve up`: real processes, whose fake engine raises the
error that CUDA does.
"""

import signal

import grpc
import pytest

from cosyserve.client import Client
from cosyserve.engines.device_loss import EXIT_STATUS
from cosyserve.errors import CosyserveError
from tests.stacks.up_process import Up

LOSING = {"COSYSERVE_TOKEN2WAV_FAKE_FAULT": "device_lost", "COSYSERVE_TOKEN2WAV_FAKE_FAULT_SHARE": "0.2"}
"""By seed and sentence, the same on each replica: seed 0, with which engines warm up, is harmless.
"""
POISONED, HARMLESS = 4, 2
"""Seeds of a request."""


def test_two_engines_are_started_again_and_the_request_is_refused_not_given_to_the_third() -> None:
    up, ended = Up("--replicas", "token2wav=3", environ=LOSING), f"exited with code {EXIT_STATUS}"
    try:
        with Client(up.address) as client:
            assert client.synthesize("It works.", seed=HARMLESS).read()
            with pytest.raises(CosyserveError, match="2 engines were lost while they spoke this text") as caught:
                client.synthesize("Poison.", seed=POISONED).read()
            assert caught.value.code is grpc.StatusCode.FAILED_PRECONDITION
            assert client.synthesize("It still works.", seed=HARMLESS).read()
            up.line_with(ended)
    finally:
        code = up.end(signal.SIGINT)
    assert code == 0
    assert sum(ended in line for line in up.lines) == 2
    assert not any("Poison" in line for line in up.lines)
