"""Parts about the decoder and, through the batcher, many streams."""

import asyncio
import statistics
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from bench.gpu.timing import timed
from bench.gpu.token2wav.random_models import DEVICE, PUBLISHED, RUN, apart, random_flow, random_vocoder
from cosyserve.load.player import BYTES_PER_SAMPLE, Player
from cosyserve.spec import SAMPLE_RATE
from services.token2wav.decoders.interface import Decoded, StepInput
from services.token2wav.flow.flow import as_prompt
from services.token2wav.gpu.decoder import PagedDecoder
from services.token2wav.gpu.device.launcher import Launcher
from services.token2wav.gpu.paged_flow.flow import PagedFlow
from services.token2wav.gpu.paged_flow.unit_table import Unit
from services.token2wav.gpu.windowed_vocoder.vocoder import WindowedVocoder
from services.token2wav.inputs.request import Profile, Sentence, Voice
from services.token2wav.scheduling.batcher import Batcher
from services.token2wav.scheduling.memory_budget import Limits
from services.token2wav.stream import AcousticStream
from services.token2wav.vocoder.vocoder import Vocoder


def _decoder(pages: int, dtype: torch.dtype = torch.bfloat16, graphs: bool = True) -> PagedDecoder:

    config, weights = random_vocoder()
    began = time.perf_counter()
    tuned = Launcher(True, RUN.tuned) if dtype == torch.bfloat16 else None
    flow = PagedFlow(PUBLISHED, random_flow(PUBLISHED, DEVICE), pages=pages, dtype=dtype, most=64, launch=tuned)
    precision = "float16" if dtype == torch.bfloat16 else "ieee"
    vocoder = WindowedVocoder(config, weights, DEVICE, slots=300, launch=flow.launch, precision=precision)
    if graphs:
        flow.capture()
        vocoder.capture()
    memory = torch.cuda.memory_allocated() / 2**30
    print(f"decoder of {pages} pages ready after {time.perf_counter() - began:.1f} s, {memory:.1f} GiB", flush=True)
    return PagedDecoder(flow, vocoder, pages=pages, slots=300, widest_step=32, prompt_pages=100)


def _voice(prompt: int, key: str) -> Voice:

    draw = np.random.default_rng(1)
    mel, embedding = draw.standard_normal((2 * prompt, 80)), draw.standard_normal(192)
    return Voice(draw.integers(0, 6561, prompt), mel.astype(np.float32), embedding.astype(np.float32), key)


