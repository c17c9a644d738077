"""`python -m recipes.demo_voice.synthesise WORK --teacher kokoro-v1.0.int8.onnx --styles DIR`: the
teacher speaks WORK/text/sentences.tsv.

Plans: `varied` (every sentence by up to four of many voices, speeds from 0.9 to 1.1; what the
student learns from) and `plain` (every sentence by both main voices, or by `--plain-voices`, at the
teacher's own speed; what the student is measured against). Sentences of the split `quality` are
spoken only with `--split quality`.

Ends when the plan is through, after `--minutes`, or when WORK/speech holds `--hours`; started again
it goes on where it was. Writes `WORK/speech/<worker>.s16` and `<worker>.tsv`, see
recipes.demo_voice.training.speech.
"""

import argparse
import multiprocessing
import os
import random
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from multiprocessing.queues import Queue
from multiprocessing.synchronize import Event
from pathlib import Path
from queue import Empty

import torch
from tqdm import tqdm

from cosyserve.spec import SAMPLE_RATE
from recipes.demo_voice.teacher import plan
from recipes.demo_voice.teacher.kokoro import Kokoro, SpeechRequest, numbers
from recipes.demo_voice.teacher.plan import BLENDS, MAIN_SHARE, MAIN_VOICES, Job, Styles
from recipes.demo_voice.teacher.recordings import Refused, Shard, finish, recorded
from recipes.demo_voice.teacher.weights import load_kokoro
from recipes.demo_voice.training import commands
from recipes.demo_voice.training.speech import read_sentences

_POOL = 512
"""Jobs among which those of like length are put into one batch."""


@dataclass(frozen=True)
class Options:
    """What every worker needs to know. main_share, blends: of a varied plan; voices: of a plain
    one. batch: sentences at a time.
    """

    work: Path
    teacher: Path
    styles: Path
    device: str
    processes: int
    plan: str
    splits: tuple[str, ...]
    seed: int
    batch: int
    main_share: float = MAIN_SHARE
    blends: int = BLENDS
    voices: tuple[str, ...] = MAIN_VOICES


@dataclass(frozen=True)
class Report:
    """What a worker made since its last report; `refused` counts by reason."""

    samples: int
    refused: Counter[str]


def jobs(options: Options, presets: Sequence[str]) -> Iterator[Job]:
    """The whole plan, the same in every worker."""
    sentences = [
        each for each in read_sentences(options.work / "text" / "sentences.tsv") if each.split in options.splits
    ]
    if options.plan == "plain":
        return plan.plain(sentences, presets, options.voices)
    return plan.varied(sentences, presets, options.seed, main_share=options.main_share, blends=options.blends)


def batches(todo: Iterator[Job], size: int, seed: int) -> Iterator[list[Job]]:
    """Jobs of like length together, short and long batches in random order: whenever the time is
    up, all lengths have had their share.
    """
    dice = random.Random(seed)  # noqa: S311 - a plan that can be repeated, no secret
    while pool := sorted(islice(todo, _POOL), key=lambda job: len(job.sentence.phonemes)):
        firsts = range(0, len(pool), size)
        for first in dice.sample(firsts, len(firsts)):
            yield pool[first : first + size]


def speak(model: Kokoro, styles: Styles, batch: Sequence[Job], shard: Shard, noise: torch.Generator) -> Report:
    """One batch into the shard."""
    tokens = [numbers(job.sentence.phonemes) for job in batch]
    orders = [
        SpeechRequest(row, styles.style(job.voice, len(row)), job.speed) for job, row in zip(batch, tokens, strict=True)
    ]
    refused: Counter[str] = Counter()
    fit = []
    for job, samples in zip(batch, model.speak(orders, noise), strict=True):
        try:
            fit.append((*job.key, finish(samples.float().cpu().numpy(), len(job.sentence.text))))
        except Refused as reason:
            refused[str(reason)] += 1
    shard.add(fit)
    return Report(sum(len(samples) for *_, samples in fit), refused)


