"""Voices of a whole system: two frontends share a directory, one dies, nothing is lost. The bundled
voice speaks and is made again.
"""

import asyncio
import json
import os
import re
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from cosyserve.audio.encoding import from_pcm
from cosyserve.audio.wav import wav_header
from cosyserve.client import AsyncClient
from cosyserve.errors import AlreadyExists, FailedPrecondition, InvalidRequest, NotFound
from cosyserve.host.supervision.supervisor import LocalDeployment, Running, local_deployment
from cosyserve.v1 import frontend_pb2 as pb
from cosyserve.v1 import frontend_pb2_grpc
from tests.stacks.up_process import DEMO, ROOT, run_cosyserve
from tools.quality.recordings.recording import Recording, Sentence
from tools.quality.words.recognition import Recogniser

SPOKEN = "The quick brown fox jumps over the lazy dog, and nobody minds at all."


async def recording(client: AsyncClient) -> bytes:
    audio = await client.synthesize(SPOKEN, seed=3).read()
    return wav_header(24_000, len(audio) // 2) + audio


async def known_to(child: Running, voice_id: str) -> str:
    """Content hash of a voice, asked of one replica itself."""
    async with grpc.aio.insecure_channel(f"127.0.0.1:{child.port}") as channel:
        stub: Any = frontend_pb2_grpc.FrontendServiceStub(channel)
        return str((await stub.GetVoice(pb.GetVoiceRequest(id=voice_id))).voice.content_hash)


def frontends(stack: LocalDeployment) -> list[Running]:
    return [child for child in stack.children if child.name == "frontend"]


@pytest.fixture
async def stack(tmp_path: Path) -> AsyncIterator[LocalDeployment]:
    environ = {"COSYSERVE_FRONTEND_VOICES_URL": str(tmp_path / "voices"), "COSYSERVE_FRONTEND_NORMALIZER": "none"}
    async with local_deployment(DEMO, replicas={"frontend": 2}, environ=environ) as running:
        yield running


async def test_a_voice_made_on_one_replica_is_spoken_by_all_and_outlives_one(
    stack: LocalDeployment, tmp_path: Path
) -> None:
    async with AsyncClient(stack.address) as client:
        file = tmp_path / "sample.wav"
        file.write_bytes(await recording(client))

        # The command line, as the page on voices shows it.
        added = await asyncio.to_thread(
            run_cosyserve,
            "voices",
            "add",
            "--name",
            "me",
            str(file),
            "--transcript",
            SPOKEN,
            "--label",
            "a=b",
            "--server",
            stack.address,
            "--json",
        )
        assert added.returncode == 0, added.stderr
        made = json.loads(added.stdout)
        assert (made["id"], made["transcript"], made["labels"]) == ("me", SPOKEN, {"a": "b"})
        assert {await known_to(child, "me") for child in frontends(stack)} == {made["content_hash"]}
        said = await asyncio.to_thread(
            run_cosyserve,
            "say",
            "Hello, this is me.",
            "--voice",
            "me",
            "--seed",
            "1",
            "-o",
            str(tmp_path / "me.wav"),
            "--server",
            stack.address,
        )
        assert said.returncode == 0, said.stderr
        assert "voice me" in said.stdout
        before = await client.synthesize("Hello, this is me.", voice="me", seed=1).read()
        assert (tmp_path / "me.wav").read_bytes()[44:] == before
        assert before != await client.synthesize("Hello, this is me.", voice="am_michael", seed=1).read()

        # One is killed while it makes a voice; the other makes it instead, and has everything that
        # was made before.
        long = file.read_bytes()[44:] * 6
        making = asyncio.create_task(client.create_voice(wav_header(24_000, len(long) // 2) + long, voice_id="second"))
        await asyncio.sleep(0.05)
        stack.kill("frontend", 0)
        assert (await making).id == "second"
        assert await client.synthesize("Hello, this is me.", voice="me", seed=1).read() == before
        assert [voice.id for voice in await client.voices()] == ["af_heart", "am_michael", "me", "second"]
        await client.create_voice(file.read_bytes(), voice_id="third")
        await client.delete_voice("second")
        with pytest.raises(NotFound):
            await client.voice("second")

        # The one that comes back knows what happened meanwhile.
        while len(frontends(stack)) < 2 or not all(child.serving for child in frontends(stack)):
            await asyncio.sleep(0.1)
        for child in frontends(stack):
            assert await known_to(child, "third")
            with pytest.raises(grpc.aio.AioRpcError, match="no voice 'second'"):
                await known_to(child, "second")

        await without_transcript(client, file.read_bytes())
        await refusals(client, file.read_bytes())
        await the_other_commands(stack, tmp_path)
        await client.delete_voice("me")
        await asyncio.to_thread(the_page, stack, tmp_path)


async def without_transcript(client: AsyncClient, audio: bytes) -> None:
    """The speech-token model sees nothing of such a prompt, or it would speak on from words that
    it was not given.
    """
    text = "Please open the window before you leave the house."
    await client.create_voice(audio, voice_id="plain")
    spoken = from_pcm(await client.synthesize(text, voice="plain", seed=1).read())
    heard = await asyncio.to_thread(lambda: Recogniser(1).text_of(Recording(Sentence(1, text), spoken, 24_000)))
    assert len(set(heard.lower().strip(".").split()) & set(text.lower().strip(".").split())) >= 7, heard
    await client.delete_voice("plain")


async def refusals(client: AsyncClient, audio: bytes) -> None:
    """As the public door gives them."""
    with pytest.raises(AlreadyExists, match="there is a voice 'me' already"):
        await client.create_voice(audio, voice_id="me")
    with pytest.raises(InvalidRequest, match="is implausible"):
        await client.create_voice(audio, transcript="Not that.")
    with pytest.raises(FailedPrecondition, match="comes with the model"):
        await client.delete_voice("af_heart")
    changed = await client.update_voice("me", description="new")
    assert (changed.description, changed.labels) == ("new", {"a": "b"})
    assert (await client.update_voice("me", labels={})).labels == {}
    assert (await client.update_voice("me")).description == "new"


async def the_other_commands(stack: LocalDeployment, tmp_path: Path) -> None:
    def run(*arguments: str) -> str:
        done = run_cosyserve("voices", *arguments)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def all_of_them() -> None:
        storage = ("--voices", str(tmp_path / "voices"))
        server = ("--server", stack.address)
        assert "description: new" in run("show", "me", *server)
        assert "Myself" in run("set", "me", "--display-name", "Myself", *server)
        assert run("export", str(tmp_path / "zero.pt"), *storage, "--only", "me") == "1 voices: me\n"
        assert (
            run("export", str(tmp_path / "triton.pt"), *storage, "--only", "me", "--layout", "triton")
            == "1 voices: me\n"
        )
        first = json.loads(run("show", "me", "--json", *server))
        for file in ("zero.pt", "triton.pt"):
            assert run("rm", "me", *server) == "me: deleted\n"
            assert run("import", str(tmp_path / file), *storage) == "1 voices: me\n"
            again = json.loads(run("show", "me", "--json", *server))
            assert (again["content_hash"], again["transcript"]) == (first["content_hash"], SPOKEN)
        assert "me" in run(*server)

    await asyncio.to_thread(all_of_them)


def the_page(stack: LocalDeployment, tmp_path: Path) -> None:
    """Everything that docs/voices.md shows, as it stands."""
    page = (ROOT / "docs" / "voices.md").read_text(encoding="utf-8").replace("127.0.0.1:50051", stack.address)
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {
        **os.environ, "PATH": path, "PYTHONPATH": str(ROOT), "COSYSERVE_FRONTEND_VOICES_URL": str(tmp_path / "voices"),
    }  # fmt: skip
    (shell,) = re.findall(r"^```bash\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    (program,) = re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    assert len(shell.splitlines()) > 8
    commands = [["bash", "-c", line] for line in shell.splitlines()]
    for command in [*commands, [sys.executable, "-c", program]]:
        ours = command[2].removeprefix("cosyserve ")
        if ours != command[2]:
            server = "" if " import " in ours or " export " in ours else f" --server {stack.address}"
            command[2] = f"{sys.executable} -m cosyserve {ours}{server}"
        done = subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120, check=False
        )
        assert done.returncode == 0, f"{command}\n{done.stderr}"
        assert done.stdout.strip(), command
    assert done.stdout.startswith("voice-")
