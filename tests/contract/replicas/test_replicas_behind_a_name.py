"""Replicas on several addresses of the loopback behind one name: a name server says which, and the
test changes what it says.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from cosyserve.errors import SettingsError
from cosyserve.rpc.names import lookup
from cosyserve.rpc.names.lookup import _has_route
from cosyserve.rpc.replicas import Replica, ReplicaSet
from cosyserve.tasks import Changes
from cosyserve.v1 import info_pb2, info_pb2_grpc, llm_pb2, llm_pb2_grpc, synthesis_pb2, synthesis_pb2_grpc
from services.orchestrator.stages.info import StageInfo
from tests.stacks.calls import rest, until
from tests.stacks.certificates import Authority, Folder
from tests.stacks.dns.name_server import NameServer, name_server
from tests.stacks.in_process import orchestrated, serving
from tests.stacks.scripted_stages import Llm, Script, expected_audio, stack
from tests.stacks.secured import served, tls_of

NAME = "llm.test"
REQUEST = llm_pb2.GenerateRequest(setup=llm_pb2.GenerateSetup(), text_ids=[3])


class Stage:
    """Scripted replicas on 127.0.0.N, all on one port, behind NAME as far as `names` says so."""

    def __init__(self, names: NameServer, exits: contextlib.AsyncExitStack) -> None:
        self.names, self._exits = names, exits
        self.port = 0
        self.scripts: dict[str, Script] = {}
        self.exits: dict[str, contextlib.AsyncExitStack] = {}

    async def start(self, *hosts: str, **settings: Any) -> None:
        for host in hosts:
            place = f"[{host}]:{self.port}" if ":" in host else f"{host}:{self.port}"
            self.exits[host] = await self._exits.enter_async_context(contextlib.AsyncExitStack())
            self.scripts[host] = Script()
            service = await self.exits[host].enter_async_context(
                serving("llm", Llm(self.scripts[host]), place, **settings)
            )
            self.port = service.port

    def behind(self, *hosts: str) -> None:
        self.names.records[NAME] = list(hosts)

    async def replicas(self, **options: Any) -> tuple[ReplicaSet, Changes]:
        """Of the name, known to the test's loop; closed with the stage."""
        changes = Changes()
        target = self.names.target(NAME, self.port)
        found = ReplicaSet("llm", "cosyserve.v1.LlmService", [target], 1 << 20, changes.notify, **options)
        self._exits.push_async_callback(found.close)
        return found, changes


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    async with contextlib.AsyncExitStack() as exits:
        yield Stage(await exits.enter_async_context(name_server()), exits)


def hosts(replicas: ReplicaSet) -> list[str]:
    return [replica.target.rpartition(":")[0].strip("[]") for replica in replicas.serving_replicas()]


def generate(replica: Replica) -> Any:
    return llm_pb2_grpc.LlmServiceStub(replica.channel).Generate(REQUEST)


async def test_what_comes_is_used_and_what_goes_is_not(stage: Stage) -> None:
    await stage.start("127.0.0.2", "127.0.0.3", "127.0.0.4")
    stage.behind("127.0.0.2")
    replicas, _ = await stage.replicas()
    await until(lambda: hosts(replicas) == ["127.0.0.2"])
    looked_up = stage.names.queries["A"]
    stage.behind("127.0.0.4", "127.0.0.2", "127.0.0.3")
    await until(lambda: len(replicas.replicas) == 3)
    # The look-ups are a second apart, and the answer to one may be under way.
    assert stage.names.queries["A"] <= looked_up + 2
    await until(lambda: hosts(replicas) == ["127.0.0.2", "127.0.0.3", "127.0.0.4"])

    kept = {replica.target: replica for replica in replicas.replicas}
    stage.behind("127.0.0.3", "127.0.0.2")
    await until(lambda: len(replicas.replicas) == 2)
    assert hosts(replicas) == ["127.0.0.2", "127.0.0.3"]
    assert all(kept[replica.target] is replica for replica in replicas.replicas)
    assert not replicas.serving_replicas()[1].gone


async def test_a_stream_goes_on_where_no_new_one_begins(stage: Stage) -> None:
    await stage.start("127.0.0.2", "127.0.0.3")
    stage.behind("127.0.0.2", "127.0.0.3")
    replicas, _ = await stage.replicas()
    await until(lambda: len(replicas.serving_replicas()) == 2)
    may_go_on = asyncio.Event()
    stage.scripts["127.0.0.2"].generate = lambda *_: may_go_on.wait()
    leaving = replicas.serving_replicas()[0]
    with replicas.busy(leaving):
        call = generate(leaving)
        begun = [await call.read(), await call.read()]
        stage.behind("127.0.0.3")
        await until(lambda: leaving.gone)
        for _ in range(20):
            chosen = replicas.pick()
            assert chosen is not None
            assert chosen.target == f"127.0.0.3:{stage.port}"
            with replicas.busy(chosen):
                await rest(generate(chosen))
        assert await replicas.wait(0.05, avoid=replicas.replicas) is None
        assert leaving.channel.get_state() is grpc.ChannelConnectivity.READY
        may_go_on.set()
        responses = [*begun, *await rest(call)]
    assert [token for each in responses for token in each.tokens.tokens] == list(range(15))
    assert (len(stage.scripts["127.0.0.2"].calls), len(stage.scripts["127.0.0.3"].calls)) == (1, 20)
    await until(lambda: leaving.channel.get_state() is grpc.ChannelConnectivity.SHUTDOWN)


