"""More requests than a simulated GPU can speak: some are refused, and who is not hears no gap."""

import pytest

from cosyserve.capacity.report_file import default_profile
from tools.capacity.overload import heard, main


def test_with_too_few_pages_some_are_refused_and_nobody_waits_for_blocks_that_are_made_again() -> None:
    one = heard(default_profile(), 20, 30, seconds=3.0)
    assert 0 < one.refused < one.arrived
    assert one.served == one.arrived - one.refused
    assert one.gap_free > 0.95
    assert one.recomputed < 0.25


def test_a_load_that_is_none_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--rates", "0"]) == 2
    assert "no list of numbers" in capsys.readouterr().err
    assert main(["--sentences", "5"]) == 2
    assert "the shortest and the longest" in capsys.readouterr().err
