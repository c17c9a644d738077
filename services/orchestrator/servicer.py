"""SynthesisService: translates requests to `Utterance` and sound to responses."""

import asyncio
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import grpc
from cosyserve.audio.audibility import FirstAudible

from cosyserve import errors
from cosyserve.audio.encoding import OutputStream
from cosyserve.v1 import synthesis_pb2, synthesis_pb2_grpc
from services.orchestrator import validation
from services.orchestrator.load_control.admission import Admission, PreemptiblePlace, request_deadline
from services.orchestrator.load_control.wait_estimate import ARRIVING_TEXT, RECORDING, TEXT
from services.orchestrator.pipeline import RequestMetrics, Stages, convert, refuse_longer, speak
from services.orchestrator.reply import Reply, figures_of, header_of, output_of, summary_of, take_words
from services.orchestrator.request_log import logged, set_figures
from services.orchestrator.servicer import VoiceMethods
from services.orchestrator.settings import OrchestratorSettings
from services.orchestrator.speech.silence import Play
from services.orchestrator.speech.utterance import Utterance
from services.orchestrator.stages.voices import VoiceStage
from services.orchestrator.text.caller_messages import CancelledByCaller, Fragment, listen
from services.orchestrator.text.replay_buffer import TextReplayBuffer

Context = grpc.aio.ServicerContext[Any, Any]
_LONGEST_FRAGMENT = 20_000
_UNARY_BYTES = 4_000_000
"""gRPC's default limit on a received message is 4 MiB."""


class SynthesisServicer(VoiceMethods, synthesis_pb2_grpc.SynthesisServiceServicer):
    def __init__(self, stages: Stages, voices: VoiceStage, settings: OrchestratorSettings) -> None:
        super().__init__(voices, settings.max_voice_makings)
        self._stages = stages
        self._settings = settings
        self.admission = Admission(settings.max_streams)

    @logged
    async def Synthesize(  # type: ignore[override]  # writes from a coroutine, so that an error of any stage ends the call
        self, request: synthesis_pb2.SynthesizeRequest, context: Context
    ) -> None:
        utterance = validation.streaming(request, self._settings.max_characters)
        with self.admission.admit(TEXT, _bytes(utterance.text)):
            async with request_deadline(self._settings.max_request_seconds, context.time_remaining()):
                await Reply(utterance, context, self._settings.reader_seconds).stream(
                    partial(speak, utterance, self._stages)
                )

    @logged
    async def ConvertVoice(  # type: ignore[override]  # as Synthesize
        self, request: synthesis_pb2.ConvertVoiceRequest, context: Context
    ) -> None:
        utterance = validation.conversion(request)
        with self.admission.admit(RECORDING, len(request.audio)):
            async with request_deadline(self._settings.max_request_seconds, context.time_remaining()):
                reply = Reply(utterance, context, self._settings.reader_seconds)
                await reply.stream(partial(convert, utterance, request.audio, self._stages))

    @logged
    async def StreamingSynthesize(  # type: ignore[override]  # as Synthesize
        self, requests: AsyncIterator[synthesis_pb2.StreamingSynthesizeRequest], context: Context
    ) -> None:
        settings = self._settings
        requests = aiter(requests)
        utterance, waiting = validation.arriving(await _setup_of(requests), settings.idle_seconds)
        preemptible = PreemptiblePlace(settings.idle_seconds)
        with self.admission.admit(ARRIVING_TEXT, preemptible=preemptible) as place:
            # Initial metadata confirm the setup: a write of the caller that crosses a refusal would
            # hide its status.
            await context.send_initial_metadata(())
            text = TextReplayBuffer(settings.max_waiting_characters)
            reply = Reply(utterance, context, settings.reader_seconds, preemptible.sending)
            async with request_deadline(settings.max_stream_seconds, context.time_remaining()):
                try:
                    async with asyncio.TaskGroup() as group:
                        reclaiming = group.create_task(preemptible.until_reclaimed())
                        group.create_task(
                            listen(
                                _noted(_fragments(requests), preemptible), text, waiting, settings.max_stream_characters
                            )
                        )
                        await reply.stream(partial(_speak_in, preemptible, utterance, self._stages, text))
                        reclaiming.cancel()
                except* CancelledByCaller:
                    place.cut_short = True
                    await reply.break_off()

    @logged
    async def SynthesizeUnary(
        self, request: synthesis_pb2.SynthesizeUnaryRequest, context: Context
    ) -> synthesis_pb2.SynthesizeUnaryResponse:
        utterance = validation.unary(request, self._settings.max_characters)
        out, metrics, pieces = output_of(utterance), RequestMetrics(), list[bytes]()

        longest = self._longest_unary(out)

        async def play(audio: bytes) -> None:
            pieces.append(out.feed(audio))
            refuse_longer(out.position / out.sample_rate, longest)

        with self.admission.admit(TEXT, _bytes(utterance.text)):
            async with request_deadline(self._settings.max_request_seconds, context.time_remaining()):
                await speak(utterance, self._stages, play, metrics, longest)
        pieces.append(out.finish())
        audio, audible = b"".join(pieces), FirstAudible(out.encoding, out.sample_rate)
        metrics.sounded()
        audible.arrived(metrics.milliseconds / 1000, audio)
        set_figures(partial(figures_of, metrics, out.position / out.sample_rate, audible))
        return synthesis_pb2.SynthesizeUnaryResponse(
            audio=audio,
            header=header_of(utterance, metrics),
            summary=summary_of(metrics, out.position / utterance.sample_rate, audible),
            words=take_words(metrics),
        )

    def _longest_unary(self, out: OutputStream) -> float:
        """Longest audio in seconds: what fits into one message as most gRPC clients accept it, or
        the setting if that is less.
        """
        return min(self._settings.max_unary_seconds, _UNARY_BYTES / (out.sample_rate * out.encoding.bytes_per_sample))


