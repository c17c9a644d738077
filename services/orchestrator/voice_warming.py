"""Computes the prompt state of voices on each decoder that comes up, before a request needs it:
each voice decodes one token, whose sound is discarded.
"""

import asyncio
import logging

from cosyserve.errors import CosyserveError, NotFound
from cosyserve.rpc.replicas import Replica
from services.orchestrator.speech.conditioning import condition
from services.orchestrator.stages.token2wav import Token2WavStage
from services.orchestrator.stages.voices import VoiceStage

log = logging.getLogger(__name__)
_DEFAULT = ""
_LARGEST_PAGE = 1000


class VoiceWarming:
    """Run `run` in a task of its own; `changed` wakes it when a replica may have come up.

    most_voices: how many voices of the list are warmed, the default voice first. A voice that is
    only a speaker vector has no such state. A failure is logged, and tried again when the replica
    comes up again: a cold voice costs time, not quality.
    """

    def __init__(self, voices: VoiceStage, decoders: Token2WavStage, most_voices: int) -> None:
        self._voices = voices
        self._decoders = decoders
        self._most = most_voices
        self._warm: set[Replica] = set()
        self._changed = asyncio.Event()

    def changed(self) -> None:
        """Call when the health of a stage may have changed. A decoder that comes back counts as a
        new one.
        """
        self._warm.intersection_update(self._decoders.replicas.serving_replicas())
        self._changed.set()

    async def run(self) -> None:
        """Warm every decoder that comes up, until cancelled."""
        while self._most:
            self._changed.clear()
            serving = self._decoders.replicas.serving_replicas() if self._voices.replicas.serving else []
            for replica in serving:
                if replica not in self._warm:
                    self._warm.add(replica)
                    await self._all_voices(replica)
            await self._changed.wait()

    async def _all_voices(self, replica: Replica) -> None:
        try:
            listed = (await self._voices.page(min(self._most, _LARGEST_PAGE), "")).voices
        except CosyserveError as error:
            log.warning("voices are not warm on token2wav at %s: %s", replica.target, error.message)
            return
        for name in [_DEFAULT, *(voice.id for voice in listed if not voice.is_default)][: self._most]:
            try:
                conditioning = condition(await self._voices.voice(name))
                # Its address may have gone from its name meanwhile.
                if conditioning.key and replica in self._decoders.replicas.serving_replicas():
                    await self._decoders.warm(replica, conditioning)
            except NotFound:
                # There may be no default voice, and any other may have been deleted meanwhile.
                continue
            except CosyserveError as error:
                log.warning("a voice is not warm on token2wav at %s: %s", replica.target, error.code.name)
