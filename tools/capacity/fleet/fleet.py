"""All pods of a deployment and the requests between them, on a virtual clock."""

import random
from collections.abc import Callable
from functools import partial
from typing import Any, cast

from cosyserve.capacity.profile import EngineProfile
from cosyserve.spec import TOKENS_PER_SECOND
from services.orchestrator.load_control.adaptive_limit import StageLoad
from tools.capacity.fleet.autoscaler import Autoscaler
from tools.capacity.fleet.layout import STAGES, FleetLayout, Speech
from tools.capacity.fleet.outcome import Outcome
from tools.capacity.fleet.pods import HostPod, LlmPod, OrchestratorPod, Pod, Token2wavPod, voice
from tools.capacity.fleet.request import FAILED, REFUSED, SERVED, Request
from tools.capacity.fleet.stage import Stage
from tools.capacity.timing.device import Device
from tools.capacity.timing.pod_clock import PodClock

Then = Callable[[Request, str, float], None]


class Fleet:
    """seed: of all chance; the same one gives the same run. period: seconds of each period of the
    outcome.
    """

    def __init__(
        self, profile: EngineProfile, layout: FleetLayout, speech: Speech, seed: int = 1, period: float = 10.0
    ) -> None:
        self.profile, self.layout, self.speech = profile, layout, speech
        self.dice, self._lengths, self._work = random.Random(seed), random.Random(seed + 1), random.Random(seed + 2)
        self.clock, self.outcome, self.voice = PodClock(), Outcome(period), voice(speech.prompt_tokens)
        self._free_devices: list[Device] = []
        starts = layout.start_seconds
        self.gateway: Stage[HostPod] = self._stage("gateway", lambda at: HostPod("gateway", at, self.clock))
        self.frontend: Stage[HostPod] = self._stage("frontend", lambda at: HostPod("frontend", at, self.clock))
        self.orchestrator = Stage(
            "orchestrator", self.clock, lambda at: OrchestratorPod(at, self.clock, layout, self._loads),
            starts.get("orchestrator", 0.0),
        )  # fmt: skip
        self.token2wav = Stage("token2wav", self.clock, self._token2wav, starts.get("token2wav", 0.0))
        self.llm = Stage("llm", self.clock, self._llm, starts.get("llm", 0.0))
        self.stages: dict[str, Stage[Pod]] = {name: cast("Any", getattr(self, name)) for name in STAGES}
        for name in ("token2wav", "llm", "frontend", "orchestrator", "gateway"):
            for _ in range(layout.replicas[name]):
                self.stages[name].add(0.0)
        self.scalers = {
            name: Autoscaler(
                self.stages[name],
                scaling,
                self.clock,
                layout.orchestrator_streams,
                self.stages["llm"] if layout.shared and name == "token2wav" else None,
            )
            for name, scaling in layout.scaling.items()
            if not (layout.shared and name == "llm")
        }
        for at, stage in layout.failures:
            self.clock.after(at, partial(self._lose, stage))
        self.active: dict[Request, None] = {}
        self.clock.after(period, lambda: self._look(period))

    def _stage(self, name: str, make: Callable[[int], HostPod]) -> Stage[HostPod]:
        return Stage(name, self.clock, make, self.layout.start_seconds.get(name, 0.0))

    def _device(self) -> Device:
        return Device(self.profile, self._work, self.layout.jitter)

    def _token2wav(self, number: int) -> Token2wavPod:
        device = self._device()
        if self.layout.shared:
            self._free_devices.append(device)
        return Token2wavPod(number, self.clock, device, self.layout)

    def _llm(self, number: int) -> LlmPod:
        device = self._free_devices.pop(0) if self._free_devices else self._device()
        return LlmPod(number, self.clock, device, self.layout)

    def _loads(self) -> list[StageLoad]:
        return [
            StageLoad("token2wav", str(pod.number), load, shares_steps=True)
            for pod in self.token2wav.serving
            if (load := pod.batcher.load.now) is not None
        ]

    def _lose(self, stage: str) -> None:
        self.stages[stage].lose()

    def released(self, pod: Pod) -> None:
        """A piece of work of the pod is over."""
        self.stages[pod.stage].released(pod)

    def ask(self, then: Then = lambda request, how, again: None) -> Request:
        """One request, now. then: called with how it ended and, if it was refused, the seconds
        after which it should be asked again.
        """
        tokens = round(TOKENS_PER_SECOND * self._lengths.uniform(*self.speech.seconds))
        period = self.outcome.at(self.clock.now())
        if period is not None:
            period.arrived += 1

        def over(request: Request, how: str, again: float) -> None:
            self.active.pop(request, None)
            if how == SERVED:
                self.outcome.served(request.asked, request.player)
            elif (asked := self.outcome.at(request.asked)) is not None:
                asked.refused += how == REFUSED
                asked.failed += how == FAILED
            then(request, how, again)

        request = Request(self, tokens, over)
        self.active[request] = None
        request.begin()
        return request

    def run(self, seconds: float) -> None:
        """Let everything happen that lies within the next `seconds`. Raises RuntimeError when the
        code under simulation failed.
        """
        self.clock.run(seconds)
        for pod in self.token2wav.pods:
            if pod.fault:
                raise RuntimeError(f"token2wav {pod.number}: {pod.fault}")

    def drain(self, most: float = 120.0) -> None:
        """Let the requests that are under way end, for at most so many seconds."""
        end = self.clock.now() + most
        while self.active and self.clock.now() < end:
            self.run(1.0)

    def _look(self, period: float) -> None:
        """Note what can only be seen at a moment."""
        if (one := self.outcome.at(self.clock.now() - 1e-9)) is not None:
            one.streams = len(self.active)
            one.replicas = {name: len(stage.serving) for name, stage in self.stages.items()}
            one.metrics = {name: scaler.value for name, scaler in self.scalers.items()}
        self.clock.after(period, lambda: self._look(period))