def _bytes(text: str) -> int:
    return len(text.encode())


async def _setup_of(
    requests: AsyncIterator[synthesis_pb2.StreamingSynthesizeRequest],
) -> synthesis_pb2.StreamingSynthesizeSetup:
    """The setup, which must be the first message. The server has already waited for that message
    (cosyserve.rpc.first_message).
    """
    first = await anext(requests, None)
    if first is None or first.WhichOneof("part") != "setup":
        received = (
            "no message came" if first is None else f"the first message carries {first.WhichOneof('part') or 'nothing'}"
        )
        raise errors.InvalidRequest(f"{received}, expected the setup")
    return first.setup


async def _fragments(requests: AsyncIterator[synthesis_pb2.StreamingSynthesizeRequest]) -> AsyncIterator[Fragment]:
    async for request in requests:
        part = request.WhichOneof("part")
        if part not in ("text", "flush", "cancel"):
            raise errors.InvalidRequest(
                f"a message after the first carries {part or 'nothing'}, expected text, flush or cancel"
            )
        if len(request.text) > _LONGEST_FRAGMENT:
            raise errors.InvalidRequest(
                f"text has {len(request.text)} characters in one message, allowed are at most {_LONGEST_FRAGMENT}"
            )
        yield Fragment(text=request.text, flush=part == "flush", cancel=part == "cancel")


async def _noted(fragments: AsyncIterator[Fragment], place: PreemptiblePlace) -> AsyncIterator[Fragment]:
    """Pass `fragments` on and mark the place as used for each; blank fragments only keep the stream
    alive and do not count as use.
    """
    async for fragment in fragments:
        if fragment.text.strip():
            place.used()
        yield fragment


async def _speak_in(
    place: PreemptiblePlace,
    utterance: Utterance,
    stages: Stages,
    text: TextReplayBuffer,
    play: Play,
    metrics: RequestMetrics,
) -> None:
    async def noted(audio: bytes) -> None:
        place.used()
        await play(audio)

    await speak(utterance, stages, noted, metrics, text=text)
