"""The speech-token engine on a GPU, against what the memory's bandwidth allows: `python -m bench.gpu_llm [--json FILE]`.

Weights are random and of the published sizes. Parts: ceilings (copy, read, matrix product), engine (milliseconds a step at 1 to 128
sentences, time to the first token), same (fused steps against the readable path, many sentences against each alone, text that arrives, a
poisoned sentence), soak (callers that hang up).
"""

import argparse
import json
import random
import statistics
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from bench.real_size import PUBLISHED_LLM, llm_tensors
from services.llm.arriving_text import ContinuousText
from services.llm.engine.alone import Alone
from services.llm.engine.engine import Engine
from services.llm.engine.model import SpeechTokenModel
from services.llm.engine.outbox import Outbox
from services.llm.engine.scheduler import Limits
from services.llm.engine.sequence import Sequence
from services.llm.gpu.packing import PackedModel
from services.llm.gpu.start import start_engine
from services.llm.gpu.tuning import TABLE, Blocks, Tuning
from services.llm.request import Grouping, Hop, Profile, Prompt
from services.llm.sampling import RepetitionAwareChooser, SeededDraw
from services.llm.script import Table
from services.llm.whole_text import WholeText

PROMPT_TEXT, PROMPT_SPEECH = 20, 87
TEXT_IDS = 20
POISONED = 950
"""A text id whose embedding is made to be no number."""
PARTS = ("ceilings", "engine", "same", "soak")


@dataclass
class Heard:
    """What one sentence gave, and when."""

    tokens: list[int] = field(default_factory=list)
    times: list[float] = field(default_factory=list)
    error: Exception | None = None
    over: threading.Event = field(default_factory=threading.Event)

    def deliver(self, item: Hop | Exception) -> None:
        if isinstance(item, Exception):
            self.error = item
            self.over.set()
            return
        now = time.perf_counter()
        self.tokens += item.tokens
        self.times += [now] * len(item.tokens)
        if item.outcome:
            self.over.set()


def script(seed: int, text_ids: int = TEXT_IDS, speech: int = PROMPT_SPEECH) -> WholeText:
    """A sentence whose ids follow from its seed."""
    prompt = Prompt(tuple((31 * seed + i) % 900 for i in range(PROMPT_TEXT)), tuple((17 * seed + 13 * i) % 6561 for i in range(speech)))
    text = tuple((7 * seed + 3 * i) % 900 for i in range(text_ids))
    return WholeText(prompt, text, Profile.CONTINUOUS, RepetitionAwareChooser(PUBLISHED_LLM.sampling, SeededDraw(seed, 0)))


def capacity(text_ids: int = TEXT_IDS, speech: int = PROMPT_SPEECH) -> int:
    return 2 + PROMPT_TEXT + speech + text_ids + PUBLISHED_LLM.lengths.longest(text_ids)


def speak(engine: Engine, seeds: range | list[int], text_ids: int = TEXT_IDS, speech: int = PROMPT_SPEECH) -> list[Heard]:
    """All at once, to the end."""
    heard = [Heard() for _ in seeds]
    for seed, one in zip(seeds, heard, strict=True):
        engine.submit(script(seed, text_ids, speech), capacity(text_ids, speech), Outbox(one.deliver, Grouping(first=1, rest=1)))
    for one in heard:
        if not one.over.wait(120):
            raise TimeoutError("a sentence did not end")
        if one.error:
            raise one.error
    return heard


def engine_of(model: SpeechTokenModel, most: int, dtype: torch.dtype) -> Engine:
    return start_engine(model, Limits(running=most, waiting=most), device=model.device, dtype=dtype, positions=2048, on_fault=print)


def random_model(*, ends: bool) -> SpeechTokenModel:
    device = torch.device("cuda")
    return SpeechTokenModel.build(PUBLISHED_LLM, llm_tensors(PUBLISHED_LLM, device, ends=ends), device)


def timed(body: Callable[[], object], repeats: int = 10) -> float:
    """Median milliseconds on the device."""
    body()
    taken = []
    for _ in range(repeats):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
        begin.record()
        body()
        end.record()
        end.synchronize()
        taken.append(begin.elapsed_time(end))
    return float(statistics.median(taken))


