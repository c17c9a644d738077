"""How long a start takes, by phase."""

import logging
import os
import re
from pathlib import Path

import pytest

from cosyserve.engines.start_phases import phase, process_age


def test_a_phase_is_a_line_and_one_that_fails_is_none(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    with phase("reading weights"):
        pass
    with pytest.raises(ValueError, match="broken"), phase("kernels"):
        raise ValueError("broken")
    (line,) = caplog.messages
    assert re.fullmatch(r"start: reading weights took \d+\.\d s", line)


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="the system has no /proc")
def test_the_age_of_the_process_grows() -> None:
    age = process_age()
    assert age is not None
    later = process_age()
    assert later is not None
    assert 0 < age <= later
    # Not that of the machine, which has run for longer than this test.
    assert later < float(Path("/proc/uptime").read_text().split()[0]) + 1
    assert os.getpid() > 0
