"""`python -m recipes.demo_voice.everything WORK --corpus FILE --teacher FILE --styles DIR`: each
stage as soon as its inputs are there.

Each stage is the command that the README gives, run in its own process with its output in
`WORK/logs/<stage>.log`. Stages that do not need each other run side by side, spread over the GPUs.
A stage that ended well leaves `WORK/done/<stage>` and is not run again.
"""

import argparse
import asyncio
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tqdm import tqdm

from recipes.demo_voice.training import commands


@dataclass(frozen=True)
class Stage:
    """One command. after: stages whose results it reads."""

    name: str
    command: tuple[str, ...]
    after: tuple[str, ...] = ()


def plan(options: argparse.Namespace) -> list[Stage]:
    """The stages in an order in which they could also run one by one.

    The trainings share `minutes`, counted from the first one's beginning.
    """
    work = str(options.work)
    gpus = options.gpus

    def module(name: str, *arguments: object) -> tuple[str, ...]:
        return (sys.executable, "-m", f"recipes.demo_voice.{name}", work, *(str(argument) for argument in arguments))

    def on(gpu: int) -> tuple[str, str]:
        return ("--device", f"cuda:{gpu % gpus}" if gpus else "cpu")

    def minutes(share: float) -> tuple[str, str]:
        return ("--minutes", f"{share * options.minutes:.2f}")

    everywhere = ("--device", "cuda" if gpus else "cpu")
    spoken = ("--teacher", options.teacher, "--styles", options.styles, "--hours", options.hours)
    return [
        Stage("text", module("prepare_text", "--sentences", options.corpus)),
        Stage("speech", module("synthesise", *spoken, *everywhere, "--processes", options.speakers), ("text",)),
        Stage("features", module("features", *everywhere, "--processes", options.processes), ("speech",)),
        Stage("tokenizer", module("tokenizer.train", "--digits", 6, *on(0), *minutes(0.19)), ("features",)),
        Stage("speaker", module("speaker.train", *on(1), *minutes(0.02)), ("features",)),
        # The vocoder needs the longest and nothing but speech.
        Stage("vocoder", module("vocoder.train", *on(1), *minutes(1.0)), ("speech",)),
        Stage("llm", module("language_model.train", *on(0), *minutes(0.28)), ("tokenizer",)),
        Stage("flow", module("flow.train", *on(0), *minutes(0.78)), ("tokenizer", "speaker")),
        Stage("export", module("export"), ("llm", "flow", "vocoder")),
        Stage("timing", module("timing.learn"), ("export",)),
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
    parser.add_argument("--hours", type=float, default=16, help="of speech")
    parser.add_argument("--gpus", type=int, default=1, help="0 for the CPU")
    parser.add_argument("--speakers", type=int, default=8, help="processes that run the teacher")
    parser.add_argument("--processes", type=int, default=12, help="processes that compute features")
    parser.add_argument("--minutes", type=float, default=28.5, help="that the trainings take together")
    options = parser.parse_args(arguments)
    return 0 if asyncio.run(run(plan(options), options.work)) else 1


if __name__ == "__main__":
    sys.exit(main())
