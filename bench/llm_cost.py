"""What a prompt and a token cost the speech-token model on a CPU: `python -m bench.llm_cost
[--model DIR | --published LAYERS] [--json FILE]`.

One sentence behind the prompt of the model's first voice, without engine and services: the readable
way next to the one that serves. CPU time of the thread, so that other work on the machine counts
little (it still takes cache and memory bandwidth); the least and the median of several prompts, the
median of all tokens. A prompt whose voice was heard before has its first positions kept.
--published: random weights of the published sizes with so many layers instead, and a prompt of 10
s.
"""

import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from bench.generations.random_weights import llm_tensors
from bench.load.command_line import cost_command, show
from bench.load.engines import Speaker, text_ids
from bench.real_size import PUBLISHED_LLM
from services.llm.engine.cpu.passes import CpuPasses
from services.llm.engine.kv_cache import SequenceCache
from services.llm.engine.model import SpeechTokenModel
from services.llm.engine.stepper import Passes, ReadablePasses
from services.llm.engine.weights import ServedModel
from services.llm.generation.request import Profile, Prompt
from services.llm.generation.sampling import RepetitionAwareChooser, SeededDraw
from services.llm.generation.script import WholeText

TEXT = "The quick brown fox jumps over the lazy dog, and then it sleeps in the sun."
KEPT_BYTES = 64 << 20
MOST_TOKENS = 100
Round = tuple[float, float, list[float], list[float]]
"""Seconds of a new prompt, of a known one, of each token and of each decision."""


@dataclass(frozen=True)
class Cost:
    """Milliseconds of CPU time. new_prompt, least_new_prompt: of a voice not heard before;
    known_prompt, least_known_prompt: of one that was. token: the model's. decision: looking for
    what is not finite, and sampling."""

    way: str
    positions: int
    new_prompt: float
    least_new_prompt: float
    known_prompt: float
    least_known_prompt: float
    token: float
    decision: float


def measure(model: SpeechTokenModel, prompt: Prompt, text: tuple[int, ...], repeats: int) -> list[Cost]:
    """The readable way, then the one that serves, taking turns so that what else runs is in
    both.
    """

    ways: dict[str, Callable[[], Passes]] = {
        "readable": lambda: ReadablePasses(model),
        "served": lambda: CpuPasses(model, KEPT_BYTES),
    }
    engines = {name: new() for name, new in ways.items()}
    rounds_by_way: dict[str, list[Round]] = {name: [] for name in ways}
    with torch.inference_mode():
        for seed in range(-1, repeats):
            for name, new in ways.items():
                first, _, _ = _speak(model, new(), prompt, text, seed, 1)
                one = (first, *_speak(model, engines[name], prompt, text, seed, MOST_TOKENS))
                if seed >= 0:
                    rounds_by_way[name].append(one)
    return [_cost(name, prompt, text, rounds) for name, rounds in rounds_by_way.items()]


def _cost(name: str, prompt: Prompt, text: tuple[int, ...], rounds: list[Round]) -> Cost:
    new, known, tokens, decisions = zip(*rounds, strict=True)
    middle = [statistics.median(one for several in column for one in several) for column in (tokens, decisions)]
    numbers = (statistics.median(new), min(new), statistics.median(known), min(known), *middle)
    positions = 2 + len(prompt.text_ids) + len(text) + len(prompt.speech_tokens)
    return Cost(name, positions, *(round(1000 * number, 3) for number in numbers))


def _speak(
    model: SpeechTokenModel, passes: Passes, prompt: Prompt, text: tuple[int, ...], seed: int, most: int
) -> tuple[float, list[float], list[float]]:
    """Seconds of the prompt, of each token and of each decision."""
    chooser = RepetitionAwareChooser(model.config.sampling, SeededDraw(seed + 1, 0))
    script = WholeText(model.config, prompt, text, Profile.CONTINUOUS, chooser)
    cache = SequenceCache.reserve(
        model.config, 2 + len(prompt.text_ids) + len(text) + len(prompt.speech_tokens) + most, model.device
    )
    runs: list[float] = []
    decisions: list[float] = []
    while script.ready and len(runs) < most:
        of_voice, inputs = script.of_voice, script.take()
        begin = time.thread_time()
        scores = passes.scores(inputs, cache, of_voice)
        ran = time.thread_time()
        script.decide(scores)
        runs.append(ran - begin)
        decisions.append(time.thread_time() - ran)
    return runs[0], runs[1:], decisions[1:]


def _published(layers: int) -> tuple[SpeechTokenModel, Prompt, tuple[int, ...]]:
    config = replace(PUBLISHED_LLM, layers=layers, text_vocabulary=1000)
    model = SpeechTokenModel.build(config, llm_tensors(config, torch.device("cpu")), torch.device("cpu"))
    return model, Prompt(tuple(range(40)), tuple(range(250))), tuple(range(100, 120))


def _bundled(path: Path) -> tuple[SpeechTokenModel, Prompt, tuple[int, ...]]:
    model = ServedModel.read(path).load(torch.device("cpu"))
    return model, Speaker.first_of(path).prompt, text_ids(path, [TEXT])[0]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = cost_command("bench.llm_cost", __doc__)
    parser.add_argument(
        "--published", type=int, metavar="LAYERS", help="random weights of the published sizes, so many of 24 layers"
    )
    parser.add_argument("--repeats", type=int, default=9, help="sentences each way (default: %(default)s)")
    options = parser.parse_args(arguments)
    torch.set_num_threads(options.threads)

    def costs() -> list[Cost]:
        subject = _published(options.published) if options.published else _bundled(options.model)
        return measure(*subject, options.repeats)

    return show("bench.llm_cost", costs, options.json)


if __name__ == "__main__":
    sys.exit(main())
