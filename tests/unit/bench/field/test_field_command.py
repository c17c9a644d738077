"""The command line of the benchmark of the field."""

from pathlib import Path

import pytest

from bench.field import __main__ as command
from bench.field import merge
from bench.field.server import FAKE, Server
from bench.parts.ledger import Ledger
from bench.parts.part import Part, write
from bench.parts.provenance import Subject


def test_the_parts_of_a_machine_without_a_gpu_are_small(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command, "gpus", list)
    assert command.main(["--list"]) == 0
    names = [line.split()[0] for line in capsys.readouterr().out.splitlines()]
    assert names == ["http-low", "grpc-low", "lengths", "voices-warm", "voices-cold"]


def test_of_a_running_server_only_what_can_be_reached_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "gpus", list)
    seen: list[Part] = []
    monkeypatch.setattr(command, "execute", lambda options, parts, report: seen.extend(parts) or 0)
    words = ["--url", "http://gpu:8080/", "--voice", "a", "--rates", "1,20", "--part", "http-low"]
    assert command.main(words) == 0
    prevented = {part.name: part.prevented for part in seen}
    assert [name for name, why in prevented.items() if not why] == ["http-low", "http-high", "lengths"]
    assert "over grpc" in prevented["grpc-low"]
    (line,) = seen[0].commands
    assert line[line.index("--url") + 1] == "http://gpu:8080/"
    assert line.count("--part") == 1


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--json", "x.json"], "--json needs one --part of http-low"),
        (["--json", "x.json", "--part", "http-low", "--part", "lengths"], "--json needs one --part"),
        (["--rates", "0"], "no list of numbers above 0"),
        (["--requests", "0"], "no number from 1"),
        (["--url", "https://gpu:8080"], "no host and port without TLS"),
        (["--url", "gpu:1", "--model", "models/demo"], "--model is of services that are started here"),
    ],
)
def test_what_cannot_be_measured_is_said(words: list[str], told: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        command.main(words)
    assert ended.value.code == 2
    assert told in capsys.readouterr().err


def test_parts_under_other_conditions_do_not_end_the_report(tmp_path: Path) -> None:
    subject = {"machine": "m", "versions": {}, "source": "s", "commit": ""}
    parts = [Part(name, "", ()) for name in ("http-low", "lengths")]
    for number, part in enumerate(parts):
        content = {"part": part.name, "about": "", "subject": subject, "conditions": {"seed": number}, "rows": []}
        write(part.figures(tmp_path), content)
    with pytest.raises(ValueError, match="differ in seed: 0 and 1"):
        merge.merged([merge.read(part.figures(tmp_path)) for part in parts])
    command._report(tmp_path, parts, Ledger(tmp_path, Subject("m", {}, "s", "")))
    assert "differ in seed: 0 and 1; --fresh" in (tmp_path / "report.md").read_text()


@pytest.mark.parametrize(
    ("server", "device"),
    [
        (Server("m", Path("m"), device="cuda"), "first"),
        (Server("m", Path("m"), device="cuda:1"), "second"),
        (Server("m", Path("m"), device="cpu"), "a processor"),
        (Server("m", Path("m"), backend=FAKE, device="cuda"), "a processor"),
        (Server("m", addresses={"http": "gpu:8080"}, device="cuda"), ""),
    ],
)
def test_the_device_that_computes_is_named(server: Server, device: str) -> None:
    assert server.computes_on(["first", "second"], "a processor") == device
