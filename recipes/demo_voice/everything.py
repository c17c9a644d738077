"""`python -m recipes.demo_voice.everything WORK --corpus FILE --teacher FILE --styles DIR`: each
stage as soon as its inputs are there.

Each stage is the command that the README gives, run in its own process with its output in
`WORK/logs/<stage>.log`. Stages that do not need each other run side by side, spread over the GPUs.
A stage that ended well leaves `WORK/done/<stage>` and is not run again.

With `--start MODEL` speech tokenizer, language model and flow begin with the weights of that model
directory, whose speaker encoder and vocoder are kept. With `--tokenizer FOLDER` too, which an
earlier run left in its work folder, the tokenizer is kept and the time is the other two's.
"""

import argparse
import asyncio
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tqdm import tqdm

from recipes.demo_voice.export import SPEAKER
from recipes.demo_voice.prepare_text import REPLIES
from recipes.demo_voice.synthesise import add_voices
from recipes.demo_voice.tokenizer.trained import ONNX as TOKENIZER
from recipes.demo_voice.training import commands
from services.llm.engine.weights import WEIGHTS as LLM
from services.token2wav.flow.checkpoint import FILE as FLOW
from services.token2wav.vocoder.weights import FILE as VOCODER


@dataclass(frozen=True)
class Stage:
    """One command. after: stages whose results it reads."""

    name: str
    command: tuple[str, ...]
    after: tuple[str, ...] = ()


