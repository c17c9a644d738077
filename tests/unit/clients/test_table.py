"""The table of clients: its form, its place in a page, and what the checks say."""

import json
from pathlib import Path

import pytest

from tools.clients.attempts import Attempt
from tools.clients.hang_up import HangUp
from tools.clients.same_samples import SameSamples
from tools.clients.table import BEGIN, END, as_json, as_markdown, put_into

TRIED = [
    Attempt("a client", "1.0", "create", "ok", "a.py"),
    Attempt("a client", "1.0", "stream", "Error: a | b", "a.py"),
    Attempt("another", "2.0", "create", "not there yet", "b.py"),
]


def test_a_row_for_each_call_with_the_client_named_once() -> None:
    assert as_markdown(TRIED, ["Samples are the same."], "2026-01-02").splitlines() == [
        "On 2026-01-02:",
        "",
        "| client | version | call | result |",
        "|---|---|---|---|",
        "| a client | 1.0 | create | ok |",
        "| | | stream | Error: a \\| b |",
        "| another | 2.0 | create | not there yet |",
        "",
        "* Samples are the same.",
    ]
    report = json.loads(as_json(TRIED, ["x"], "2026-01-02"))
    assert [row["result"] for row in report["calls"]] == ["ok", "Error: a | b", "not there yet"]


def test_it_replaces_what_a_page_had_between_the_marks(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n", encoding="utf-8")
    put_into(page, "new")
    assert page.read_text(encoding="utf-8") == f"before\n{BEGIN}\nnew\n{END}\nafter\n"
    page.write_text("no marks", encoding="utf-8")
    with pytest.raises(ValueError, match="lacks"):
        put_into(page, "new")


def test_a_stage_that_goes_on_is_named() -> None:
    left = HangUp({"HTTP": [(3.0, "LlmService"), (101.0, "Token2WavService")], "gRPC": [(99.0, "LlmService")]})
    assert left.exceeded == ["HTTP: Token2WavService goes on for 101 ms after a hang-up, allowed 100 ms"]
    assert left.lines()[1] == "gRPC: 99 ms (median of 1), at most 99 ms (LlmService)"


def test_other_samples_are_a_failure_and_a_missing_api_is_none() -> None:
    same = SameSamples({"gRPC": b"abcd", "OpenAI": b"abcd", "WebSocket": b"abce", "ElevenLabs": None})
    assert same.exceeded == ["WebSocket gives other samples than gRPC (2 of them, gRPC 2)"]
    assert [line.partition(": ")[2] for line in same.lines()] == ["the same", "the same", "different", "no such API"]
