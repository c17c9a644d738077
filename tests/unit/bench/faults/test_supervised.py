"""The bench of faults under a supervisor: which there are, and when one of them counts as heard."""

import signal
from collections import Counter

import pytest

from bench.faults.supervised import HEAD, Fault, Run, faults, holds, row

CONTROL = Run(digests={0: "a", 1: "b"}, dry=0.02)


def test_there_are_five_faults_of_each_process() -> None:
    stages = ("frontend", "llm", "token2wav", "orchestrator")
    assert Counter(fault.stage for fault in faults(None)) == dict.fromkeys(stages, 5)
    assert [fault.name for fault in faults("llm")] == ["KILL", "TERM", "STOP 3 s", "STOP 10 s", "STOP 60 s"]


@pytest.mark.parametrize(
    ("fault", "limit"),
    [
        (Fault("llm", signal.SIGKILL), 1.0),
        (Fault("llm", signal.SIGSTOP, 10.0), 9.0),
        (Fault("orchestrator", signal.SIGKILL), 15.0),
        (Fault("orchestrator", signal.SIGSTOP, 3.0), 15.0),
    ],
)
def test_the_limits(fault: Fault, limit: float) -> None:
    assert fault.limit == limit


@pytest.mark.parametrize(
    ("run", "sound"),
    [
        (Run(digests={0: "a", 1: "b"}, dry=1.0), True),
        (Run(digests={1: "b"}), True),
        (Run(digests={0: "a", 1: "other"}), False),
        (Run(digests={0: "a", 7: "a"}), False),
        (Run(digests={0: "a"}, failed=["request 1: gone"]), False),
        (Run(digests={0: "a"}, dry=1.03), False),
        (Run(), False),
    ],
)
def test_every_request_has_to_be_complete_the_same_and_in_time(run: Run, sound: bool) -> None:
    assert holds(run, CONTROL, 1.02) == sound


def test_a_row_stands_under_its_head() -> None:
    line = row("llm", "KILL", Run(digests={0: "a", 1: "other"}, dry=0.5, resumed=1, failed=["x"]), CONTROL, 1.02)
    assert line.split() == ["llm", "KILL", "3", "1", "1", "1", "0.500", "s", "1.02", "s"]
    assert len(HEAD.split()) == 9
