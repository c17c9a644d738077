"""`cosyserve model`: a step that cannot run here says so in one line."""

import argparse
import importlib.util
from importlib.machinery import ModuleSpec

import pytest

from cosyserve.__main__ import main, parser
from cosyserve.commands import model


def without(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    known = importlib.util.find_spec

    def find(name: str, package: str | None = None) -> ModuleSpec | None:
        return None if name in names else known(name, package)

    monkeypatch.setattr(importlib.util, "find_spec", find)


def test_all_that_follows_the_step_is_the_steps() -> None:
    given = parser().parse_args(["model", "download", "--mirror", "DIR", "x", "--json", "-v", "--"])
    assert (given.step, given.rest) == ("download", ["--mirror", "DIR", "x", "--json", "-v", "--"])


@pytest.mark.parametrize(
    ("step", "missing", "said"),
    [
        ("convert", ("torch",), "model convert needs torch: pip install 'cosyserve[cpu]'"),
        ("convert", ("torch", "tokenizers"), "model convert needs torch and tokenizers: pip install"),
        ("prune", ("tools.model.prune",), "model prune is not part of this installation"),
        ("inspect", ("tools",), "model inspect is not part of this installation"),
    ],
)
def test_what_is_missing_is_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], step: str, missing: tuple[str, ...], said: str
) -> None:
    without(monkeypatch, *missing)
    assert main(["model", step, "x"]) == 1
    assert capsys.readouterr().err.startswith(f"cosyserve: {said}")


async def test_the_steps_status_is_the_commands() -> None:
    assert await model.run(argparse.Namespace(step="convert", rest=["--no-such-option"])) == 2
    assert await model.run(argparse.Namespace(step="build", rest=["--help"])) == 0