def ceilings() -> dict[str, float]:
    """Bytes a second and operations a second that this device reaches."""
    source = torch.randn(1 << 30, device="cuda")
    target = torch.empty_like(source)
    size = source.numel() * 4
    a, b = (torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    found = {
        "copy_terabytes_per_second": 2 * size / timed(lambda: target.copy_(source)) / 1e9,
        "read_terabytes_per_second": size / timed(lambda: source.sum()) / 1e9,
        "bf16_teraflops": 2 * 8192**3 / timed(lambda: a @ b) / 1e9,
    }
    for name, value in found.items():
        print(f"{name}: {value:.2f}")
    return found


def speed(bandwidth: float) -> list[dict[str, float]]:
    """Steps and first tokens at 1 to 128 sentences. bandwidth: bytes a second."""
    model = random_model(ends=False)
    started = time.perf_counter()
    engine = engine_of(model, 128, torch.bfloat16)
    print(f"engine with all buckets captured in {time.perf_counter() - started:.1f} s")
    packed = engine.model
    assert isinstance(packed, PackedModel)
    del model
    torch.cuda.empty_cache()
    rows = []
    speak(engine, range(4))
    for count in (1, 2, 4, 8, 16, 32, 64, 128):
        heard = speak(engine, range(count))
        whole = [b - a for one in heard for a, b in zip(one.times[150:350], one.times[151:351], strict=True)]
        positions = PROMPT_TEXT + PROMPT_SPEECH + TEXT_IDS + 250
        cached = count * positions * packed.config.layers * 2 * packed.config.kv_width * packed.table.element_size()
        floor = (packed.step_bytes + cached) / bandwidth
        begun = time.perf_counter()
        first = speak(engine, range(count), text_ids=1)
        row = {
            "sentences": count,
            "step_ms": 1e3 * statistics.median(whole),
            "step_p99_ms": 1e3 * sorted(whole)[int(0.99 * len(whole))],
            "floor_ms": 1e3 * floor,
            "share_of_floor": floor / statistics.median(whole),
            "first_token_ms": 1e3 * statistics.median(one.times[0] - begun for one in first),
            "last_first_token_ms": 1e3 * max(one.times[0] - begun for one in first),
        }
        rows.append(row)
        print(
            "{sentences:4} sentences: {step_ms:.3f} ms a step (p99 {step_p99_ms:.3f}), floor {floor_ms:.3f} ms ({share_of_floor:.0%}); "
            "first token {first_token_ms:.1f} ms (median), {last_first_token_ms:.1f} ms (last)".format(**row),
            flush=True,
        )
    for speech in (87, 256 - PROMPT_TEXT - 3, 512, 1000):
        firsts = []
        for _ in range(5):
            begun = time.perf_counter()
            firsts.append(speak(engine, [1], 1, speech)[0].times[0] - begun)
        print(
            f"alone, prompt of {PROMPT_TEXT + speech + 3} positions: first token after {1e3 * statistics.median(firsts):.2f} ms", flush=True
        )
    engine.close()
    return rows


def arriving(seed: int, replay: tuple[int, ...] = ()) -> ContinuousText:
    """A sentence whose text comes by and by, see `pieces`."""
    prompt = Prompt(tuple((31 * seed + i) % 900 for i in range(12)), tuple((17 * seed + 13 * i) % 6561 for i in range(30)))
    return ContinuousText(PUBLISHED_LLM, prompt, RepetitionAwareChooser(PUBLISHED_LLM.sampling, SeededDraw(seed, 0)), replay)


def pieces(seed: int) -> list[list[int]]:
    return [[(7 * seed + 3 * i + j) % 900 for j in range(3)] for i in range(5)]


def speak_arriving(engine: Engine, seeds: list[int], replays: dict[int, tuple[int, ...]] | None = None) -> list[Heard]:
    """All at once, a piece of each text after the other."""
    heard = [Heard() for _ in seeds]
    sequences = [
        engine.submit(arriving(seed, (replays or {}).get(seed, ())), 1024, Outbox(one.deliver, Grouping(first=1, rest=1)))
        for seed, one in zip(seeds, heard, strict=True)
    ]
    for number in range(5):
        for seed, sequence in zip(seeds, sequences, strict=True):
            engine.feed(sequence, pieces(seed)[number])
        time.sleep(0.01)
    for sequence in sequences:
        engine.feed(sequence, None)
    for one in heard:
        if not one.over.wait(60) or one.error:
            raise one.error or TimeoutError("a sentence did not end")
    return heard


def alone_arriving(model: SpeechTokenModel, seed: int) -> list[int]:
    told = arriving(seed)
    for piece in pieces(seed):
        told.feed(piece)
    told.end()
    return Alone(model, told, 1024).run()


def guards(engine: Engine) -> None:
    """A sentence whose numbers are none fails, with its reason; the others do not notice."""
    good = [one.tokens for one in speak(engine, [3, 4], 6)]
    heard = [Heard() for _ in range(3)]
    bad = WholeText(Prompt((), ()), (POISONED,) * 3, Profile.CONTINUOUS, RepetitionAwareChooser(PUBLISHED_LLM.sampling, SeededDraw(1, 0)))
    for told, one in zip((script(3, 6), bad, script(4, 6)), heard, strict=True):
        engine.submit(told, 400, Outbox(one.deliver, Grouping(first=1, rest=1)))
    for one in heard:
        one.over.wait(60)
    alike = heard[0].tokens == good[0] and heard[2].tokens == good[1]
    print(f"poisoned sentence: {type(heard[1].error).__name__}; the others as without it: {alike}", flush=True)


def soak(seconds: float) -> dict[str, Any]:
    """Thirty-two callers, of whom a third hang up somewhere; what is left on the device."""
    engine = engine_of(random_model(ends=True), 32, torch.bfloat16)
    speak(engine, range(32), 6)
    torch.cuda.synchronize()
    before, begun, ended, left = torch.cuda.memory_allocated(), time.perf_counter(), 0, 0
    generator = random.Random(0)
    running: list[tuple[Sequence, Heard, int]] = []
    seed = 0
    while time.perf_counter() - begun < seconds or running:
        while len(running) < 32 and time.perf_counter() - begun < seconds:
            seed += 1
            one = Heard()
            stop = generator.randrange(40) if seed % 3 == 0 else 1 << 30
            running.append((engine.submit(script(seed, 6), capacity(6), Outbox(one.deliver, Grouping(first=1, rest=1))), one, stop))
        time.sleep(0.002)
        for item in list(running):
            sequence, one, stop = item
            if len(one.tokens) >= stop and not one.over.is_set():
                engine.cancel(sequence)
                left += 1
                running.remove(item)
            elif one.over.is_set():
                if one.error:
                    raise one.error
                ended += 1
                running.remove(item)
    torch.cuda.synchronize()
    stats = engine.stats
    found = {
        "ended": ended, "hung_up": left, "device_bytes_before": before, "device_bytes_after": torch.cuda.memory_allocated(),
        "running_after": stats.running, "reserved_after": stats.reserved_kv_bytes,
    }  # fmt: skip
    print(f"soak of {seconds:.0f} s: {found}", flush=True)
    engine.close()
    return found


def same() -> dict[str, Any]:
    """Tokens against the readable path and against the sentence alone."""
    torch.backends.cuda.matmul.allow_tf32 = False
    model = random_model(ends=True)
    seeds = list(range(32))
    found: dict[str, Any] = {}
    with torch.inference_mode():
        slow = [Alone(model, script(seed, 6), capacity(6)).run() for seed in seeds[:12]]
        slow_arriving = [alone_arriving(model, seed) for seed in seeds[:8]]
    model.tables[Table.TEXT][POISONED] = float("nan")
    for precision in ("float32", "bfloat16"):
        engine = engine_of(model, 32, getattr(torch, precision))
        together = [one.tokens for one in speak(engine, seeds, 6)]
        alone = [speak(engine, [seed], 6)[0].tokens for seed in seeds]
        again = [one.tokens for one in speak(engine, seeds, 6)]
        streamed = [one.tokens for one in speak_arriving(engine, seeds[:8])]
        halves = {seed: tuple(tokens[: len(tokens) // 2]) for seed, tokens in zip(seeds, streamed, strict=False)}
        taken_over = [[*halves[seed], *one.tokens] for seed, one in zip(seeds, speak_arriving(engine, seeds[:8], halves), strict=False)]
        guards(engine)
        engine.close()
        for name, left, right in (("readable path", together, slow), ("alone", together, alone), ("again", together, again),
            ("readable path, text that arrives", streamed, slow_arriving), ("taken over half way, text that arrives", streamed, taken_over),
        ):  # fmt: skip
            pairs = list(zip(left, right, strict=False))
            equal = sum(a == b for a, b in pairs)
            agreed = sum(next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b))) for a, b in pairs)
            lost = len(pairs) - equal
            found[f"{precision} {name}"] = {"equal": equal, "of": len(pairs), "agreed_tokens": agreed}
            print(
                f"{precision}, 32 together against {name}: {equal} of {len(pairs)} sentences equal, {lost} partings in {agreed} tokens",
                flush=True,
            )
    return found


def use(table: dict[str, dict[str, Any]]) -> None:
    """Other block sizes from here on."""
    for rows, one in table.items():
        parts: dict[str, Any] = {name: Blocks(**value) if isinstance(value, dict) else value for name, value in one.items()}
        TABLE[int(rows)] = Tuning(**parts)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", choices=PARTS, help="one part only")
    parser.add_argument("--seconds", type=float, default=15.0, help="of the soak")
    parser.add_argument("--blocks", type=Path, help="block sizes other than those of services.llm.gpu.tuning: {rows: Tuning as json}")
    parser.add_argument("--json", type=Path, help="where the figures go; parts add to what is there")
    arguments = parser.parse_args()
    if arguments.blocks:
        use(json.loads(arguments.blocks.read_text()))
    found = json.loads(arguments.json.read_text()) if arguments.json and arguments.json.exists() else {}
    found["device"] = f"{torch.cuda.get_device_name()}, torch {torch.__version__}"
    for part in [arguments.part] if arguments.part else PARTS:
        if part == "ceilings":
            found[part] = ceilings()
        elif part == "engine":
            found.setdefault("ceilings", ceilings())
            found[part] = speed(found["ceilings"]["read_terabytes_per_second"] * 1e12)
        elif part == "same":
            found[part] = same()
        else:
            found[part] = soak(arguments.seconds)
        if arguments.json:
            arguments.json.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
