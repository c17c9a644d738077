"""Numbers as commands print them."""

import json

import pytest
from cosyserve.commands.terminal.output import number, plain


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (23068700.0, "23068700"),
        (16777216.0, "16777216"),
        (1.8399999999999999, "1.84"),
        (0.1 + 0.2, "0.3"),
        (5.0, "5"),
        (0.00002, "0.00002"),
    ],
)
def test_a_number_has_no_exponent_and_no_stray_digits(value: float, text: str) -> None:
    assert number(value) == text


def test_json_has_no_stray_digits_at_any_depth() -> None:
    told = {
        "seconds": 1.8399999999999999,
        "many": [23068700.0, {"share": 0.1 + 0.2}],
        "name": "x",
        "whole": 3,
        "yes": True,
        "none": None,
    }
    assert json.dumps(plain(told)) == (
        '{"seconds": 1.84, "many": [23068700, {"share": 0.3}], "name": "x", "whole": 3, "yes": true, "none": null}'
    )
