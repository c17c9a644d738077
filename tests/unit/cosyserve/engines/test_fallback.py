"""The ladder steps down with a reason, once, and not at all when it must not."""

import logging
import threading
import weakref
from collections.abc import Callable
from functools import partial

import pytest

from cosyserve.engines.fallback import (
    Candidate,
    EngineUnavailable,
    LoadedEngine,
    Refusal,
    ResumeFrom,
    first_speaking,
    first_working,
    without_paths,
)
from cosyserve.errors import InternalFault, ModelError, SettingsError


def refusing(error: Exception) -> object:
    raise error


def rungs(first: Exception, second: Exception | None = None) -> list[Candidate[object]]:
    return [
        Candidate("best", lambda: refusing(first), needs_files=True),
        Candidate("good", lambda: refusing(second) if second else "good engine"),
        Candidate("plain", lambda: "plain engine"),
    ]


def test_each_step_down_is_logged_once_and_told_without_paths(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        ladder = rungs(ModelError("/srv/engines/llm.engine-1: built for another GPU"), EngineUnavailable("no Triton"))
        footing = first_working("llm", ladder, strict=False, setting="STRICT")
    assert (footing.engine, footing.rung) == ("plain engine", "plain")
    assert footing.refused == (Refusal("best", "llm.engine-1: built for another GPU"), Refusal("good", "no Triton"))
    assert [record.getMessage() for record in caplog.records] == [
        "llm: best does not serve, good is tried next: /srv/engines/llm.engine-1: built for another GPU",
        "llm: good does not serve, plain is tried next: no Triton",
        "llm: plain serves",
    ]


def waits() -> object:
    return threading.Event().wait()


ENDS: dict[str, tuple[list[Candidate[object]], bool, type[Exception], str]] = {
    "strict refuses the first step down with its reason": (
        rungs(EngineUnavailable("the package is not installed")),
        True,
        SettingsError,
        "STRICT is true and best cannot serve: the package is not installed",
    ),
    "a broken model is no reason to step down from what needs no files of its own": (
        rungs(EngineUnavailable("no"), ModelError("flow.pt: missing")),
        False,
        ModelError,
        r"flow\.pt: missing",
    ),
    "the last rung says what is wrong itself": (
        [Candidate("cpu", lambda: refusing(SettingsError("model is not set")))],
        True,
        SettingsError,
        r"^model is not set$",
    ),
    "other faults pass through": (rungs(ZeroDivisionError("of the engine")), False, ZeroDivisionError, "of the engine"),
    "strict waits no longer than the limit": (
        [Candidate("best", waits), Candidate("plain", lambda: "plain engine")],
        True,
        EngineUnavailable,
        r"STRICT is true and best cannot serve: best did not load in 0\.1 s",
    ),
    "the last rung has the limit, too": (
        [Candidate("best", waits)],
        False,
        EngineUnavailable,
        r"^best did not load in 0\.1 s",
    ),
}


@pytest.mark.parametrize(("ladder", "strict", "error", "message"), ENDS.values(), ids=ENDS)
def test_where_the_ladder_ends_the_reason_is_raised(
    ladder: list[Candidate[object]], strict: bool, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        first_working("llm", ladder, strict=strict, setting="STRICT", load_seconds=0.1)


def test_strict_takes_the_first_that_serves() -> None:
    assert first_working("llm", rungs(EngineUnavailable("no"))[1:], strict=True, setting="STRICT").rung == "good"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("/models/a b/x: missing", "a b/x: missing"),
        (
            "make it with: cosyserve model build /srv/m --precision fp16",
            "make it with: cosyserve model build m --precision fp16",
        ),
        ("see https://example.org/a/b (1/2 of it)", "see https://example.org/a/b (1/2 of it)"),
        ("'/var/lib/x.json' and (/etc/y)", "'x.json' and (y)"),
    ],
)
def test_paths_are_left_with_their_last_part(text: str, told: str) -> None:
    assert without_paths(text) == told