class Commands:
    """What the options make of each stage's command."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._options = options

    def module(self, name: str, *arguments: object) -> tuple[str, ...]:
        """The command of a stage."""
        written = (str(argument) for argument in arguments)
        return (sys.executable, "-m", f"recipes.demo_voice.{name}", str(self._options.work), *written)

    def trained(self, name: str, share: float, gpu: int, *arguments: object) -> tuple[str, ...]:
        """The command of a training on one of the GPUs. share: of the minutes."""
        gpus = self._options.gpus
        device = f"cuda:{gpu % gpus}" if gpus else "cpu"
        return self.module(name, "--device", device, "--minutes", f"{share * self._options.minutes:.2f}", *arguments)

    def speech(self) -> list[Stage]:
        """What every way begins with."""
        options = self._options
        everywhere = ("--device", "cuda" if options.gpus else "cpu")
        spoken = ("--teacher", options.teacher, "--styles", options.styles, "--hours", options.hours, *everywhere)
        voices = ("--main-share", options.main_share, "--blends", options.blends)
        return [
            Stage("text", self.module("prepare_text", "--sentences", options.corpus, "--replies", options.replies)),
            Stage("speech", self.module("synthesise", *spoken, *voices, "--processes", options.speakers), ("text",)),
            Stage("features", self.module("features", *everywhere, "--processes", options.processes), ("speech",)),
        ]


def plan(options: argparse.Namespace) -> list[Stage]:
    """The stages in an order in which they could also run one by one.

    The trainings share `minutes`, counted from the first one's beginning.
    """
    commands_ = Commands(options)
    return [
        *commands_.speech(),
        *(_from(options.start, options.tokenizer, commands_) if options.start else _from_nothing(commands_)),
        Stage("timing", commands_.module("timing.learn"), ("export",)),
    ]


def _from_nothing(commands_: Commands) -> list[Stage]:
    module, trained = commands_.module, commands_.trained
    return [
        Stage("tokenizer", trained("tokenizer.train", 0.19, 0, "--digits", 6), ("features",)),
        Stage("speaker", trained("speaker.train", 0.02, 1), ("features",)),
        # The vocoder needs the longest and nothing but speech.
        Stage("vocoder", trained("vocoder.train", 1.0, 1), ("speech",)),
        Stage("llm", trained("language_model.train", 0.28, 0), ("tokenizer",)),
        Stage("flow", trained("flow.train", 0.78, 0), ("tokenizer", "speaker")),
        Stage("export", module("export"), ("llm", "flow", "vocoder")),
    ]


def _from(model: Path, kept: Path | None, commands_: Commands) -> list[Stage]:
    """Of the finished model, speaker encoder and vocoder stay: they know nothing of codes.

    kept: the folder of its tokenizer, which stays as well.
    """
    module, trained = commands_.module, commands_.trained
    bundled = model.resolve()
    if kept:
        tokenizer = trained("tokenizer.train", 0, 0, "--keep", kept.resolve())
    else:
        tokenizer = trained("tokenizer.train", 0.3, 0, "--digits", 6, "--start", bundled / TOKENIZER, "--rate", 1.2e-3)
    shares = (0.75, 1.0) if kept else (0.5, 0.65)
    slower = ("--rate", 1e-3)
    heard = ("--arriving-from", 0)
    return [
        Stage("tokenizer", tokenizer, ("features",)),
        Stage("speaker", trained("speaker.train", 0, 1, "--encoder", bundled / SPEAKER), ("features",)),
        Stage(
            "llm",
            trained("language_model.train", shares[0], 1, "--start", bundled / LLM, *slower, *heard),
            ("tokenizer",),
        ),
        Stage(
            "flow", trained("flow.train", shares[1], 0, "--start", bundled / FLOW, *slower), ("tokenizer", "speaker")
        ),
        Stage("export", module("export", "--vocoder", bundled / VOCODER), ("llm", "flow")),
    ]


async def run(stages: Sequence[Stage], work: Path) -> bool:
    """Start each stage when those before it have ended well; whether all did."""
    (work / "logs").mkdir(parents=True, exist_ok=True)
    (work / "done").mkdir(exist_ok=True)
    began = time.monotonic()
    started: dict[str, asyncio.Task[bool]] = {}

    async def one(stage: Stage) -> bool:
        if not all([await started[name] for name in stage.after]):
            return False
        mark = work / "done" / stage.name
        if mark.exists():
            return True
        tqdm.write(f"{time.monotonic() - began:6.0f} s  {stage.name}: {' '.join(stage.command[1:])}")
        with (work / "logs" / f"{stage.name}.log").open("ab") as log:
            process = await asyncio.create_subprocess_exec(*stage.command, stdout=log, stderr=log)
            status = await process.wait()
        tqdm.write(f"{time.monotonic() - began:6.0f} s  {stage.name}: exit status {status}")
        if status == 0:
            mark.touch()
        return status == 0

    for stage in stages:
        started[stage.name] = asyncio.create_task(one(stage))
    with tqdm(total=len(stages), desc="stages", unit="stage") as bar:
        for task in asyncio.as_completed(list(started.values())):
            await task
            bar.update()
    return all(task.result() for task in started.values())


def main(arguments: Sequence[str] | None = None) -> int:
    parser = commands.stage("everything", __doc__, "work folder with model/phonemes/ in it")
    parser.add_argument(
        "--corpus", type=Path, required=True, help="sentences, one a line or the first column of a TSV; may be .xz"
    )
    parser.add_argument("--teacher", type=Path, required=True, help="Kokoro-82M as ONNX")
    parser.add_argument("--styles", type=Path, required=True, help="folder of the teacher's style vectors, <voice>.npy")
    parser.add_argument("--start", type=Path, metavar="MODEL", help="model directory whose weights are trained on")
    parser.add_argument(
        "--tokenizer", type=Path, metavar="FOLDER", help="with --start: its tokenizer, which is kept as it is"
    )
    parser.add_argument("--replies", type=int, default=REPLIES, help="short replies among the sentences")
    parser.add_argument("--hours", type=float, default=16, help="of speech")
    add_voices(parser)
    parser.add_argument("--gpus", type=int, default=1, help="0 for the CPU")
    parser.add_argument("--speakers", type=int, default=8, help="processes that run the teacher")
    parser.add_argument("--processes", type=int, default=12, help="processes that compute features")
    parser.add_argument("--minutes", type=float, default=28.5, help="that the trainings take together")
    options = parser.parse_args(arguments)
    if options.tokenizer and not options.start:
        parser.error("--tokenizer: only with --start, whose language model and flow know its codes")
    return 0 if asyncio.run(run(plan(options), options.work)) else 1


if __name__ == "__main__":
    sys.exit(main())
