"""`cosyserve trace` as it is called: which request it draws, what it says when there is none."""

import json
from pathlib import Path

import pytest

from cosyserve.__main__ import main
from tests.unit.cosyserve.traces.made_trace import BEGIN_NS, ROWS, TRACE, line, written

SLOW, FAST, SILENT = TRACE, "1bf7651916cd43dd8448eb211c80319c", "2cf7651916cd43dd8448eb211c80319c"
LATER_NS = BEGIN_NS + 10_000_000_000


@pytest.fixture
def file(tmp_path: Path) -> str:
    fast = tuple((service, span, parent, name, start / 2, end / 2) for service, span, parent, name, start, end in ROWS)
    silent = tuple(row for row in ROWS if not row[3].startswith("first_sound."))
    return str(
        written(
            tmp_path / "spans.jsonl",
            line(),
            line(fast, FAST, LATER_NS, "mine-2"),
            line(silent, SILENT, 2 * LATER_NS - BEGIN_NS, "mine-3"),
        )
    )


def shown(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(["trace", *arguments]) == 0
    return capsys.readouterr().out


def test_the_drawing(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    drawing = shown(capsys, "mine-1", "--file", file).splitlines()
    assert drawing[:3] == [
        "request mine-1, Synthesize, 2026-11-18 11:06:40 UTC",
        f"trace   {TRACE}",
        "first sound after 200.0 ms, all of it after 500.0 ms",
    ]
    rows = {row[:26].rstrip(): row[26:].rstrip("|") for row in drawing[5:] if row}
    assert [name for name in rows if not name.startswith(" ")] == [
        "gateway",
        "admission",
        "frontend",
        "llm",
        "token2wav",
        "held",
        "on the way, together",
        "no span explains",
    ]
    assert rows["llm"].split("|")[0].split() == ["80.0", "40.0", "%"]
    assert rows["no span explains"].split("|")[0].split() == ["15.5", "7.8", "%"]
    # 200 ms in 44 columns: the LLM's 20 to 100 ms are columns 4 to 22.
    assert rows["llm"].split("|")[1].rstrip() == " " * 4 + "█" * 18
    assert rows["  token2wav.flow 0"].split("|")[1].strip() == "▒" * 7


@pytest.mark.parametrize(
    ("chosen", "trace"),
    [
        ([], FAST),
        (["--newest"], FAST),
        (["--slowest"], SLOW),
        (["mine-1"], SLOW),
        ([SLOW.upper()], SLOW),
        (["1bf7"], FAST),
        (["mine-3"], SILENT),
    ],
)
def test_which_request(file: str, chosen: list[str], trace: str, capsys: pytest.CaptureFixture[str]) -> None:
    (request,) = json.loads(shown(capsys, *chosen, "--json", "--file", file))["requests"]
    assert request["trace_id"] == trace
    assert request["first_sound_milliseconds"] == {SLOW: 200, FAST: 100, SILENT: None}[trace]


def test_json_has_every_part(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    (request,) = json.loads(shown(capsys, "mine-1", "--json", "--file", file))["requests"]
    assert request["unexplained_share"] == 0.0775
    assert request["unexplained"] == [{"start": 9.5, "end": 10}, {"start": 50, "end": 60}, {"start": 150, "end": 155}]
    llm = next(term for term in request["terms"] if term["term"] == "llm")
    assert (llm["start"], llm["end"], llm["on_the_way_milliseconds"]) == (20, 100, 6)
    assert {"name": "llm.prefill", "service": "llm", "start": 30, "end": 50} in llm["work"]


def test_the_summary_of_all(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    table = shown(capsys, "--summary", "--file", file)
    assert "2 requests" in table
    assert "no span explains 7.8 % of the first sound (median)" in table
    figures = json.loads(shown(capsys, "--summary", "--json", "--file", file))
    assert (figures["requests"], figures["milliseconds"]["first_sound"]) == (2, {"p50": 200, "p95": 200})
    assert figures["milliseconds"]["llm"] == {"p50": 80, "p95": 80}


def test_the_file_of_the_services_is_the_default(
    file: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COSYSERVE_TRACE_FILE", file)
    written(Path(f"{file}.1"), line(ROWS, "3df7651916cd43dd8448eb211c80319c", BEGIN_NS, "before"))
    assert "request before" in shown(capsys, "before")


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["mine-4"], 1, "no request mine-4 in 3 traces"),
        (["mine-1", "--slowest"], 2, "ID names one request"),
        (["--newest", "--slowest"], 2, "not allowed with"),
    ],
)
def test_what_is_wrong_is_said(
    file: str, arguments: list[str], code: int, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["trace", *arguments, "--file", file]) == code
    assert message in capsys.readouterr().err


def test_a_terminal_obeys_nothing_that_a_file_says(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = written(tmp_path / "spans.jsonl", line(request_id="\x1b]0;title\x07 mine"))
    assert "request  ]0;title  mine, Synthesize" in shown(capsys, "--file", str(path))


def test_without_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.delenv("COSYSERVE_TRACE_FILE", raising=False)
    assert main(["trace"]) == 2
    assert "--file FILE names one, or the variable COSYSERVE_TRACE_FILE" in capsys.readouterr().err
    assert main(["trace", "--file", str(tmp_path / "none.jsonl")]) == 1
    assert "No such file" in capsys.readouterr().err


def test_a_prefix_of_several_traces(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = written(tmp_path / "spans.jsonl", line(), line(ROWS, TRACE[:-1] + "d"))
    assert main(["trace", TRACE[:8], "--file", str(path)]) == 1
    assert "begins 2 traces" in capsys.readouterr().err