async def test_a_replica_that_returns_is_used_again(stage: Stage) -> None:
    await stage.start("127.0.0.2", "127.0.0.3")
    stage.behind("127.0.0.2", "127.0.0.3")
    replicas, _ = await stage.replicas()
    await until(lambda: len(replicas.serving_replicas()) == 2)
    before = replicas.replicas[0]
    stage.behind("127.0.0.3")
    await until(lambda: before.gone)
    stage.behind("127.0.0.2", "127.0.0.3")
    await until(lambda: len(replicas.serving_replicas()) == 2)
    assert replicas.replicas[0] is not before
    await rest(generate(replicas.replicas[0]))


async def test_a_dead_replica_is_not_called_though_its_name_still_says_so(stage: Stage) -> None:
    await stage.start("127.0.0.2", "127.0.0.3")
    stage.behind("127.0.0.2", "127.0.0.3")
    replicas, _ = await stage.replicas()
    await until(lambda: len(replicas.serving_replicas()) == 2)
    await stage.exits["127.0.0.2"].aclose()
    await until(lambda: hosts(replicas) == ["127.0.0.3"])
    assert len(replicas.replicas) == 2
    await stage.start("127.0.0.2")
    await until(lambda: len(replicas.serving_replicas()) == 2)


async def test_while_dns_fails_the_known_replicas_are_used(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lookup, "LEAST_SECONDS", 0.02)
    await stage.start("127.0.0.2", "127.0.0.3")
    stage.behind("127.0.0.2", "127.0.0.3")
    replicas, _ = await stage.replicas(look_up_seconds=0.02)
    await until(lambda: len(replicas.serving_replicas()) == 2)
    stage.names.failure = "SERVFAIL"
    asked = stage.names.queries["A"]
    await until(lambda: stage.names.queries["A"] > asked + 5)
    assert len(replicas.serving_replicas()) == 2
    stage.names.failure = ""
    stage.names.records.clear()
    await until(lambda: not replicas.replicas)
    assert not replicas.serving


@pytest.mark.skipif(not _has_route("::1"), reason="this host has no IPv6 loopback")
async def test_ipv6(stage: Stage) -> None:
    await stage.start("::1")
    stage.behind("::1")
    replicas, _ = await stage.replicas()
    await until(lambda: hosts(replicas) == ["::1"])
    assert replicas.replicas[0].target == f"[::1]:{stage.port}"
    await rest(generate(replicas.replicas[0]))


@pytest.mark.parametrize(("named", "trusted"), [(NAME, True), ("127.0.0.2", False), ("tts.test", False)])
async def test_a_certificate_is_for_the_name_and_not_for_the_address(
    stage: Stage, named: str, trusted: bool, tmp_path: Path
) -> None:
    authority = Authority()
    server = Folder(tmp_path / "server").put(authority.issue((named,)), authority.pem)
    client = Folder(tmp_path / "client").put(authority.issue(), authority.pem)
    await stage.start("127.0.0.2", **served(server))
    stage.behind("127.0.0.2")
    replicas, _ = await stage.replicas(tls=tls_of(client))
    await until(lambda: replicas.replicas)
    if trusted:
        await until(lambda: hosts(replicas) == ["127.0.0.2"])
        await rest(generate(replicas.replicas[0]))
    else:
        await asyncio.sleep(1.5)
        assert not replicas.serving


@pytest.mark.parametrize("target", ["dns:///llm", "dns:///llm:0", "dns://ns/llm:1"])
async def test_a_target_that_cannot_be_one_stops_the_start(target: str) -> None:
    with pytest.raises(SettingsError, match="llm: 'dns:"):
        ReplicaSet("llm", "cosyserve.v1.LlmService", [target], 1 << 20, lambda: None)


async def test_each_process_behind_a_name_is_asked_by_itself(stage: Stage) -> None:
    await stage.start("127.0.0.2", "127.0.0.3")
    stage.behind("127.0.0.2", "127.0.0.3", "127.0.0.4")
    replicas, _ = await stage.replicas()
    assert await StageInfo([replicas]).ask() == ([], ["llm: UNAVAILABLE"])
    await until(lambda: len(replicas.serving_replicas()) == 2)
    told, silent = await StageInfo([replicas]).ask()
    assert [one.service for one in told] == ["cosyserve.v1.LlmService"] * 2
    assert silent == ["llm: UNAVAILABLE"]


async def test_a_name_without_an_address_is_a_stage_that_is_not_ready(stage: Stage) -> None:
    """The orchestrator starts, says why it refuses, and serves as soon as there is an address."""
    await stage.start("127.0.0.2")
    name = (stage.names.target(NAME, stage.port),)
    async with contextlib.AsyncExitStack() as exits:
        running = await exits.enter_async_context(stack())
        starting = exits.enter_async_context(orchestrated(running.services, llm=name))
        opening = asyncio.create_task(starting)
        await asyncio.sleep(1.5)
        assert not opening.done()
        stage.behind("127.0.0.2")
        _, channel = await opening
        responses = await _spoken(channel, "one three")
        assert b"".join(one.audio for one in responses) == expected_audio("one three")
        assert stage.scripts["127.0.0.2"].calls
        stage.behind()
        stub: Any = info_pb2_grpc.InfoServiceStub(channel)
        await until(lambda: stage.names.queries["AAAA"] > 2)
        while list((await stub.GetInfo(info_pb2.GetInfoRequest())).silent_stages) != ["llm: UNAVAILABLE"]:
            await asyncio.sleep(0.05)
        with pytest.raises(grpc.aio.AioRpcError, match="no replica of llm is serving"):
            await _spoken(channel, "one three")


async def _spoken(channel: grpc.aio.Channel, text: str) -> list[Any]:
    stub: Any = synthesis_pb2_grpc.SynthesisServiceStub(channel)
    return [one async for one in stub.Synthesize(synthesis_pb2.SynthesizeRequest(text=text))]
