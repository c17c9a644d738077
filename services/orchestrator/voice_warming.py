"""The state behind a voice's prompt, computed before anybody waits for it: each voice says one token to nobody on each new decoder."""

import asyncio
import logging

from cosyserve.channel import Replica
from cosyserve.errors import CosyserveError
from services.orchestrator.frontend_stage import FrontendStage
from services.orchestrator.token2wav_stage import Token2WavStage

log = logging.getLogger(__name__)


class VoiceWarming:
    """Call `run` in a task of its own; `changed` wakes it when a replica may have come up.

    most_voices: the first so many of the list, the default voice before all others. What fails is logged and tried again when the replica
    comes up anew: a cold voice costs time, not sound.
    """

    def __init__(self, frontend: FrontendStage, decoders: Token2WavStage, most_voices: int) -> None:
        self._frontend = frontend
        self._decoders = decoders
        self._most = most_voices
        self._warm: set[Replica] = set()
        self._changed = asyncio.Event()

    def changed(self) -> None:
        """Some stage's health may have changed."""
        self._changed.set()

    async def run(self) -> None:
        """Warm every decoder that comes up, until cancelled."""
        while self._most:
            self._changed.clear()
            serving = self._decoders.replicas.serving_replicas() if self._frontend.replicas.serving else []
            self._warm.intersection_update(serving)
            for replica in serving:
                if replica not in self._warm:
                    self._warm.add(replica)
                    await self._all_voices(replica)
            await self._changed.wait()

    async def _all_voices(self, replica: Replica) -> None:
        try:
            listed = sorted(await self._frontend.voices(), key=lambda voice: not voice.is_default)
            for summary in listed[: self._most]:
                await self._decoders.warm(replica, await self._frontend.voice(summary.id))
        except CosyserveError as error:
            log.warning("voices are not warm on token2wav at %s: %s", replica.target, error.message)
