"""What the time of a step says: how long such steps take, and what speech costs."""

from collections.abc import Sequence

from cosyserve.engines.engine_load import EngineLoad
from cosyserve.errors import CosyserveError
from cosyserve.spec import SAMPLE_RATE
from services.token2wav.decoders.interface import Decoded
from services.token2wav.inputs.request import Profile
from services.token2wav.scheduling.next_step import ScheduledWork
from services.token2wav.scheduling.step_costs import StepCosts

Results = Sequence[Decoded | CosyserveError | None]


def record_step(
    works: Sequence[ScheduledWork], results: Results, seconds: float, costs: StepCosts, load: EngineLoad
) -> None:
    """Tell `costs` and `load` of a step that took so long. `load` is told of a step that made no
    sound when its streams make some, not when they are cancelled before."""
    if _tells_costs(works, results):
        costs.add(
            sum(work.worked for work in works),
            max([seconds, *(_alone(one) for one in results if isinstance(one, Decoded))]),
        )
    if not _makes_kept_prompt(works):
        _cost_of_speech(works, results, seconds, load)


def _cost_of_speech(works: Sequence[ScheduledWork], results: Results, seconds: float, load: EngineLoad) -> None:
    made = [(work.slot, one.samples.size) for work, one in zip(works, results, strict=True) if isinstance(one, Decoded)]
    samples = sum(size for _, size in made)
    if not samples:
        for slot, _ in made:
            slot.silent_seconds += seconds / len(made)
        return
    for slot, size in made:
        if size:
            seconds, slot.silent_seconds = seconds + slot.silent_seconds, 0.0
    load.worked(seconds, samples / SAMPLE_RATE)


def _alone(decoded: Decoded) -> float:
    """Seconds that the step would have taken if no part of it had been made early: the next one may
    have to make everything.
    """
    spans = (decoded.flow_ns, decoded.vocoder_ns or (0, 0))
    return sum(end - begin for begin, end in spans) / 1e9


def _tells_costs(works: Sequence[ScheduledWork], results: Results) -> bool:
    """Whether the time is that of steps of the served profile; where a step takes one stream, only
    one that made sound says it.
    """
    if works[0].slot.sentence.profile is not Profile.CONTINUOUS:
        return False
    first = results[0]
    return works[0].slot.decoder.widest_step > 1 or (isinstance(first, Decoded) and first.vocoder_ns is not None)


def _makes_kept_prompt(works: Sequence[ScheduledWork]) -> bool:
    """Whether a step did nothing but work on prompts whose state is kept: done once for a voice, it
    is no part of what speech costs.
    """
    return all(
        work.step_input.state.prompt_cached is False and work.step_input.until <= work.slot.schedule.prompt_tokens
        for work in works
    )