def with_files(*, strict: bool = False) -> tuple[Callable[[ResumeFrom | None], LoadedEngine[str]], list[str]]:
    """A ladder whose rungs all load, and what has been loaded."""
    loaded: list[str] = []

    def rung(name: str, needs_files: bool) -> Candidate[str]:
        return Candidate(name, lambda: loaded.append(name) or name, needs_files)  # type: ignore[func-returns-value]

    ladder = [rung("best", True), rung("good", True), rung("plain", False)]
    return lambda below: first_working("llm", ladder, strict=strict, setting="STRICT", below=below), loaded


async def speak(engine: str, mute: tuple[str, ...] = ("best",)) -> str:
    if engine in mute:
        raise InternalFault("no sound")
    return f"{engine} speaks"


async def test_an_engine_of_files_that_loads_and_does_not_speak_is_stepped_over(
    caplog: pytest.LogCaptureFixture,
) -> None:
    load, loaded = with_files()
    with caplog.at_level(logging.INFO):
        footing, spoken = await first_speaking(load, speak, "/srv/model: it cannot speak")
    assert (footing.rung, spoken, loaded) == ("good", "good speaks", ["best", "good"])
    assert footing.refused == (Refusal("best", "model: it cannot speak: no sound"),)
    assert [record.getMessage() for record in caplog.records] == [
        "llm: best serves",
        "llm: best does not serve, good is tried next: /srv/model: it cannot speak: no sound",
        "llm: good serves",
    ]


@pytest.mark.parametrize(
    ("strict", "error", "message", "tried"),
    [
        pytest.param(
            False,
            ModelError,
            "it cannot speak: no sound",
            ["best", "good", "plain"],
            id="an engine without files has a broken model",
        ),
        pytest.param(
            True,
            EngineUnavailable,
            "STRICT is true and best cannot serve: it cannot speak: no sound",
            ["best"],
            id="strict takes no other engine",
        ),
    ],
)
async def test_where_no_engine_speaks_the_reason_is_raised(
    strict: bool, error: type[Exception], message: str, tried: list[str]
) -> None:
    load, loaded = with_files(strict=strict)
    with pytest.raises(error, match=message):
        await first_speaking(load, partial(speak, mute=("best", "good", "plain")), "it cannot speak")
    assert loaded == tried


class Mute:
    """An engine with memory of its own."""


async def test_an_engine_that_did_not_speak_is_gone_before_the_next_is_loaded() -> None:
    made, gone = [Mute()], threading.Event()
    weakref.finalize(made[0], gone.set)
    freed: list[bool] = []

    def next_engine() -> Mute:
        freed.append(gone.wait(5.0))
        return Mute()

    async def speak_if_freed(engine: Mute) -> None:
        if not freed:
            raise InternalFault("no sound")

    ladder = [Candidate("best", made.pop, needs_files=True), Candidate("good", next_engine)]
    footing, _ = await first_speaking(
        lambda below: first_working("llm", ladder, strict=False, setting="STRICT", below=below),
        speak_if_freed,
        "it cannot speak",
    )
    assert (footing.rung, freed) == ("good", [True])


def test_an_engine_that_does_not_load_in_its_time_is_stepped_over(caplog: pytest.LogCaptureFixture) -> None:
    hanging, released = threading.Event(), threading.Event()

    def hang() -> str:
        hanging.wait(30)
        return "best engine"

    ladder = [
        Candidate("best", hang, needs_files=True, discard=lambda engine: released.set()),
        Candidate("plain", lambda: "plain engine"),
    ]
    footing = first_working("llm", ladder, strict=False, setting="STRICT", load_seconds=0.1)
    assert (footing.engine, footing.rung) == ("plain engine", "plain")
    assert footing.refused == (Refusal("best", "best did not load in 0.1 s, the limit that LOAD_SECONDS sets"),)
    assert not released.is_set()
    hanging.set()
    assert released.wait(10), "an engine that comes too late gives its memory back"
