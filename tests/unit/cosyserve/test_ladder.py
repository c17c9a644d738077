"""The ladder steps down with a reason, once, and not at all when it must not."""

import logging

import pytest

from cosyserve.errors import ModelError, SettingsError
from cosyserve.ladder import Refusal, Rung, Unserved, descend, without_paths


def refusing(error: Exception) -> object:
    raise error


def rungs(first: Exception, second: Exception | None = None) -> list[Rung[object]]:
    return [
        Rung("best", lambda: refusing(first), needs_files=True),
        Rung("good", lambda: refusing(second) if second else "good engine"),
        Rung("plain", lambda: "plain engine"),
    ]


def test_each_step_down_is_logged_once_and_told_without_paths(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        ladder = rungs(ModelError("/srv/engines/llm.engine-1: built for another GPU"), Unserved("no Triton"))
        footing = descend("llm", ladder, strict=False, setting="STRICT")
    assert (footing.engine, footing.rung) == ("plain engine", "plain")
    assert footing.refused == (Refusal("best", "llm.engine-1: built for another GPU"), Refusal("good", "no Triton"))
    assert [record.getMessage() for record in caplog.records] == [
        "llm: best does not serve, good is tried next: /srv/engines/llm.engine-1: built for another GPU",
        "llm: good does not serve, plain is tried next: no Triton",
        "llm: plain serves",
    ]


def test_strict_refuses_the_first_step_down_with_its_reason() -> None:
    with pytest.raises(SettingsError, match="STRICT is true and best cannot serve: the package is not installed"):
        descend("llm", rungs(Unserved("the package is not installed")), strict=True, setting="STRICT")
    assert descend("llm", rungs(Unserved("no"))[1:], strict=True, setting="STRICT").rung == "good"


def test_a_broken_model_is_no_reason_to_step_down_from_what_needs_no_files_of_its_own() -> None:
    with pytest.raises(ModelError, match=r"flow\.pt: missing"):
        descend("llm", rungs(Unserved("no"), ModelError("flow.pt: missing")), strict=False, setting="STRICT")


def test_the_last_rung_says_what_is_wrong_itself() -> None:
    only = [Rung[object]("cpu", lambda: refusing(SettingsError("model is not set")))]
    with pytest.raises(SettingsError, match=r"^model is not set$"):
        descend("llm", only, strict=True, setting="STRICT")


def test_other_faults_pass_through() -> None:
    with pytest.raises(ZeroDivisionError):
        descend("llm", rungs(ZeroDivisionError()), strict=False, setting="STRICT")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("/models/a b/x: missing", "a b/x: missing"),
        ("make it with: cosyserve model build /srv/m --precision fp16", "make it with: cosyserve model build m --precision fp16"),
        ("see https://example.org/a/b (1/2 of it)", "see https://example.org/a/b (1/2 of it)"),
        ("'/var/lib/x.json' and (/etc/y)", "'x.json' and (y)"),
    ],
)
def test_paths_are_left_with_their_last_part(text: str, told: str) -> None:
    assert without_paths(text) == told
