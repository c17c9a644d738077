"""`python -m tools.capacity`: a plan run, a share of a large one, what is drawn and refused."""

import json
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from cosyserve.capacity.demand import Demand
from cosyserve.capacity.plan import SEPARATE, Choices, plan
from cosyserve.capacity.report_file import default_profile
from tools.capacity.__main__ import curve, loss, main
from tools.capacity.fleet.outcome import Period, svg
from tools.capacity.planned_fleet import layout, sample

PROFILE = default_profile()


def test_a_small_plan_holds_and_is_drawn(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    drawn = tmp_path / "run.svg"
    asked = ["--streams", "20", "--slo-ms", "250", "--minutes", "0.5", "--curve", "0:1", "--lose", "frontend@0.2"]
    assert main([*asked, "--json", "--svg", str(drawn)]) == 0
    seen = json.loads(capsys.readouterr().out)
    assert seen["holds"] is True
    assert seen["arrived"] == seen["served"] + seen["refused"] + seen["failed"] + seen["running"] > 100
    assert len(ET.fromstring(drawn.read_text()).findall("{http://www.w3.org/2000/svg}polyline")) >= 12


def test_too_much_load_does_not_hold(capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["--streams", "20", "--slo-ms", "60", "--spare", "0", "--minutes", "0.3", "--curve", "0:10"]
    assert main(asked) == 1
    assert "the plan does not hold" in capsys.readouterr().out


def test_a_share_of_many_streams_has_its_share_of_the_pods() -> None:
    whole = plan(PROFILE, Demand(streams=1_000_000, slo=0.25), Choices(), SEPARATE)
    part = sample(PROFILE, whole, 1000)
    assert 500 < part.plan.demand.streams <= 1000
    assert part.share == part.plan.demand.streams / 1_000_000
    assert part.plan.choices.spare == 0
    pods = part.plan.stage("token2wav").pods / whole.stage("token2wav").pods
    assert pods == pytest.approx(part.share, rel=0.02)
    assert sample(PROFILE, part.plan, 1000).whole


def test_a_run_begins_with_the_pods_of_its_first_load() -> None:
    found = plan(PROFILE, Demand(streams=1000, slo=0.25), Choices(spare=1), SEPARATE)
    begun = layout(found, [(0.0, 0.25)], (), 60.0, 10.0)
    for one in found.stages:
        assert 2 <= begun.replicas[one.stage] <= one.pods
    assert begun.replicas["token2wav"] < found.stage("token2wav").pods
    assert begun.pages == found.pages
    assert begun.start_seconds["llm"] == 60.0


def test_curves_and_losses_are_read() -> None:
    assert curve("0:0.5,2:1") == [(0.0, 0.5), (120.0, 1.0)]
    assert loss("token2wav@1.5") == (90.0, "token2wav")


@pytest.mark.parametrize(
    "given",
    [
        ["--curve", "1:1"],
        ["--curve", "0:1,2"],
        ["--curve", "0:1,3:1,2:1"],
        ["--curve", "0:-1"],
        ["--lose", "llm"],
        ["--lose", "vocoder@1"],
        ["--lose", "llm@soon"],
        ["--minutes", "0"],
        ["--most-simulated", "0"],
        ["--slo-ms", "5"],
        ["--report", "missing.json"],
    ],
)
def test_bad_options_are_refused(given: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--streams", "20", "--slo-ms", "250", *given]) == 2
    assert given[1] in capsys.readouterr().err


def test_nothing_cannot_be_drawn() -> None:
    with pytest.raises(ValueError, match="nothing to draw"):
        svg("nothing", [])
    assert "polyline" in svg("a & b", [Period(0.0, arrived=1), Period(10.0, arrived=2)])
