"""How long a start takes, by phase."""

import logging
import re

import pytest

from cosyserve.engines.start_phases import phase


def test_a_phase_is_a_line_and_one_that_fails_is_none(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    with phase("reading weights"):
        pass
    with pytest.raises(ValueError, match="broken"), phase("kernels"):
        raise ValueError("broken")
    (line,) = caplog.messages
    assert re.fullmatch(r"start: reading weights took \d+\.\d s", line)
