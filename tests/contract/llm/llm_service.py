"""LlmService over real gRPC on loopback: the servicer on a backend of the test, and calls to it."""

import contextlib
from collections.abc import AsyncIterator, Iterable
from typing import Any

import grpc

from cosyserve.rpc.server import Service, running
from cosyserve.v1 import llm_pb2, llm_pb2_grpc
from services.llm.__main__ import NAME, loader
from services.llm.backends.backend import Backend
from services.llm.backends.torch_backend import TorchBackend
from services.llm.servicer import LlmServicer
from tests.stacks.calls import conversation, until
from tests.stacks.in_process import serving
from tests.unit.llm.tiny_llm import settings

Setup = llm_pb2.GenerateSetup
PROMPT = {"prompt_text_ids": range(10, 19), "prompt_speech_tokens": range(40, 60)}


@contextlib.asynccontextmanager
async def served(by: Backend, first_message_seconds: float = 30.0, **options: Any) -> AsyncIterator[Any]:
    """The servicer, with its options, on a backend that the test holds. first_message_seconds: of
    the server.
    """
    async with (
        serving("llm", LlmServicer(by, **options), first_message_seconds=first_message_seconds) as service,
        grpc.aio.insecure_channel(f"127.0.0.1:{service.port}") as channel,
    ):
        yield llm_pb2_grpc.LlmServiceStub(channel)


@contextlib.asynccontextmanager
async def started(**changes: Any) -> AsyncIterator[tuple[Service, grpc.aio.Channel]]:
    """The service as the command starts it, with these settings, and a channel to it."""
    wanted = settings(drain_seconds=0, **changes)
    async with (
        running(NAME, wanted, loader(wanted)) as service,
        grpc.aio.insecure_channel(f"127.0.0.1:{service.port}") as channel,
    ):
        yield service, channel


async def generate(stub: Any, text: Iterable[int] = (1, 2, 3), **setup: Any) -> list[llm_pb2.SpeechTokens]:
    request = llm_pb2.GenerateRequest(setup=Setup(**setup), text_ids=text)
    return [response.tokens async for response in stub.Generate(request, timeout=60)]


def setup_message(**fields: Any) -> llm_pb2.GenerateStreamRequest:
    return llm_pb2.GenerateStreamRequest(setup=Setup(**fields))


def text_message(*ids: int) -> llm_pb2.GenerateStreamRequest:
    return llm_pb2.GenerateStreamRequest(text=llm_pb2.TextIds(ids=ids))


async def generate_stream(stub: Any, pieces: Iterable[Iterable[int]], **setup: Any) -> list[llm_pb2.SpeechTokens]:
    requests = [setup_message(**setup), *(text_message(*piece) for piece in pieces)]
    return [response.tokens for response in await conversation(stub.GenerateStream(timeout=60), requests)]


def joined(messages: list[llm_pb2.SpeechTokens]) -> list[int]:
    return [token for message in messages for token in message.tokens]


async def idle(engine: TorchBackend) -> None:
    """Until nothing runs."""
    await until(lambda: not (engine.engine.stats.running or engine.engine.stats.waiting), 120)
