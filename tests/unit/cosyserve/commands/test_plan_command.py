"""`cosyserve plan` as it is called: what it prints, and what it refuses."""

import argparse
import json
from pathlib import Path

import pytest
import yaml

from cosyserve.__main__ import main
from cosyserve.commands.terminal.plan_arguments import add_plan, planned

ASKED = ["plan", "--streams", "300", "--slo-ms", "250"]


def test_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*ASKED, "--gpu-price", "3", "--cpu-price", "0.05"]) == 0
    told = capsys.readouterr().out
    for stage in ("gateway", "orchestrator", "frontend", "llm", "token2wav"):
        assert f"\n{stage} " in told
    assert "an hour" in told


def test_an_object(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*ASKED, "--json", "--placement", "separate"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["streams"], told["placement"], told["cost_an_hour"]) == (300, "separate", None)
    assert told["gpus"] == sum(one["gpus"] for one in told["stages"])


def test_values(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*ASKED, "--values"]) == 0
    assert set(yaml.safe_load(capsys.readouterr().out)) == {"autoscaling", "services"}


@pytest.mark.parametrize(
    ("given", "tokens"),
    [
        ([], 80),
        (["--first-hop-tokens", "25"], 75),
        (["--first-hop-tokens", "0"], 87),
        (["--generation", "cosyvoice3"], 63),
        (["--prompt-tokens", "60"], 55),
        (["--prompt-tokens", "51"], 51),
    ],
)
def test_prompts_are_cut_as_token2wav_cuts_them(given: list[str], tokens: int) -> None:
    parser = argparse.ArgumentParser()
    add_plan(parser)
    _, found = planned(parser.parse_args([*ASKED[1:], *given]))
    assert found.demand.prompt_tokens == tokens


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (["plan", "--streams", "300"], "--slo-ms"),
        (["plan", "--streams", "0", "--slo-ms", "250"], "0 is not allowed: 1 to 10000000"),
        (["plan", "--streams", "many", "--slo-ms", "250"], "'many' is no whole number"),
        ([*ASKED, "--slo-ms", "nan"], "'nan' is no number of milliseconds from 1 to 60000"),
        ([*ASKED, "--headroom", "1"], "'1' is no share from 0.1 to 0.95"),
        ([*ASKED, "--gpu-price", "-1"], "'-1' is no price from 0"),
        ([*ASKED, "--sentence-seconds", "0"], "'0' is no number of seconds from 1 to 60"),
        ([*ASKED, "--prompt-tokens", "10"], "10 is not allowed: 25 to 750"),
        ([*ASKED, "--placement", "cloud"], "invalid choice: 'cloud'"),
        ([*ASKED, "--slo-ms", "20"], "even a single stream sounds after"),
        ([*ASKED, "--json", "--values"], "not allowed with argument"),
        ([*ASKED, "--svg", "run.svg"], "--svg draws a simulation; add --simulate"),
        ([*ASKED, "--values", "--simulate"], "give one of them"),
    ],
)
def test_bad_options_are_refused(given: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(given) == 2
    told = capsys.readouterr()
    assert says in told.err + told.out


def test_a_bad_report_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "report.json"
    path.write_text('{"figures": {}}')
    assert main([*ASKED, "--report", str(path), "--json"]) == 2
    assert f"{path} lacks the part" in json.loads(capsys.readouterr().out)["error"]["message"]
    assert main([*ASKED, "--report", str(tmp_path / "none.json")]) == 1
    assert "No such file" in capsys.readouterr().err