def decoder(out: Path) -> dict[str, Any]:
    """The decoder's samples, streams together, alone and with a kept prompt, against the readable
    vocoder over the paged flow's mel.
    """

    config, weights = random_vocoder()
    plain = Vocoder(config, weights, DEVICE)
    fast = _decoder(60)
    cases = [(87, 60), (0, 77), (30, 5), (110, 101)]

    def tokens_of(at: int) -> Any:
        return np.random.default_rng(at).integers(0, 6561, cases[at][1])

    def wanted_of(at: int) -> Tensor:
        flow, voice = fast._flow, as_prompt(_voice(cases[at][0], ""))
        ids, mels = torch.cat([voice.tokens, torch.from_numpy(tokens_of(at))]), []
        for first in range(0, len(ids), 25):
            part, block = ids[first : first + 25], first // 25
            condition = voice.mel[50 * block : 50 * block + 50]
            condition = F.pad(condition, (0, 0, 0, 50 - len(condition))).to(DEVICE)
            ahead = ids[first + 25 : first + 28] if len(part) == 25 else ids[:0]
            unit = Unit(list(range(59 - block, 60))[::-1], part, ahead, flow.speaker(voice.embedding), condition)
            mels.append(flow.run([unit])[0, : 2 * len(part)].clone())
        return plain.offline(torch.cat(mels)[2 * cases[at][0] :].T.contiguous(), 1 << 40 | at, at).cpu()

    def speak(which: list[int], key: str = "") -> list[Tensor]:
        sentences = [Sentence(_voice(cases[at][0], key), seed=1 << 40 | at, sentence_index=at) for at in which]
        states = [fast.start(sentence) for sentence in sentences]
        hops: list[list[Any]] = [[] for _ in which]
        todo = list(range(len(which)))
        while todo:
            strides = []
            for at in todo:
                end = cases[which[at]][0] + cases[which[at]][1]
                until = min(states[at].position // 25 * 25 + 25, end)
                strides.append(StepInput(states[at], tokens_of(which[at]), until, until == end))
            for at, stride, result in zip(list(todo), strides, fast.step(strides), strict=True):
                assert isinstance(result, Decoded), result
                hops[at].append(result.samples)
                if stride.final:
                    todo.remove(at)
        return [torch.from_numpy(np.concatenate(pieces)) for pieces in hops]

    everyone = list(range(len(cases)))
    wanted = [wanted_of(at) for at in everyone]
    together = speak(everyone)
    rows = RUN.results
    for at in everyone:
        alone = speak([at])[0]
        speak([at], "kept")
        warm = speak([at], "kept")[0]
        errors = [apart(x, y)[0] for x, y in ((together[at], wanted[at]), (alone, together[at]), (warm, alone))]
        rows[str(at)] = errors
        print(
            f"decoder {cases[at]}: {len(wanted[at])} samples ({len(together[at])} made), relative to readable "
            f"{errors[0]:.2e}, "
            f"alone to together {errors[1]:.2e}, kept prompt to alone {errors[2]:.2e}", flush=True,
        )  # fmt: skip
    return rows


async def _listen(batcher: Batcher, sentence: Sentence, tokens: list[int], pace: float | None) -> dict[str, float]:
    """One stream; pace: tokens a second, None: all at once. gaps, late: how often a player ran dry,
    and for how many seconds.
    """
    began, player = time.monotonic(), Player()
    async with AcousticStream(batcher, sentence) as stream:

        async def feed() -> None:
            for at in range(0, len(tokens), 25):
                if pace:
                    await asyncio.sleep(max(0.0, began + min(at + 25, len(tokens)) / pace - time.monotonic()))
                await stream.feed(tokens[at : at + 25])
            await stream.finish()

        feeding = asyncio.create_task(feed())
        async for piece in stream:
            if piece.audio:
                player.hear(time.monotonic() - began, len(piece.audio) / BYTES_PER_SAMPLE / SAMPLE_RATE)
        await feeding
    first = player.first_sound or 0.0
    return {
        "first": first,
        "gaps": player.gaps,
        "late": player.stalls,
        "audio": player.audio,
        "wall": time.monotonic() - began,
    }


LOADS = [(count, None) for count in (1, 8, 16, 32, 64)] + [(count, 400.0) for count in (1, 8, 32, 64)] + [(128, None)]
"""Streams, and tokens a second that each of them gets; None: all at once."""


def _tokens(count: int, seed: int) -> list[int]:
    return [int(token) for token in np.random.default_rng(seed).integers(0, 6561, count)]


async def _load(batcher: Batcher, decoder: PagedDecoder, count: int, pace: float | None) -> dict[str, float]:
    """Ten seconds of audio for each of `count` streams that begin together."""
    before, began = decoder.recomputed, time.perf_counter()
    everyone = (_listen(batcher, Sentence(_voice(87, "v"), seed=at), _tokens(250, at), pace) for at in range(count))
    heard = await asyncio.gather(*everyone, return_exceptions=True)
    wall = time.perf_counter() - began
    fine = [each for each in heard if isinstance(each, dict)]
    refused = [each for each in heard if not isinstance(each, dict)]
    firsts = sorted(each["first"] for each in fine) or [0.0]
    row: dict[str, float] = {
        "streams": count, "served": len(fine), "audio_per_second": sum(each["audio"] for each in fine) / wall,
        "first_p50": firsts[len(firsts) // 2], "first_p95": firsts[int(0.95 * (len(firsts) - 1))],
        "with_gaps": sum(each["gaps"] > 0 for each in fine), "late": max((each["late"] for each in fine), default=0.0),
        "recomputed": decoder.recomputed - before,
    }  # fmt: skip
    print(
        f"{count:3d} streams, tokens {'at once' if pace is None else f'{pace:.0f}/s'}: served {len(fine)}, "
        f"{row['audio_per_second']:.0f} s of audio a second, first sound p50 {1000 * row['first_p50']:.1f} "
        f"p95 {1000 * row['first_p95']:.1f} ms, "
        f"{row['with_gaps']} with gaps (longest {1000 * row['late']:.0f} ms), recomputed {row['recomputed']} blocks",
        flush=True,
    )  # fmt: skip
    if refused:
        print("   refused:", len(refused), repr(refused[0])[:160], flush=True)
    return row


def streams(out: Path, most_pages: int = 900) -> dict[str, Any]:
    """Through the batcher: streams of ten seconds at once, and of several lengths alone; voice of
    87 prompt tokens.
    """
    decoder = _decoder(most_pages)
    rows = RUN.results

    async def run() -> None:
        limits = Limits(max_streams=256, state_bytes=most_pages * decoder._flow.page_bytes, reserve_tokens=100)
        batcher = Batcher({Profile.CONTINUOUS: decoder}, limits)
        try:
            for name in ("cold", "cold", "kept", "kept", "kept"):
                if name == "cold":
                    decoder._prompts.evict()
                got = await _listen(batcher, Sentence(_voice(87, "v"), seed=1), _tokens(50, 1), None)
                print(f"first sound alone, prompt {name}: {1000 * got['first']:.2f} ms", flush=True)
                rows[f"first {name}"] = got["first"]
            for seconds in (4, 10, 30):
                runs = [
                    await _listen(batcher, Sentence(_voice(87, "v"), seed=2), _tokens(25 * seconds, 2), None)
                    for _ in range(3)
                ]
                wall = statistics.median(run["wall"] for run in runs)
                rows[f"alone {seconds}"] = wall / seconds
                print(f"alone, {seconds:2d} s of audio: {1000 * wall / seconds:.2f} ms a second of audio", flush=True)
            for count, pace in LOADS:
                rows[f"{count} {pace}"] = await _load(batcher, decoder, count, pace)
            stats, free = batcher.stats(), decoder._pages.free
            peak = stats.peak_state_bytes / 2**30
            print(f"longest step {stats.longest_step_seconds:.3f} s, peak state {peak:.1f} GiB, pages free {free}")
        finally:
            await asyncio.to_thread(batcher.close)

    asyncio.run(run())
    return rows


def steps(out: Path) -> dict[str, Any]:
    """Wall time of a step of the decoder by streams, what the device needs for its graphs, and the
    host's share by part.
    """
    fast = _decoder(400)
    flow, rows = fast._flow, {}
    sounding: Any = fast._vocoder_step
    spent: dict[str, float] = {}

    def clocked(owner: Any, name: str) -> None:
        inner, label = getattr(owner, name), f"{type(owner).__name__}.{name}"

        def call(*given: Any) -> Any:
            began = time.perf_counter()
            result = inner(*given)
            spent[label] = spent.get(label, 0.0) + time.perf_counter() - began
            return result

        setattr(owner, name, call)

    for owner, name in (
        (fast._flow_step, "make"),
        (flow, "run"),
        (sounding, "make"),
        (sounding._vocoder, "run"),
        (fast, "_result"),
    ):
        clocked(owner, name)
    for count in (1, 1, 8, 32):
        states = [fast.start(Sentence(_voice(87, "v"), seed=at)) for at in range(count)]
        tokens = _tokens(250, 1)
        walls, shares = [], []
        for until in range(100, 225, 25):
            for state in states:
                while state.position < 75:
                    fast.step([StepInput(state, np.array(tokens), 75, False)])
            torch.cuda.synchronize()
            spent.clear()
            began = time.perf_counter()
            hops = fast.step([StepInput(state, np.array(tokens), until, False) for state in states])
            walls.append(1000 * (time.perf_counter() - began))
            shares.append({name: 1000 * value for name, value in spent.items()})
            assert all(isinstance(each, Decoded) for each in hops)
        graph = min(size for size in flow.buckets if size >= count)
        ways = [key for key in flow._graphs if key[0] == graph][:1]
        device = timed(flow._graphs[ways[0]].replay, 10), timed(sounding._vocoder._graphs[50, graph].replay, 10)
        rows[str(count)] = {"walls": walls, "flow": device[0], "vocoder": device[1], "shares": shares[-1]}
        print(
            f"step of {count:2d} streams: {' '.join(f'{wall:.2f}' for wall in walls)} ms; graphs alone {device[0]:.2f} "
            f"+ {device[1]:.2f}; "
            f"host: {', '.join(f'{name} {value:.2f}' for name, value in shares[-1].items())}", flush=True,
        )  # fmt: skip
        del states
    return rows
