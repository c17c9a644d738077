"""What is spoken of long silences against `silent.npz`, token by token, and how the reference's
schedule cuts what remains. Only for generations that leave silent tokens out.
"""

from itertools import cycle
from pathlib import Path

import numpy as np

from cosyserve.generations.generation import SilentRuns, SilentTokens
from cosyserve.generations.reading import generation_of
from cosyserve.model_directory import ModelDirectory
from cosyserve.spec import LOOKAHEAD_TOKENS, MEL_FRAMES_PER_TOKEN, SAMPLES_PER_MEL_FRAME
from services.token2wav.inputs.chunking import schedule
from services.token2wav.inputs.request import Hops, Profile
from tools.verify.recording import Recording, compare_file
from tools.verify.report import Report

FILE = "silent.npz"
_HELD_BACK_FRAMES = 8
"""By the reference's vocoder, in every call but the last (section 5.5)."""
_PIECES = (1, 2, 7, 19, 3)


def verify(directory: Path, report: Report) -> None:
    """Compare every array of `silent.npz`."""
    silent = generation_of(ModelDirectory(directory)).silent
    if silent is not None:
        compare_file(directory, FILE, report, lambda recorded: _check(recorded, silent))


def _check(recorded: Recording, silent: SilentTokens) -> None:
    kept = _spoken(recorded["spoken"].tolist(), silent)
    calls = _calls(int(recorded["prompt_tokens"]), len(kept))
    recorded.compare("silent_tokens", 0.0, lambda: np.array(sorted(silent.ids)))
    recorded.compare("kept", 0.0, lambda: np.array(kept))
    recorded.compare("calls", 0.0, lambda: np.array(calls))
    recorded.compare("chunk_samples", 0.0, lambda: np.array(_samples(calls)))


def _spoken(tokens: list[int], silent: SilentTokens) -> list[int]:
    """The tokens come in odd pieces, as they do from an engine."""
    runs, at = SilentRuns(silent), 0
    for size in cycle(_PIECES):
        if at >= len(tokens):
            return runs.spoken
        runs.extend(tokens[at : at + size])
        at += size
    raise AssertionError("a cycle does not end")


def _calls(prompt_tokens: int, tokens: int) -> list[tuple[int, int, int]]:
    """Of each call of the flow: the tokens it is given, whether it streams, whether it is the
    last.
    """
    cuts, hop, calls = schedule(Profile.UPSTREAM, prompt_tokens, Hops()), None, list[tuple[int, int, int]]()
    while hop is None or not hop.final:
        hop = cuts.next(hop, tokens, finished=True)
        if hop is None:
            raise RuntimeError("the schedule has no last call")
        calls.append((tokens, 0, 1) if hop.final else (hop.end + LOOKAHEAD_TOKENS, 1, 0))
    return calls


def _samples(calls: list[tuple[int, int, int]]) -> list[int]:
    """Samples that each call adds."""
    ends = [
        SAMPLES_PER_MEL_FRAME
        * (
            MEL_FRAMES_PER_TOKEN * given
            if final
            else MEL_FRAMES_PER_TOKEN * (given - LOOKAHEAD_TOKENS) - _HELD_BACK_FRAMES
        )
        for given, _, final in calls
    ]
    return [end - start for start, end in zip([0, *ends], ends, strict=False)]