def run_worker(number: int, options: Options, reports: "Queue[Report | None]", stop: Event) -> None:
    """Every `processes`-th job of the plan that no shard holds yet, until there is none or `stop`
    is set.
    """
    device = torch.device(options.device)
    if device.type == "cuda":
        device = torch.device("cuda", number % torch.cuda.device_count() if device.index is None else device.index)
        torch.cuda.set_device(device)
        torch.set_float32_matmul_precision("high")
    torch.set_num_threads(max(1, (os.cpu_count() or 1) // options.processes) if device.type == "cpu" else 1)
    folder = options.work / "speech"
    done = {(each.sentence, each.voice, each.speed) for each in recorded(folder)}
    styles, model = Styles(options.styles), load_kokoro(options.teacher, device)
    noise = torch.Generator(device).manual_seed(options.seed + number)
    mine = (
        job for job in islice(jobs(options, styles.presets), number, None, options.processes) if job.key not in done
    )
    with Shard(folder, f"{number:02d}") as shard:
        for batch in batches(mine, options.batch, options.seed + number):
            if stop.is_set():
                break
            reports.put(speak(model, styles, batch, shard, noise))
    reports.put(None)


def synthesise(options: Options, minutes: float, hours: float) -> Counter[str]:
    """Run the workers until one of the three ends; how many recordings were refused and why. Raises
    RuntimeError when a worker fails.
    """
    folder = options.work / "speech"
    folder.mkdir(parents=True, exist_ok=True)
    samples = sum(each.samples for each in recorded(folder))
    began, refused = time.monotonic(), Counter[str]()
    context = multiprocessing.get_context("spawn")
    reports: Queue[Report | None] = context.Queue()
    stop = context.Event()
    workers = [
        context.Process(target=run_worker, args=(number, options, reports, stop), daemon=True)
        for number in range(options.processes)
    ]
    for worker in workers:
        worker.start()
    running = len(workers)
    written = 0
    with tqdm(
        total=hours if hours < float("inf") else None, initial=samples / 3600 / SAMPLE_RATE, unit="h", desc="speech"
    ) as bar:
        bar.bar_format = "{desc}: {n:.2f} h {bar:20} {elapsed} {postfix}"
        while running:
            if time.monotonic() - began > 60 * minutes or samples + written >= hours * 3600 * SAMPLE_RATE:
                stop.set()
            if any(worker.exitcode for worker in workers):
                stop.set()
                raise RuntimeError("a worker failed; what it said is above")
            try:
                report = reports.get(timeout=1.0)
            except Empty:
                continue
            if report is None:
                running -= 1
                continue
            written += report.samples
            refused += report.refused
            bar.update(report.samples / 3600 / SAMPLE_RATE)
            bar.set_postfix_str(
                f"{written / SAMPLE_RATE / (time.monotonic() - began):.0f} x real time, {refused.total()} refused"
            )
    for worker in workers:
        worker.join()
    return refused


def add_voices(parser: argparse.ArgumentParser) -> None:
    """--main-share, --blends"""
    parser.add_argument(
        "--main-share", type=_share, default=MAIN_SHARE, help="of the speech, by the two voices that are bundled"
    )
    parser.add_argument("--blends", type=int, default=BLENDS, help="mixtures of the teacher's voices that speak")


def _share(text: str) -> float:
    share = float(text)
    if not 0 <= share <= 1:
        raise argparse.ArgumentTypeError(f"{text} is no share: from 0 to 1")
    return share


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit status: 0, or 2 for bad arguments."""
    cuda = torch.cuda.is_available()
    parser = commands.stage("synthesise", __doc__, "work folder with text/ in it")
    parser.add_argument("--teacher", type=Path, required=True, help="kokoro-v1.0.int8.onnx")
    parser.add_argument("--styles", type=Path, required=True, help="folder of style vectors, <voice>.npy")
    parser.add_argument(
        "--device",
        default="cuda" if cuda else "cpu",
        help="cuda spreads the workers over all GPUs; cuda:1 takes that one",
    )
    parser.add_argument("--processes", type=int, default=3 * torch.cuda.device_count() if cuda else os.cpu_count() or 1)
    parser.add_argument("--minutes", type=float, default=float("inf"))
    parser.add_argument("--hours", type=float, default=float("inf"), help="of speech, earlier runs included")
    parser.add_argument("--plan", choices=("varied", "plain"), default="varied")
    parser.add_argument(
        "--split", action="append", choices=("train", "held_out", "quality"), help="default: train and held_out"
    )
    parser.add_argument("--batch", type=int, default=16 if cuda else 1, help="sentences at a time")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--plain-voices",
        nargs="+",
        default=MAIN_VOICES,
        metavar="NAME",
        help="of the plan plain (default: the main two)",
    )
    add_voices(parser)
    given = parser.parse_args(arguments)
    missing = [voice for voice in given.plain_voices if not (given.styles / f"{voice}.npy").is_file()]
    if missing and given.plain_voices is not MAIN_VOICES:
        parser.error(f"{given.styles} has no style vectors of {', '.join(missing)}")
    options = Options(
        work=given.work,
        teacher=given.teacher,
        styles=given.styles,
        device=given.device,
        processes=given.processes,
        plan=given.plan,
        splits=tuple(given.split or ("train", "held_out")),
        seed=given.seed,
        batch=given.batch,
        main_share=given.main_share,
        blends=given.blends,
        voices=tuple(given.plain_voices),
    )
    refused = synthesise(options, given.minutes, given.hours)
    print("refused: " + (", ".join(f"{count} {reason}" for reason, count in refused.most_common()) or "none"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
