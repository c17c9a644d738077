"""One request on its way through the pods: gateway, orchestrator, frontend, LLM and token2wav, with
what happens when one of them is lost.
"""

import contextlib
from collections.abc import Callable
from random import Random
from typing import Protocol, TypeVar

from cosyserve.capacity.profile import EngineProfile
from cosyserve.errors import Overloaded
from cosyserve.load.player import Player
from cosyserve.spec import SAMPLE_RATE, TOKENS_PER_SECOND
from services.orchestrator.load_control.wait_estimate import TEXT
from services.token2wav.inputs.request import Sentence, Voice
from services.token2wav.scheduling.hop_audio import HopAudio
from services.token2wav.scheduling.stream_slot import StreamSlot
from tools.capacity.fleet.layout import FleetLayout, Speech
from tools.capacity.fleet.outcome import Outcome
from tools.capacity.fleet.pods import HostPod, LlmPod, OrchestratorPod, Pod, Token2wavPod
from tools.capacity.fleet.stage import Stage
from tools.capacity.timing.pod_clock import PodClock
from tools.capacity.timing.timed_llm import Writing

WAY_SECONDS = 0.0015
"""Of a message from one process to the next."""
WAY_SECONDS_PER_STREAM = 0.001
"""What each open stream of an orchestrator adds to a message's way to the listener, on average,
times the jitter of the engines.
"""
BYTES_PER_TOKEN = 0.6
"""Of text: 15 bytes are a second of speech."""
NOTICED_SECONDS = 0.05
"""From the loss of a pod until those that talk to it have noticed."""
RECOVERY_SECONDS = 15.0
"""As COSYSERVE_ORCHESTRATOR_RECOVERY_SECONDS."""
LOOK_AGAIN_SECONDS = 0.25
P = TypeVar("P", bound=Pod)
SERVED, REFUSED, FAILED = "served", "refused", "failed"
Over = Callable[["Request", str, float], None]
"""Gets how it ended, and after how many seconds it should be asked again if it was refused."""


class Surroundings(Protocol):
    """What a request finds: stages with their pods, and what they take."""

    clock: PodClock
    dice: Random
    outcome: Outcome
    profile: EngineProfile
    layout: FleetLayout
    speech: Speech
    voice: Voice
    gateway: Stage[HostPod]
    orchestrator: Stage[OrchestratorPod]
    frontend: Stage[HostPod]
    llm: Stage[LlmPod]
    token2wav: Stage[Token2wavPod]

    def released(self, pod: Pod) -> None:
        """A piece of work of the pod is over."""


