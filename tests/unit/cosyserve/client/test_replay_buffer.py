"""A streaming synthesis that is lost is taken up again with all the text that was written."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest

from cosyserve import errors
from cosyserve.client import AsyncClient
from cosyserve.client import streaming_speech as written
from cosyserve.v1 import synthesis_pb2, synthesis_pb2_grpc
from tests.unit.cosyserve.client.serving import RESPONSE, serving


class Speller(synthesis_pb2_grpc.SynthesisServiceServicer):
    """Speaks each character as one sample, a message for each fragment. Calls before the last one
    break off behind `breaks` samples.
    """

    def __init__(self, breaks: list[int]) -> None:
        self.breaks = breaks
        self.setups: list[Any] = []
        self.heard: list[list[str]] = []
        self.ends_at = 1 << 30
        """So many samples are all, whatever else is written."""
        self.may_speak = asyncio.Event()
        self.may_speak.set()

    async def StreamingSynthesize(self, requests: AsyncIterator[Any], context: Any) -> AsyncIterator[Any]:
        call, at, index = len(self.setups), 0, 0
        end = self.breaks[call] if call < len(self.breaks) else 1 << 30
        self.heard.append([])
        async for request in requests:
            if request.HasField("setup"):
                self.setups.append(synthesis_pb2.StreamingSynthesizeSetup.FromString(request.setup.SerializeToString()))
                await context.send_initial_metadata(())
                continue
            self.heard[-1].append(request.text or request.WhichOneof("part"))
            first, at = at, at + len(request.text)
            begin = max(first, self.setups[-1].request.start_sample)
            if begin < at:
                asked = self.setups[-1].request
                header = synthesis_pb2.SynthesisHeader(
                    seed=9, engine="e", audio_format=asked.audio_format, profile=asked.profile
                )
                audio = request.text[begin - first :].encode("utf-16-le")
                yield RESPONSE(audio=audio, chunk_index=index, start_sample=begin, header=None if index else header)
                index += 1
            if at >= self.ends_at:
                break
            if at >= end:
                raise errors.Unavailable("going away", retry_after=0.01)
        await self.may_speak.wait()
        yield RESPONSE(chunk_index=index, start_sample=at, summary=synthesis_pb2.SynthesisSummary(sentences=1))


@contextlib.asynccontextmanager
async def speller(*breaks: int) -> AsyncIterator[tuple[AsyncClient, Speller]]:
    door = Speller(list(breaks))
    async with serving(door) as client:
        yield client, door


async def test_everything_is_sent_again_and_what_is_written_meanwhile_behind_it() -> None:
    async with speller(5, 8) as (client, door):
        async with client.streaming_synthesize() as speech:

            async def write() -> None:
                for fragment in ("abc", "de", "f"):
                    await speech.write(fragment)
                await speech.flush()
                for fragment in ("gh", "ijk"):
                    await asyncio.sleep(0.1)
                    await speech.write(fragment)
                await speech.finish()

            writing = asyncio.create_task(write())
            audio = await asyncio.wait_for(speech.read(), 20)
            await asyncio.wait_for(writing, 5)
        assert (audio.decode("utf-16-le"), speech.resumed) == ("abcdefghijk", 2)
    assert door.heard[-1] == ["abc", "de", "f", "flush", "gh", "ijk"]
    assert [setup.request.start_sample for setup in door.setups] == [0, 5, 8]
    assert [(setup.request.seed, setup.request.engine) for setup in door.setups[1:]] == [(9, "e")] * 2


async def test_fragments_are_asked_for_once() -> None:
    async def fragments() -> AsyncIterator[str]:
        for fragment in ("abc", "def", "ghi"):
            yield fragment
            await asyncio.sleep(0.05)

    async with speller(3, 6) as (client, _), client.streaming_synthesize(fragments()) as speech:
        assert (await asyncio.wait_for(speech.read(), 20)).decode("utf-16-le") == "abcdefghi"
        assert speech.resumed == 2


@pytest.mark.parametrize(
    ("how", "most_characters"), [({"resume_seconds": 0.0}, 100), ({"buffer_delay_milliseconds": 100}, 100), ({}, 4)]
)
async def test_a_stream_that_cannot_be_repeated_is_raised(
    how: dict[str, Any], most_characters: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Because of how it was asked for, or because its text is too long to be kept."""
    monkeypatch.setattr(written, "MOST_CHARACTERS", most_characters)
    async with speller(6) as (client, door), client.streaming_synthesize(**how) as speech:
        for fragment in ("abc", "def"):
            await speech.write(fragment)
        with pytest.raises(errors.Unavailable, match="going away"):
            await asyncio.wait_for(speech.read(), 20)
        with pytest.raises(errors.Unavailable, match="going away"):
            await asyncio.wait_for(speech.write("ghi"), 20)
    assert len(door.setups) == 1


def test_a_text_that_is_too_long_to_be_kept_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(written, "MOST_CHARACTERS", 4)
    kept = written.MessageReplayBuffer()
    for fragment in ("abc", "def", "g"):
        kept.add(synthesis_pb2.StreamingSynthesizeRequest(text=fragment))
    kept.passed(2)
    assert (len(kept), kept.whole, getattr(kept.part(2), "text", "")) == (3, False, "g")


async def test_nothing_is_left_waiting_when_it_was_heard_to_its_end() -> None:
    """Without `async with`: no task of it goes on, and nothing can be written any more."""
    async with speller() as (client, _):
        before = asyncio.all_tasks()
        speech = client.streaming_synthesize()
        await speech.write("abc")
        await speech.finish()
        assert (await asyncio.wait_for(speech.read(), 20)).decode("utf-16-le") == "abc"
        await asyncio.sleep(0.1)
        assert {task for task in asyncio.all_tasks() - before if "_send" in repr(task)} == set()


async def test_nothing_is_left_waiting_when_the_server_ended_it() -> None:
    """As it does when it was told to cancel: the text has no end. Text that is still to come is not
    asked for.
    """
    stopped = asyncio.Event()

    async def fragments() -> AsyncIterator[str]:
        try:
            yield "abc"
            await asyncio.Event().wait()
        finally:
            stopped.set()

    async with speller() as (client, door):
        door.ends_at = 3
        before = asyncio.all_tasks()
        speech = client.streaming_synthesize(fragments())
        assert (await asyncio.wait_for(speech.read(), 20)).decode("utf-16-le") == "abc"
        await asyncio.wait_for(stopped.wait(), 1)
        await asyncio.sleep(0)
        assert {
            task for task in asyncio.all_tasks() - before if "_send" in repr(task) or "_pour" in repr(task)
        } == set()
        with pytest.raises(errors.InvalidRequest, match="the synthesis is over"):
            await asyncio.wait_for(speech.write("more"), 1)


async def test_what_is_written_behind_the_end_is_refused_at_once() -> None:
    """The server, which has not spoken yet, goes on with what it has."""
    async with speller() as (client, door), client.streaming_synthesize() as speech:
        await speech.write("abc")
        await speech.finish()
        door.may_speak.clear()
        for write in (lambda: speech.write("more"), speech.flush, speech.finish, speech.cancel):
            with pytest.raises(errors.InvalidRequest, match="its text was ended"):
                await asyncio.wait_for(write(), 1)
        door.may_speak.set()
        assert (await asyncio.wait_for(speech.read(), 20)).decode("utf-16-le") == "abc"
