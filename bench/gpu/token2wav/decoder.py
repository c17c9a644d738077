"""Parts about the decoder as a whole: the samples of the paged one, and the times of the readable
path.
"""

import statistics
import time
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bench.gpu.timing import timed
from bench.gpu.token2wav.flow import made
from bench.gpu.token2wav.random_models import (
    DEVICE,
    RUN,
    RandomVoice,
    apart,
    published,
    random_vocoder,
    readable_vocoder,
)
from services.token2wav.decoders.interface import Decoded, StepInput
from services.token2wav.flow.flow import as_prompt
from services.token2wav.gpu.decoder import PagedDecoder
from services.token2wav.gpu.windowed_vocoder.vocoder import WindowedVocoder
from services.token2wav.inputs.request import Sentence, Voice

PAGES = 60


def _decoder() -> PagedDecoder:
    network, config, weights = random_vocoder()
    began = time.perf_counter()
    flow = published().paged_flow(published().tensors(), pages=PAGES, most=64)
    vocoder = WindowedVocoder(
        config, weights, DEVICE, slots=300, launch=flow.launch, precision="float16", network=network
    )
    flow.capture()
    vocoder.capture()
    memory = torch.cuda.memory_allocated() / 2**30
    print(f"decoder of {PAGES} pages ready after {time.perf_counter() - began:.1f} s, {memory:.1f} GiB", flush=True)
    return PagedDecoder(flow, vocoder, pages=PAGES, slots=300, widest_step=32, prompt_pages=100, fronts=flow.fronts)


def _voice(prompt: int, key: str) -> Voice:
    draw = np.random.default_rng(1)
    mel, embedding = draw.standard_normal((2 * prompt, 80)), draw.standard_normal(192)
    return Voice(draw.integers(0, 6561, prompt), mel.astype(np.float32), embedding.astype(np.float32), key)


def decoder() -> None:
    """The decoder's samples, streams together, alone and with a kept prompt, against the readable
    vocoder over the paged flow's mel.
    """
    plain = readable_vocoder(*random_vocoder()[1:])
    fast = _decoder()
    cases = [(87, 60), (0, 77), (30, 5), (110, 101)]

    def tokens_of(at: int) -> Any:
        return np.random.default_rng(at).integers(0, 6561, cases[at][1])

    def wanted_of(at: int) -> Tensor:
        flow, voice, mels = fast._flow, as_prompt(_voice(cases[at][0], "")), []
        ids = torch.cat([voice.tokens, torch.from_numpy(tokens_of(at))])
        one = RandomVoice.of(voice, ids, flow.speaker(voice.embedding), front=PAGES - 1)
        pages = list(range(PAGES - 2, PAGES - 2 - one.blocks, -1))
        for group in one.passes:
            mels += made(flow.run, [one.unit(block, pages) for block in group])
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
                until = states[at].units.grid.next_border(states[at].position, end)
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


def readable() -> None:
    """The slow path on the same GPU: readable flow and vocoder, eager, float32."""
    flow = published().readable(published().tensors())
    rows = RUN.results
    someone = RandomVoice(flow, 87, 41, 2)
    state, grid = flow.start(someone.voice), someone.units.grid
    last = grid.next_border(len(someone.voice.tokens), len(someone.ids))
    while state.position < last:
        prompt_state, first = flow.fork(state), state.position
        end = grid.next_border(first, last)
        block, ahead = someone.ids[first:end], someone.ids[grid.lookahead(end)]
        flow.blocks([state], [block], [ahead])

    def warm() -> None:
        flow.blocks([flow.fork(prompt_state)], [block], [ahead])

    rows["flow block behind 87 tokens"] = timed(warm, 5, 1)
    vocoder = readable_vocoder(*random_vocoder()[1:])
    mel = torch.randn(80, 400, device=DEVICE)
    for frames in (10, 50):
        state_v = vocoder.start(0, 0, 26, frames)
        spans = []
        for begin in range(0, 350, 50):
            torch.cuda.synchronize()
            began = time.perf_counter()
            vocoder.step([state_v], [mel[:, begin : begin + 50]], [False])
            torch.cuda.synchronize()
            spans.append(1000 * (time.perf_counter() - began))
        rows[f"vocoder chunk of 50 frames, windows of {frames}"] = statistics.median(spans[3:])
    for name, spent in rows.items():
        print(f"readable path, {name}: {spent:.2f} ms", flush=True)
