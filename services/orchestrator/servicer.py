"""SynthesisService: translates requests to `Utterance` and sound to responses. Voices are stored by
the frontend, which answers the voice methods.
"""

import asyncio
import contextlib
import secrets
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import grpc

from cosyserve import errors
from cosyserve.audio.audibility import FirstAudible
from cosyserve.rpc.deadlines import ShortestTime
from cosyserve.rpc.first_message import setup_of
from cosyserve.rpc.records.call_record import current_record
from cosyserve.v1 import synthesis_pb2 as pb
from cosyserve.v1 import synthesis_pb2_grpc
from services.orchestrator import validation
from services.orchestrator.access.caller import current_call
from services.orchestrator.conversion import convert
from services.orchestrator.faults.brownout import BrownOut
from services.orchestrator.faults.quarantine import Quarantine
from services.orchestrator.faults.work import request_key
from services.orchestrator.load_control.admission import PreemptiblePlace, request_deadline
from services.orchestrator.load_control.entrance import Entrance, Entry, OwnEntrance
from services.orchestrator.load_control.wait_estimate import (
    ARRIVING_TEXT,
    RECORDING,
    TEXT,
    ActiveRequest,
    RequestKind,
)
from services.orchestrator.pipeline import RequestMetrics, Stages, refuse_longer, speak
from services.orchestrator.reply import Reply, count_audible, figures_of, header_of, output_of, summary_of, take_words
from services.orchestrator.request_log import FIGURES, logged
from services.orchestrator.settings import OrchestratorSettings
from services.orchestrator.speech.arriving_text import CancelledByCaller, Flush, TextReplayBuffer, listen
from services.orchestrator.speech.output import Piece
from services.orchestrator.speech.utterance import Utterance
from services.orchestrator.stages.token2wav import is_served_profile

Context = grpc.aio.ServicerContext[Any, Any]
_LONGEST_FRAGMENT = 20_000
_UNARY_BYTES = 4_000_000
"""Audio in one message as most gRPC clients accept it: their default limit is 4 MiB."""


