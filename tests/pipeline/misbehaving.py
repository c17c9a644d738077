"""The real services around the shipped fakes, in one process, with a fake that misbehaves on
demand.
"""

import contextlib
from collections.abc import AsyncIterator
from typing import Any

import numpy as np

from cosyserve.generations.generation import SilentTokens
from cosyserve.v1 import frontend_pb2, synthesis_pb2_grpc, voice_pb2
from services.llm.backends.fake_backend import FakeBackend
from services.llm.servicer import LlmServicer
from services.llm.settings import LlmSettings
from services.token2wav.decoders.backend import EngineSettings
from services.token2wav.loading import load_backend
from services.token2wav.scheduling.batcher import Batcher
from services.token2wav.scheduling.memory_budget import Limits
from services.token2wav.servicer import Token2WavServicer
from tests.stacks.in_process import HERE, orchestrated, serving
from tests.stacks.scripted_stages import Frontend, Script

PROMPT = list(np.random.default_rng(0).integers(0, 6561, 60))


class PromptedFrontend(Frontend):
    """Words are sentences of ten text ids, two for each of five spoken words, and the voice has a
    prompt.
    """

    async def Analyze(
        self, request: frontend_pb2.AnalyzeRequest, context: Any
    ) -> AsyncIterator[frontend_pb2.AnalyzeResponse]:
        for index, word in enumerate(request.text.split()):
            words = [frontend_pb2.SpokenWord(text=word, first_id=place, ids=2) for place in range(0, 10, 2)]
            yield frontend_pb2.AnalyzeResponse(
                sentence=frontend_pb2.Sentence(index=index, token_ids=[len(word)] * 10, words=words)
            )

    async def GetVoice(self, request: frontend_pb2.GetVoiceRequest, context: Any) -> frontend_pb2.GetVoiceResponse:
        voice = voice_pb2.Voice(
            id="anna",
            content_hash="h",
            prompt_text_ids=range(12),
            prompt_speech_tokens=PROMPT,
            prompt_mel=np.zeros((2 * len(PROMPT), 80), "<f4").tobytes(),
            speaker_embedding=np.ones(192, "<f4").tobytes(),
        )
        return frontend_pb2.GetVoiceResponse(voice=voice)


def fake_settings(**settings: Any) -> LlmSettings:
    return LlmSettings(listen=HERE, backend="fake", **settings)


@contextlib.asynccontextmanager
async def misbehaving(
    llm: dict[str, Any] | FakeBackend | None = None,
    token2wav: dict[str, Any] | None = None,
    silent: SilentTokens | None = None,
    **settings: Any,
) -> AsyncIterator["synthesis_pb2_grpc.SynthesisServiceAsyncStub"]:
    """A stub of the public door. llm, token2wav: settings of the fakes, or a fake. silent: tokens
    of which the speech-token model says that long runs are not spoken.
    """
    tokens = llm if isinstance(llm, FakeBackend) else FakeBackend(fake_settings(**(llm or {})))
    sound = load_backend("fake", EngineSettings(**(token2wav or {})))
    batcher = Batcher(
        sound.decoders, Limits(max_streams=8, state_bytes=1 << 30), hold_seconds=0.0
    )  # a fault after sound was heard

    servicers = {
        "frontend": PromptedFrontend(Script()),
        "llm": LlmServicer(tokens, silent=silent),
        "token2wav": Token2WavServicer(sound.identity, batcher),
    }
    async with contextlib.AsyncExitStack() as exits:
        exits.push_async_callback(tokens.close)
        exits.callback(batcher.close)
        stages = {name: [await exits.enter_async_context(serving(name, one))] for name, one in servicers.items()}
        _, channel = await exits.enter_async_context(orchestrated(stages, **settings))
        yield synthesis_pb2_grpc.SynthesisServiceStub(channel)  # type: ignore[misc]
