"""What settings cost: the mean over pairs with its interval, and what cannot be measured."""

import pytest

from bench.setting_cost import Spent, cost_of, main


def test_the_interval_is_that_of_students_t() -> None:
    pairs = [(Spent(110.0, 30.0), Spent(100.0, 20.0)), (Spent(104.0, 32.0), Spent(100.0, 22.0))]
    cost = cost_of(pairs)
    assert (cost.pairs, cost.cpu_with, cost.cpu_without) == (2, 107.0, 100.0)
    assert (cost.first_with, cost.first_without) == (31.0, 21.0)
    # Differences of 10 and 4 percent: their standard deviation is 3 * sqrt(2), that of the mean 3.
    assert (cost.percent_low, cost.percent, cost.percent_high) == pytest.approx((7 - 38.13, 7, 7 + 38.13))


@pytest.mark.parametrize("given", [["--pairs", "1"], ["--requests", "0"], ["--set", "NAME"], ["--without", "=x"]])
def test_what_cannot_be_measured_is_refused(given: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(given)
    assert given[1] in capsys.readouterr().err