class SynthesisServicer(synthesis_pb2_grpc.SynthesisServiceServicer):
    """The public service."""

    def __init__(
        self,
        stages: Stages,
        settings: OrchestratorSettings,
        quarantine: Quarantine | None = None,
        entrance: Entrance | None = None,
    ) -> None:
        """entrance: where calls are let in; None: this process counts them by itself."""
        self._stages, self._quarantine = stages, quarantine or Quarantine()
        self._settings = settings
        self._first_sounds = ShortestTime()
        self._brownout = BrownOut(settings.brownout_share, settings.brownout_first_hop_tokens)
        self.entrance = entrance or own_entrance(settings)

    @contextlib.asynccontextmanager
    async def admitted(
        self, kind: RequestKind, size: float, text: str = "", preemptible: PreemptiblePlace | None = None
    ) -> AsyncIterator[ActiveRequest]:
        """Hold a place for the current call while the block runs, and count it and its text against
        the limits of its key. Arguments as of `Admission.admit`. Raises LimitReached, Overloaded.
        """
        call = current_call()
        async with self.entrance.enter(call, Entry("stream", kind, size, len(text)), preemptible) as place:
            call.characters += len(text)
            yield place

    def _browned_out(self, utterance: Utterance) -> contextlib.AbstractContextManager[Utterance]:
        """The utterance as it is spoken by a server with so many requests under way."""
        return self._brownout.applied(utterance, self.entrance.occupancy, streams=is_served_profile(utterance))

    def admitted_warm_up(self) -> contextlib.AbstractAsyncContextManager[ActiveRequest]:
        """The same for a warm-up, which waits for no place."""
        return self.entrance.enter(current_call(), Entry("warm-up"))

    @logged
    async def Synthesize(  # type: ignore[override]  # writes from a coroutine, so that an error of any stage ends the call
        self, request: pb.SynthesizeRequest, context: Context
    ) -> None:
        utterance = validation.streaming(request, self._settings.max_characters)
        self._quarantine.require_allowed(request_key(utterance))
        self._first_sounds.require("orchestrator.admission")
        async with (
            self.admitted(TEXT, _bytes(utterance.text), utterance.text),
            request_deadline(self._settings.max_request_seconds, context.time_remaining()),
        ):
            with self._browned_out(utterance) as spoken:
                reply = Reply(spoken, context, self._settings.reader_seconds)
                await reply.stream(partial(speak, spoken, self._stages))
            self._first_sounds.took(reply.first_sound_seconds)

    @logged
    async def ConvertVoice(  # type: ignore[override]  # as Synthesize
        self, request: pb.ConvertVoiceRequest, context: Context
    ) -> None:
        utterance = validation.conversion(request)
        async with (
            self.admitted(RECORDING, len(request.audio)),
            request_deadline(self._settings.max_request_seconds, context.time_remaining()),
        ):
            with self._browned_out(utterance) as spoken:
                reply = Reply(spoken, context, self._settings.reader_seconds)
                await reply.stream(partial(convert, spoken, request.audio, self._stages))

    @logged
    async def StreamingSynthesize(  # type: ignore[override]  # as Synthesize
        self, requests: AsyncIterator[pb.StreamingSynthesizeRequest], context: Context
    ) -> None:
        settings = self._settings
        utterance, waiting = validation.arriving(await setup_of(requests), settings.idle_seconds)
        self._stages.voices.require_supported(utterance.prompting)
        preemptible = PreemptiblePlace(settings.idle_seconds)
        current_record().text_arrives = True
        async with contextlib.AsyncExitStack() as held:
            place = await held.enter_async_context(self.admitted(ARRIVING_TEXT, 1.0, preemptible=preemptible))
            utterance = held.enter_context(self._browned_out(utterance))
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
                            listen(_parts(requests, preemptible), text, waiting, settings.max_stream_characters)
                        )
                        await reply.stream(partial(speak, utterance, self._stages, text=text))
                        reclaiming.cancel()
                except* CancelledByCaller:
                    place.cut_short = True
                    await reply.break_off()

    @logged
    async def SynthesizeUnary(self, request: pb.SynthesizeUnaryRequest, context: Context) -> pb.SynthesizeUnaryResponse:
        utterance = validation.unary(request, self._settings.max_characters)
        self._quarantine.require_allowed(request_key(utterance))
        metrics, pieces = RequestMetrics(), list[Piece]()
        async with self.admitted(TEXT, _bytes(utterance.text), utterance.text):
            out = output_of(utterance)
            longest = min(self._settings.max_unary_seconds, _UNARY_BYTES / out.most_bytes_per_second)

            async def play(audio: bytes) -> None:
                pieces.append(await out.feed(audio))
                refuse_longer(out.position / out.sample_rate, longest)

            late_words = metrics.retry_state.late_words
            async with request_deadline(self._settings.max_request_seconds, context.time_remaining()):
                try:
                    await speak(utterance, self._stages, play, metrics, longest)
                    pieces.append(await out.finish())
                    await late_words.complete()
                finally:
                    late_words.cancel()
        audible = FirstAudible(out.sound_encoding, out.sample_rate)
        metrics.sounded()
        metrics.heard.sent(out.position / out.sample_rate)
        audible.arrived(metrics.milliseconds / 1000, b"".join(piece.sound for piece in pieces))
        count_audible(metrics, audible)
        FIGURES.set(partial(figures_of, metrics, out.position / out.sample_rate, audible))
        summary = summary_of(metrics, out.position / utterance.sample_rate, audible)
        metrics.heard.finished(summary.real_time_factor)
        return pb.SynthesizeUnaryResponse(
            audio=b"".join(piece.audio for piece in pieces),
            header=header_of(utterance, metrics),
            summary=summary,
            words=take_words(metrics),
        )

    async def ListVoices(self, request: pb.ListVoicesRequest, context: Context) -> pb.ListVoicesResponse:
        page = await self._stages.voices.page(request.page_size, request.page_token)
        return pb.ListVoicesResponse(voices=page.voices, next_page_token=page.next_page_token, model=page.model)

    async def GetVoice(
        self, request: pb.SynthesisServiceGetVoiceRequest, context: Context
    ) -> pb.SynthesisServiceGetVoiceResponse:
        return pb.SynthesisServiceGetVoiceResponse(voice=await self._stages.voices.describe(request.id))

    async def CreateVoice(self, request: pb.CreateVoiceRequest, context: Context) -> pb.CreateVoiceResponse:
        draft = request.draft
        validation.require_size("draft.audio", draft.audio)
        async with self.entrance.enter(current_call(), Entry("voice")):
            draft.id = draft.id or f"voice-{secrets.token_hex(8)}"
            draft.request_id = draft.request_id or secrets.token_hex(16)
            return pb.CreateVoiceResponse(voice=await self._stages.voices.create(draft))

    async def UpdateVoice(self, request: pb.UpdateVoiceRequest, context: Context) -> pb.UpdateVoiceResponse:
        async with self.entrance.enter(current_call(), Entry("none")):
            voice = await self._stages.voices.update(request.id, request.metadata, request.update_mask.paths)
        return pb.UpdateVoiceResponse(voice=voice)

    async def DeleteVoice(self, request: pb.DeleteVoiceRequest, context: Context) -> pb.DeleteVoiceResponse:
        async with self.entrance.enter(current_call(), Entry("none")):
            await self._stages.voices.delete(request.id)
        return pb.DeleteVoiceResponse()


def own_entrance(settings: OrchestratorSettings) -> OwnEntrance:
    """The entrance of a process that counts by itself."""
    return OwnEntrance(
        settings.max_streams,
        settings.max_voice_makings,
        wait_seconds=settings.share_wait_seconds,
        kept_seconds=settings.share_kept_seconds,
    )


def _bytes(text: str) -> int:
    return len(text.encode())


async def _parts(
    requests: AsyncIterator[pb.StreamingSynthesizeRequest], place: PreemptiblePlace
) -> AsyncIterator[str | Flush]:
    """The text and flushes of the messages after the setup. Marks the place as used for each,
    except for blank text, which only keeps the stream alive. Raises CancelledByCaller.
    """
    async for request in requests:
        part = request.WhichOneof("part")
        if len(request.text) > _LONGEST_FRAGMENT:
            raise errors.InvalidRequest(
                f"text has {len(request.text)} characters in one message, allowed are at most {_LONGEST_FRAGMENT}"
            )
        current_call().take_text(len(request.text))
        if request.text.strip():
            current_record().text_came()
            place.used()
        if part == "text":
            yield request.text
        elif part == "flush":
            yield Flush()
        elif part == "cancel":
            raise CancelledByCaller
        else:
            raise errors.InvalidRequest(
                f"a message after the first carries {part or 'nothing'}, expected text, flush or cancel"
            )