class Request:
    """tokens: of its sentence. over: called once, when it was served, refused or has failed."""

    def __init__(self, fleet: Surroundings, tokens: int, over: Over) -> None:
        self._fleet, self._clock, self._tokens, self._over = fleet, fleet.clock, tokens, over
        self.asked, self.player = self._clock.now(), Player(fleet.speech.buffer_seconds)
        self._place = contextlib.ExitStack()
        """The place at the orchestrator."""
        self._orchestrator: OrchestratorPod | None = None
        self._gateway: HostPod | None = None
        self._frontend: HostPod | None = None
        self._llm: LlmPod | None = None
        self._token2wav: Token2wavPod | None = None
        self._writing: Writing | None = None
        self._slot: StreamSlot | None = None
        self._made = 0
        """Tokens that the orchestrator has."""
        self._heard = 0
        """Samples that the orchestrator has."""
        self._made_samples = self._start_sample = 0
        """Samples that the present token2wav has made, and those before which it need send none."""
        self._attempt = 0
        """What was planned for an earlier attempt does not happen."""
        self._source: object = None
        """The call of an LLM whose tokens count."""
        self._sound: object = None
        """The call of a token2wav whose sound counts."""
        self._over_at: float | None = None

    def begin(self) -> None:
        """It comes in at a gateway."""
        self._gateway, self._orchestrator = self._fleet.gateway.pick(), self._fleet.orchestrator.pick()
        if self._gateway is None or self._orchestrator is None:
            self._end(FAILED)
            return
        try:
            self._place.enter_context(self._orchestrator.admission.admit(TEXT, BYTES_PER_TOKEN * self._tokens))
        except Overloaded as refusal:
            self._end(FAILED if self._heard else REFUSED, refusal.retry_after or 1.0)
            return
        self._use(self._gateway)
        self._use(self._orchestrator)
        self._read()

    def lost(self, pod: Pod) -> None:
        """A pod that worked for it is gone."""
        if self._over_at is not None:
            return
        self._fleet.outcome.resumed += 1
        if pod in (self._gateway, self._orchestrator):
            self._attempt += 1
            self._leave_stages()
            self._later(NOTICED_SECONDS, self._resume)
        elif pod is self._token2wav:
            self._token2wav = self._slot = self._sound = None
            self._later(NOTICED_SECONDS, self._open)
        elif pod is self._llm:
            self._llm = self._writing = self._source = None
            self._later(NOTICED_SECONDS, self._write)
        elif pod is self._frontend:
            self._frontend = None
            self._attempt += 1
            self._later(NOTICED_SECONDS, self._read)

    def _resume(self) -> None:
        """The caller asks again for what it has not heard."""
        self._place.close()
        for pod in (self._gateway, self._orchestrator):
            if pod is not None:
                self._release(pod)
        self._made = 0
        self.begin()

    def _read(self) -> None:
        """The frontend makes ids of the text."""
        self._frontend = self._fleet.frontend.pick()
        if self._frontend is None:
            self._again(self._read)
            return
        pod = self._use(self._frontend)
        seconds = pod.serve(self._fleet.profile.hosts.frontend_per_request)
        self._later(2 * WAY_SECONDS + seconds, self._speak)

    def _speak(self) -> None:
        if self._frontend is not None:
            self._release(self._frontend)
            self._frontend = None
        self._open()
        if self._over_at is None:
            self._write()

    def _write(self) -> None:
        """The LLM makes the tokens that are missing."""
        speech, declined = self._fleet.speech, set[Pod]()
        left = self._tokens - self._made
        if not left:
            return
        while (pod := self._fleet.llm.pick(declined)) is not None:
            try:
                self._writing = pod.engine.generate(
                    left, speech.first_tokens, speech.prompt_positions + self._made, self._deliver_tokens()
                )
            except Overloaded as refusal:
                declined.add(pod)
                last = refusal
            else:
                self._llm = self._use(pod)
                return
        if declined and not self._made:
            self._end(REFUSED, last.retry_after or 1.0)
        else:
            self._again(self._write)

    def _deliver_tokens(self) -> Callable[[int, bool], None]:
        source = self._source = object()

        def deliver(new: int, last: bool) -> None:
            if last and self._llm is not None:
                self._release(self._llm)
                self._llm = self._writing = None
            self._clock.after(2 * WAY_SECONDS, lambda: self._fed(source, new))

        return deliver

    def _fed(self, source: object, new: int) -> None:
        if self._over_at is not None or source is not self._source:
            return  # another LLM makes them again
        self._made += new
        if self._token2wav is not None and self._slot is not None:
            self._token2wav.feed(self._slot, new, last=self._made >= self._tokens)

    def _open(self) -> None:
        """token2wav takes the sentence, and the tokens that there are."""
        declined = set[Pod]()
        self._made_samples, self._start_sample = 0, self._heard
        source = self._sound = object()
        caller_streams = self._orchestrator.streams if self._orchestrator is not None else 0
        sentence = Sentence(self._fleet.voice, start_sample=self._heard, caller_streams=caller_streams)
        while (pod := self._fleet.token2wav.pick(declined)) is not None:
            try:
                self._slot = pod.open(sentence, lambda arrival, pod=pod: self._made_sound(source, pod, arrival))  # type: ignore[misc]
            except Overloaded as refusal:
                declined.add(pod)
                last = refusal
            else:
                self._token2wav = self._use(pod)
                if self._made:
                    pod.feed(self._slot, self._made, last=self._made >= self._tokens)
                return
        if declined and not self._heard:
            self._end(REFUSED, last.retry_after or 1.0)
        else:
            self._again(self._open)

    def _made_sound(self, source: object, pod: Token2wavPod, arrival: HopAudio | Exception) -> None:
        if isinstance(arrival, Exception):
            if pod.gone:
                return
            raise arrival  # engines that only take time do not fail
        slot, begins = self._slot, self._made_samples
        self._made_samples += arrival.samples.size
        # What the orchestrator has is computed again and not sent, as the service's stream does.
        new = max(self._made_samples - max(begins, self._start_sample), 0)
        if slot is not None:
            self._clock.after(WAY_SECONDS / 3, lambda: pod.taken(slot))
        self._clock.after(2 * WAY_SECONDS, lambda: self._arrived(source, new, last=arrival.last))

    def _arrived(self, source: object, samples: int, *, last: bool) -> None:
        """At the orchestrator, which sends it on."""
        if source is not self._sound or self._orchestrator is None or self._gateway is None:
            return
        seconds = samples / SAMPLE_RATE
        hosts, fleet = self._fleet.profile.hosts, self._fleet
        self._heard += samples
        way = self._orchestrator.serve(hosts.orchestrator_per_second * seconds)
        way += self._gateway.serve(hosts.gateway_per_second * seconds)
        active = self._orchestrator.streams
        way += WAY_SECONDS + WAY_SECONDS_PER_STREAM * fleet.layout.jitter * active * fleet.dice.expovariate(1.0)
        self._clock.after(way, lambda: self._plays(seconds))
        if last:
            self._leave_stages()
            self._later(way, lambda: self._end(SERVED))

    def _plays(self, seconds: float) -> None:
        if seconds and self._over_at is None:
            self.player.hear(self._clock.now() - self.asked, seconds)

    def _again(self, step: Callable[[], None]) -> None:
        """No pod takes it now: look again in a moment, for a bounded time."""
        if self._clock.now() - self.asked > RECOVERY_SECONDS + self._tokens / TOKENS_PER_SECOND:
            self._end(FAILED)
        else:
            self._later(LOOK_AGAIN_SECONDS, step)

    def _later(self, seconds: float, step: Callable[[], None]) -> None:
        attempt = self._attempt
        self._clock.after(seconds, lambda: step() if attempt == self._attempt and self._over_at is None else None)

    def _use(self, pod: P) -> P:
        pod.users[self] = None
        return pod

    def _release(self, pod: Pod) -> None:
        pod.users.pop(self, None)
        self._fleet.released(pod)

    def _leave_stages(self) -> None:
        if self._writing is not None and self._llm is not None:
            self._llm.engine.cancel(self._writing)
        if self._slot is not None and self._token2wav is not None and not self._slot.over:
            self._token2wav.cancel(self._slot)
        for pod in (self._frontend, self._llm, self._token2wav):
            if pod is not None:
                self._release(pod)
        self._frontend = self._llm = self._token2wav = self._writing = self._slot = None
        self._source = self._sound = None

    def _end(self, how: str, again: float = 0.0) -> None:
        self._over_at = self._clock.now()
        self._leave_stages()
        self._place.close()
        for pod in (self._gateway, self._orchestrator):
            if pod is not None:
                self._release(pod)
        self._over(self, how, again)
