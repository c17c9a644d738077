"""Names and what is behind them, asked from a real DNS server on loopback."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from cosyserve.errors import SettingsError
from cosyserve.rpc.names import lookup
from cosyserve.rpc.names.lookup import (
    LEAST_SECONDS,
    FollowedName,
    LookupFailed,
    NameLookup,
    listed_addresses,
)
from cosyserve.rpc.names.target import NamedTarget, named_target
from tests.stacks.calls import until
from tests.stacks.dns.name_server import NameServer, name_server


@pytest.mark.parametrize(
    ("target", "name"),
    [
        ("dns:///llm.speech.svc:50053", NamedTarget("llm.speech.svc", 50053)),
        ("dns:llm:50053", NamedTarget("llm", 50053)),
        ("llm:50053", NamedTarget("llm", 50053)),
        ("localhost:1", NamedTarget("localhost", 1)),
        ("dns:///llm.svc.:1", NamedTarget("llm.svc", 1, rooted=True)),
        ("dns://10.0.0.10/llm:1", NamedTarget("llm", 1, ("10.0.0.10", 53))),
        ("dns://10.0.0.10:5353/llm:1", NamedTarget("llm", 1, ("10.0.0.10", 5353))),
        ("dns://[fd00::a]:5353/llm:1", NamedTarget("llm", 1, ("fd00::a", 5353))),
        ("dns://fd00::a/llm:1", NamedTarget("llm", 1, ("fd00::a", 53))),
        ("10.1.2.3:1", None),
        ("dns:///10.1.2.3:1", None),
        ("[fd00::1]:1", None),
        ("dns:///[fd00::1]:1", None),
        ("unix:/run/llm.sock", None),
        ("unix:1", None),
        ("ipv4:10.0.0.1:1,10.0.0.2:1", None),
    ],
)
def test_what_is_a_name(target: str, name: NamedTarget | None) -> None:
    assert named_target(target) == name


@pytest.mark.parametrize(
    ("target", "reason"),
    [
        ("dns:///llm", "'dns:///llm' is not dns:///name:port"),
        ("dns://llm:50053", "is not dns:///name:port"),
        ("dns:///llm:70000", "has port 70000, allowed are 1 to 65535"),
        ("dns:///llm:0", "has port 0, allowed"),
        ("dns://ns.example/llm:1", "names 'ns.example' as its DNS server, expected an IP address"),
    ],
)
def test_what_cannot_be_one_is_said(target: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        named_target(target)


def test_addresses_of_both_kinds_are_targets() -> None:
    name = NamedTarget("llm", 5)
    assert (name.at("10.0.0.1"), name.at("fd00::1"), name.authority) == ("10.0.0.1:5", "[fd00::1]:5", "llm:5")


def test_the_hosts_file_is_read_as_it_is_now(tmp_path: Path) -> None:
    file = tmp_path / "hosts"
    file.write_text("# 10.0.0.9 llm\n10.0.0.1 a llm b # llm2\n10.0.0.2\tLLM\n10.0.0.1 llm\nfd00::1 llm\n\n")
    assert listed_addresses("llm", file) == ["10.0.0.1", "10.0.0.2", "fd00::1"]
    assert listed_addresses("llm2", file) == []
    file.unlink()
    assert listed_addresses("llm", file) == []
    assert listed_addresses("a.localhost", file) == ["127.0.0.1", "::1"]


@pytest.fixture
async def server() -> AsyncIterator[NameServer]:
    async with name_server() as running:
        yield running


def asked(server: NameServer, name: str = "llm.test") -> NameLookup:
    found = named_target(server.target(name, 1))
    assert found is not None
    return NameLookup(found)


async def test_ipv4_goes_before_ipv6_and_each_is_sorted(server: NameServer) -> None:
    server.records = {
        "llm.test": ["127.0.0.10", "::1", "127.0.0.2"],
        "six.test": ["::1"],
        "none.test": [],
        "other.test": ["127.0.0.1"],
    }
    assert await asked(server).addresses() == ["127.0.0.2", "127.0.0.10"]
    assert server.queries == {"A": 1}
    assert await asked(server, "six.test").addresses() == ["::1"]
    assert await asked(server, "none.test").addresses() == []
    assert server.queries == {"A": 3, "AAAA": 2}
    assert await asked(server, "no.test").addresses() == []
    assert server.queries == {"A": 4, "AAAA": 2}


async def test_ipv6_is_taken_where_no_route_leads_to_ipv4(server: NameServer, monkeypatch: pytest.MonkeyPatch) -> None:
    server.records = {"llm.test": ["127.0.0.2", "::1"]}
    monkeypatch.setattr(lookup, "_has_route", lambda address: ":" in address)
    assert await asked(server).addresses() == ["::1"]
    monkeypatch.setattr(lookup, "_has_route", lambda address: False)
    assert await asked(server).addresses() == ["127.0.0.2", "::1"]


async def test_an_answer_that_is_too_long_for_a_datagram_comes_whole(server: NameServer) -> None:
    many = [f"127.0.1.{number}" for number in range(1, 101)]
    server.records = {"llm.test": many}
    assert await asked(server).addresses() == many
    assert server.over_tcp == 1


@pytest.mark.parametrize(("failure", "said"), [("SERVFAIL", "SERVFAIL"), ("REFUSED", "REFUSED"), ("silent", "2.4 s")])
async def test_a_server_that_cannot_answer_is_no_empty_answer(server: NameServer, failure: str, said: str) -> None:
    server.failure = failure
    with pytest.raises(LookupFailed, match=said):
        await asked(server).addresses()


async def test_the_servers_of_this_host_are_read_again_when_they_are_silent(
    server: NameServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may have come to another network."""
    monkeypatch.setattr(lookup, "_ALL_SECONDS", 0.2)
    server.records, server.failure = {"llm.test": ["127.0.0.2"]}, "silent"
    looks, made = asked(server), list[object]()
    original = looks._made

    def counted() -> object:
        made.append(resolver := original())
        return resolver

    monkeypatch.setattr(looks, "_made", counted)
    for _ in range(2):
        with pytest.raises(LookupFailed):
            await looks.addresses()
    assert len(made) == 2


