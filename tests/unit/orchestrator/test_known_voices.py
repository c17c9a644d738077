"""Names of other contracts cost no list of voices for each request, and no caller is shown voices
that another one may use.
"""

from typing import Any, cast

import pytest

from cosyserve.v1 import synthesis_pb2 as pb
from cosyserve.v1 import voice_pb2
from services.orchestrator.access.caller import CALL, Call, Caller
from services.orchestrator.foreign import native_call
from services.orchestrator.foreign.native_call import KnownVoices, NativeService

NO_CONTEXT = cast("Any", None)


class Service:
    """Lists the voices of the tenant that asks, one a page."""

    def __init__(self) -> None:
        self.listed: list[str | None] = []

    async def ListVoices(self, request: pb.ListVoicesRequest, context: object) -> pb.ListVoicesResponse:
        scope = CALL.get().caller.scope
        names = [f"{scope}-1", f"{scope}-2"]
        if not request.page_token:
            self.listed.append(scope)
            return pb.ListVoicesResponse(voices=[voice_pb2.VoiceSummary(id=names[0])], next_page_token="more")
        return pb.ListVoicesResponse(voices=[voice_pb2.VoiceSummary(id=names[1])])


async def seen(known: KnownVoices, tenant: str | None, *, admin: bool = False) -> list[str]:
    CALL.set(Call(Caller("key", tenant, admin=admin)))
    return [voice.id for voice in await known.seen(NO_CONTEXT)]


async def test_each_tenant_has_its_own_list_for_some_seconds() -> None:
    service = Service()
    known = KnownVoices(cast("NativeService", service))
    for _ in range(2):
        for tenant in ("green", "blue", None):
            assert await seen(known, tenant) == [f"{tenant}-1", f"{tenant}-2"]
        assert await seen(known, "green", admin=True) == ["None-1", "None-2"], "an admin sees all"
    assert service.listed == ["green", "blue", None]


async def test_later_it_is_asked_again_and_few_lists_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    service = Service()
    known = KnownVoices(cast("NativeService", service))
    monkeypatch.setattr(native_call, "_MOST_SCOPES", 2)
    for tenant in ("a", "b", "c", "c", "b", "a"):
        await seen(known, tenant)
    assert service.listed == ["a", "b", "c", "a"], "the oldest of three lists was dropped"
    monkeypatch.setattr(native_call, "FRESH_SECONDS", 0.0)
    later = KnownVoices(cast("NativeService", service))
    for _ in range(2):
        await seen(later, "a")
    assert service.listed[4:] == ["a", "a"]
