"""Evaluates the measured time of a step: the typical duration of such steps, and the cost of
speech.
"""

from collections.abc import Sequence

from cosyserve.engines.engine_load import EngineLoad
from cosyserve.errors import CosyserveError
from cosyserve.spec import SAMPLE_RATE
from services.token2wav.decoders.interface import Decoded
from services.token2wav.inputs.request import Profile
from services.token2wav.scheduling.measurements import StepCosts
from services.token2wav.scheduling.next_step import ScheduledWork

Results = Sequence[Decoded | CosyserveError | None]


def record_step(
    works: Sequence[ScheduledWork], results: Results, seconds: float, costs: StepCosts, load: EngineLoad
) -> None:
    """Record a step of `seconds` in `costs` and `load`. The time of a step without audio is added
    to `load` once its streams give audio; if they are cancelled before, it is not counted.
    """
    if _is_cost_sample(works, results):
        costs.add(
            sum(work.worked for work in works),
            max([seconds, *(_sequential_seconds(one) for one in results if isinstance(one, Decoded))]),
        )
    if not _is_prompt_only(works):
        _record_speech_cost(works, results, seconds, load)


def _record_speech_cost(works: Sequence[ScheduledWork], results: Results, seconds: float, load: EngineLoad) -> None:
    sizes = [
        (work.slot, one.samples.size) for work, one in zip(works, results, strict=True) if isinstance(one, Decoded)
    ]
    samples = sum(size for _, size in sizes)
    if not samples:
        for slot, _ in sizes:
            slot.silent_seconds += seconds / len(sizes)
        return
    for slot, size in sizes:
        if size:
            seconds, slot.silent_seconds = seconds + slot.silent_seconds, 0.0
    load.worked(seconds, samples / SAMPLE_RATE)


def _sequential_seconds(decoded: Decoded) -> float:
    """Seconds that the step would have taken if no part of it had been computed early, because the
    next step may have to compute everything.
    """
    spans = (decoded.flow_ns, decoded.vocoder_ns or (0, 0))
    return sum(end - begin for begin, end in spans) / 1e9


def _is_cost_sample(works: Sequence[ScheduledWork], results: Results) -> bool:
    """Whether the step's time is representative for the continuous profile. If a step decodes one
    stream, only a step that gave audio is.
    """
    if works[0].slot.sentence.profile is not Profile.CONTINUOUS:
        return False
    first = results[0]
    return works[0].slot.decoder.widest_step > 1 or (isinstance(first, Decoded) and first.vocoder_ns is not None)


def _is_prompt_only(works: Sequence[ScheduledWork]) -> bool:
    """Whether a step only computed prompts whose state is cached: this happens once per voice and
    is not part of the cost of speech.
    """
    return all(
        work.step_input.state.prompt_cached is False and work.step_input.until <= work.slot.schedule.prompt_tokens
        for work in works
    )