async def test_the_servers_of_this_host_and_its_search_list_are_asked(
    server: NameServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """As in a pod: a short name is one of its namespace."""
    import dns.asyncresolver

    configuration = tmp_path / "resolv.conf"
    configuration.write_text("nameserver 127.0.0.1\nsearch speech.svc.test svc.test\noptions ndots:5\n")
    original = dns.asyncresolver.Resolver

    def of_this_host(configure: bool) -> dns.asyncresolver.Resolver:
        assert configure
        made = original(filename=str(configuration))
        made.port = server.port
        return made

    monkeypatch.setattr(lookup.dns.asyncresolver, "Resolver", of_this_host)
    server.records = {"llm.speech.svc.test": ["127.0.0.2"], "llm.other.svc.test": ["127.0.0.3"]}
    assert await NameLookup(NamedTarget("llm", 1)).addresses() == ["127.0.0.2"]
    assert await NameLookup(NamedTarget("llm.other", 1)).addresses() == ["127.0.0.3"]
    assert await NameLookup(NamedTarget("tts", 1)).addresses() == []
    assert await NameLookup(NamedTarget("llm", 1, rooted=True)).addresses() == []
    before = server.queries["A"]
    assert await NameLookup(NamedTarget("llm.other.svc.test", 1, rooted=True)).addresses() == ["127.0.0.3"]
    assert server.queries["A"] == before + 1
    monkeypatch.setattr(lookup, "HOSTS", tmp_path / "absent")
    assert await NameLookup(NamedTarget("localhost", 1)).addresses() == ["127.0.0.1"]


class Followed:
    """What a followed name was told to have."""

    def __init__(self, server: NameServer, seconds: float = LEAST_SECONDS) -> None:
        self.told: list[list[str]] = []
        target = named_target(server.target("llm.test", 7))
        assert target is not None
        self.name = FollowedName(target, self.told.append, seconds)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lookup, "LEAST_SECONDS", 0.02)


async def rounds(server: NameServer, number: int) -> None:
    """As many look-ups begin, and the last but one is over."""
    wanted = server.queries["A"] + number
    await until(lambda: server.queries["A"] >= wanted)


@pytest.mark.usefixtures("quick")
async def test_changes_are_told_once_and_what_is_known_outlives_dns(server: NameServer) -> None:
    followed = Followed(server, 0.02)
    running = asyncio.create_task(followed.name.run())
    await rounds(server, 3)
    assert followed.told == []
    server.records["llm.test"] = ["127.0.0.2"]
    await until(lambda: followed.told == [["127.0.0.2:7"]])
    server.records["llm.test"] = ["127.0.0.3", "127.0.0.2"]
    await until(lambda: followed.told[1:] == [["127.0.0.2:7", "127.0.0.3:7"]])
    server.failure = "SERVFAIL"
    await rounds(server, 4)
    assert len(followed.told) == 2
    server.failure = ""
    server.records["llm.test"] = ["127.0.0.3"]
    await until(lambda: followed.told[2:] == [["127.0.0.3:7"]])
    await rounds(server, 4)
    assert len(followed.told) == 3
    running.cancel()


@pytest.mark.usefixtures("quick")
async def test_one_empty_answer_is_doubted_and_the_second_believed(
    server: NameServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = iter([["127.0.0.2"], [], ["127.0.0.2"], [], [], []])
    over = asyncio.Event()

    async def addresses(_: NameLookup) -> list[str]:
        if (found := next(answers, None)) is None:
            over.set()
            await asyncio.Event().wait()
        return found or []

    monkeypatch.setattr(NameLookup, "addresses", addresses)
    followed = Followed(server, 0.02)
    running = asyncio.create_task(followed.name.run())
    await over.wait()
    assert followed.told == [["127.0.0.2:7"], []]
    running.cancel()


@pytest.mark.usefixtures("quick")
async def test_addresses_that_could_not_be_called_are_told_again(server: NameServer) -> None:
    server.records["llm.test"] = ["127.0.0.2"]
    target = named_target(server.target("llm.test", 7))
    assert target is not None
    told: list[list[str]] = []

    def tell(targets: list[str]) -> None:
        told.append(targets)
        if len(told) < 3:
            raise SettingsError("tls.crt is no certificate")

    running = asyncio.create_task(FollowedName(target, tell, 0.02).run())
    await until(lambda: len(told) == 3)
    await rounds(server, 3)
    assert told == [["127.0.0.2:7"]] * 3
    running.cancel()


async def test_however_often_it_is_wanted_a_name_is_looked_up_twice_a_second(server: NameServer) -> None:
    """On a clock of its own a loop of wishes would not yield; here it does."""
    server.records["llm.test"] = ["127.0.0.2"]
    followed = Followed(server, 60.0)
    running = asyncio.create_task(followed.name.run())
    clock = asyncio.get_running_loop()
    begin = clock.time()
    while clock.time() < begin + 3 * LEAST_SECONDS:
        followed.name.soon()
        await asyncio.sleep(0.001)
    running.cancel()
    assert 1 < server.queries["A"] <= 4
