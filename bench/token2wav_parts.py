"""Processor time of token2wav by part, one stream: `python -m bench.token2wav_parts [--model DIR]
[--seconds 7] [--repeats 5] [--json FILE]`.

A sentence behind a prompt of 61 tokens goes block by block through flow and vocoder, one after the
other; the state behind the prompt is kept. Processor time, not wall time, and the least of all
repeats: where the machine does other work too, two states of the code can be compared by running
them in turns.
"""

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from bench.load.command_line import cost_command, show
from cosyserve.model_directory import ModelDirectory
from cosyserve.spec import (
    CHUNK_TOKENS,
    LOOKAHEAD_TOKENS,
    MEL_BINS,
    MEL_FRAMES_PER_TOKEN,
    SAMPLE_RATE,
    SPEAKER_DIMENSION,
    SPEECH_VOCABULARY,
    TOKENS_PER_SECOND,
)
from services.token2wav.flow.flow import Flow, VoicePrompt, load_flow
from services.token2wav.flow.stream_cache import FlowState
from services.token2wav.vocoder.state import window_frames
from services.token2wav.vocoder.vocoder import Vocoder, load_vocoder

PROMPT_TOKENS = 61
CPU = torch.device("cpu")


@dataclass(frozen=True)
class Cost:
    """Milliseconds of processor time. first_milliseconds: of the first hop, 14 tokens.
    milliseconds_per_second: of a second of sound.
    """

    part: str
    first_milliseconds: float
    milliseconds_per_second: float


def measure(model: Path, threads: int, seconds: float, repeats: int) -> list[Cost]:
    """One row for each part and one for both. Raises ModelError."""
    torch.set_num_threads(threads)
    directory = ModelDirectory(model)
    flow, vocoder = load_flow(directory, CPU), load_vocoder(directory, CPU)
    random = np.random.default_rng(0)
    tokens = torch.from_numpy(random.integers(0, SPEECH_VOCABULARY, PROMPT_TOKENS + int(seconds * TOKENS_PER_SECOND)))
    prompt = VoicePrompt(
        tokens[:PROMPT_TOKENS],
        torch.from_numpy(random.normal(-5, 2, (MEL_FRAMES_PER_TOKEN * PROMPT_TOKENS, MEL_BINS)).astype(np.float32)),
        torch.from_numpy(random.normal(size=SPEAKER_DIMENSION).astype(np.float32)),
    )
    prompt_state = flow.start(prompt)
    for _ in range(PROMPT_TOKENS // CHUNK_TOKENS):
        _block(flow, prompt_state, tokens)
    runs = [_speak(flow, vocoder, prompt_state, tokens) for _ in range(repeats + 1)][1:]
    spent = np.array(runs)
    blocks = np.concatenate([spent, spent.sum(axis=2, keepdims=True)], axis=2)
    first, whole = blocks[:, 0].min(axis=0), blocks.sum(axis=1).min(axis=0)
    audio = (len(tokens) - PROMPT_TOKENS) / TOKENS_PER_SECOND
    return [
        Cost(part, round(1000 * at_first, 1), round(1000 * all_in_all / audio, 1))
        for part, at_first, all_in_all in zip(("flow", "vocoder", "together"), first, whole, strict=True)
    ]


def _speak(flow: Flow, vocoder: Vocoder, prompt_state: FlowState, tokens: torch.Tensor) -> list[tuple[float, float]]:
    """Seconds of processor time in flow and vocoder of each block."""
    state, skip, costs = flow.fork(prompt_state), MEL_FRAMES_PER_TOKEN * (PROMPT_TOKENS % CHUNK_TOKENS), []
    sound = vocoder.start(0, 0, MEL_FRAMES_PER_TOKEN * (-PROMPT_TOKENS % CHUNK_TOKENS), window_frames(1.0))
    samples = 0
    while state.position < len(tokens):
        began = time.process_time()
        mel = _block(flow, state, tokens)
        middle = time.process_time()
        (rendered,) = vocoder.step([sound], [mel[:, skip:]], [state.position == len(tokens)])
        costs.append((middle - began, time.process_time() - middle))
        samples, skip = samples + (0 if rendered is None else len(rendered)), 0
    if samples != SAMPLE_RATE * (len(tokens) - PROMPT_TOKENS) // TOKENS_PER_SECOND:
        raise RuntimeError(f"{samples} samples were made")
    return costs


def _block(flow: Flow, state: FlowState, tokens: torch.Tensor) -> torch.Tensor:
    end = min(state.position + CHUNK_TOKENS, len(tokens))
    (mel,) = flow.blocks([state], [tokens[state.position : end]], [tokens[end : end + LOOKAHEAD_TOKENS]])
    if mel is None:
        raise RuntimeError("the flow made nothing")
    return mel


def main(arguments: Sequence[str] | None = None) -> int:
    parser = cost_command("bench.token2wav_parts", __doc__)
    parser.add_argument("--seconds", type=float, default=6.8, help="of the sentence (default: %(default)s)")
    parser.add_argument("--repeats", type=int, default=5, help="of which the least counts (default: %(default)s)")
    options = parser.parse_args(arguments)

    def costs() -> list[Cost]:
        return measure(options.model, options.threads, options.seconds, options.repeats)

    return show("bench.token2wav_parts", costs, options.json)


if __name__ == "__main__":
    sys.exit(main())
