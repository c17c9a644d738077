"""The order of the recipe's stages: each reads what an earlier one writes, and every command is one
that its stage understands.
"""

import argparse
from pathlib import Path

import pytest

from recipes.demo_voice import everything


def planned(*more: str) -> list[everything.Stage]:
    seen: list[argparse.Namespace] = []

    def keep(options: argparse.Namespace) -> list[everything.Stage]:
        seen.append(options)
        return []

    plan = everything.plan
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(everything, "plan", keep)
        patched.setattr("recipes.demo_voice.everything.asyncio.run", lambda waiting: waiting.close() or True)
        everything.main(["work", "--corpus", "c", "--teacher", "t", "--styles", "s", *more])
    return plan(seen[0])


@pytest.mark.parametrize("more", [(), ("--start", "models/demo"), ("--gpus", "0")])
def test_a_stage_comes_behind_those_whose_results_it_reads(more: tuple[str, ...]) -> None:
    names: list[str] = []
    for stage in planned(*more):
        assert set(stage.after) <= set(names)
        names.append(stage.name)
    assert names[-2:] == ["export", "timing"]


def test_a_finished_model_gives_its_weights_to_all_that_is_trained() -> None:
    model = Path("models/demo").resolve()
    stages = {
        stage.name: stage.command for stage in planned("--start", "models/demo", "--gpus", "2", "--minutes", "10")
    }
    assert "vocoder" not in stages
    given = {name: command[-1] for name, command in stages.items() if name in ("speaker", "export")}
    assert given == {"speaker": str(model / "campplus.onnx"), "export": str(model / "hift.pt")}
    for name, file in (("tokenizer", "speech_tokenizer_v2.onnx"), ("llm", "llm.pt"), ("flow", "flow.pt")):
        command = stages[name]
        assert command[command.index("--start") + 1] == str(model / file)
    assert stages["llm"][4:8] == ("--device", "cuda:1", "--minutes", "5.00")
    assert stages["llm"][-2:] == ("--arriving-from", "0")


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (("--tokenizer", "kept"), "--tokenizer: only with --start"),
        (("--main-share", "1.2"), "--main-share: 1.2 is no share: from 0 to 1"),
    ],
)
def test_what_cannot_be_is_refused(more: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        planned(*more)
    assert message in capsys.readouterr().err
