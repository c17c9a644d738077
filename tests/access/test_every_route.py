"""Every route of the gateway, read off its routers, without a key, with a wrong one, with one that
has expired, and with a valid one: the table in docs/keys.md. A route that is added has to be added
here.
"""

import contextlib
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import httpx2
import pytest
from starlette.routing import BaseRoute
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

from services.gateway.caller_check import OPEN_FOLDERS, OPEN_PATHS
from services.gateway.routes import ROUTERS
from tests.stacks.gateway_server import Gateway, scripted_gateway
from tests.stacks.key_holders import KeyHolder, key_holder, keys_of

PAGE = Path(__file__).parents[2] / "docs" / "keys.md"
GOOD, EXPIRED, WRONG = key_holder("alice"), key_holder("bob", expires="2020-01-01T00:00:00Z"), key_holder("stranger")
CALLERS: dict[str, KeyHolder | None] = {"none": None, "wrong": WRONG, "expired": EXPIRED, "valid": GOOD}


@dataclass(frozen=True)
class Asked:
    """A request that is complete but for the key. path: empty: that of the route."""

    path: str = ""
    how: dict[str, Any] = field(default_factory=dict)
    xi: bool = False
    """Whether the key is in `xi-api-key`."""


_RECORDING = ("voice.wav", bytes(range(1, 61)))
_SPEAK = Asked(how={"json": {"input": "word", "response_format": "pcm"}})
_ELEVEN = {"json": {"text": "word"}, "params": {"output_format": "pcm_24000"}}
_FORM = {"data": {"tts_text": "word", "spk_id": "anna"}}
HTTP = {
    ("POST", "/v1/audio/speech"): _SPEAK,
    ("GET", "/v1/audio/voices"): Asked(),
    ("GET", "/v1/audio/voices/{voice_id}"): Asked("/v1/audio/voices/anna"),
    ("POST", "/v1/audio/voices"): Asked(how={"files": {"audio_sample": _RECORDING}}),
    ("DELETE", "/v1/audio/voices/{voice_id}"): Asked("/v1/audio/voices/anna"),
    ("GET", "/v1/models"): Asked(),
    ("GET", "/v1/models/{name}"): Asked("/v1/models/tts-1"),
    ("POST", "/v1/audio/conversions"): Asked(how={"files": {"file": _RECORDING}, "data": {"response_format": "pcm"}}),
    **{
        ("POST", f"/v1/text-to-speech/{{voice_id}}{rest}"): Asked(f"/v1/text-to-speech/anna{rest}", _ELEVEN, xi=True)
        for rest in ("", "/stream", "/with-timestamps", "/stream/with-timestamps")
    },
    ("GET", "/v1/voices"): Asked(xi=True),
    ("GET", "/v2/voices"): Asked(xi=True),
    ("GET", "/v1/voices/{voice_id}"): Asked("/v1/voices/anna", xi=True),
    **{
        (method, f"/inference_{mode}"): Asked(
            how=_FORM if mode != "instruct2" else {"data": {**_FORM["data"], "instruct_text": "slowly"}}
        )
        for mode in ("sft", "zero_shot", "cross_lingual", "instruct2")
        for method in ("GET", "POST")
    },
    **{
        (method, "/inference_instruct"): Asked(how={"data": {**_FORM["data"], "instruct_text": "slowly"}})
        for method in ("GET", "POST")
    },
    ("GET", "/list_voices"): Asked(),
    ("POST", "/warmup_trt"): Asked(),
    ("GET", "/performance_info"): Asked(),
    ("POST", "/jambonz/synthesize"): Asked(how={"json": {"text": "word"}, "params": {"format": "l16"}}),
}
SOCKETS: dict[str, tuple[str, list[dict[str, Any]]]] = {
    "/v1/audio/stream": (
        "/v1/audio/stream", [{"type": "setup"}, {"type": "text", "text": "word"}, {"type": "end"}],
    ),
    "/v1/audio/speech/stream": (
        "/v1/audio/speech/stream",
        [{"type": "session.config", "response_format": "pcm"}, {"type": "input.text", "text": "word"},
         {"type": "input.done"}, {"type": "session.close"}],
    ),
    "/v1/text-to-speech/{voice_id}/stream-input": (
        "/v1/text-to-speech/anna/stream-input", [{"text": " "}, {"text": "word "}, {"text": ""}],
    ),
    "/v1/text-to-speech/{voice_id}/multi-stream-input": (
        "/v1/text-to-speech/anna/multi-stream-input", [{"text": "word ", "flush": True}, {"close_socket": True}],
    ),
    "/jambonz/stream": ("/jambonz/stream", [{"type": "stream", "text": "word"}, {"type": "stop"}]),
}  # fmt: skip


def routes() -> set[tuple[str, str]]:
    """Method and path of every route that needs a key."""
    found = set()
    for route in (each for router in ROUTERS for each in router.routes):
        for method in methods_of(route):
            path: str = route.path  # type: ignore[attr-defined]
            if path not in OPEN_PATHS and not path.startswith(OPEN_FOLDERS):
                found.add((method, path))
    return found


def methods_of(route: BaseRoute) -> set[str]:
    return (getattr(route, "methods", None) or {"WEBSOCKET"}) - {"HEAD"}


def headers_of(holder: KeyHolder | None, *, xi: bool = False) -> dict[str, str]:
    if holder is None:
        return {}
    return {"xi-api-key": holder.secret} if xi else holder.headers


@contextlib.asynccontextmanager
async def guarded(**settings: Any) -> AsyncIterator[Gateway]:
    # A refusal waits 50 ms, which a hundred of them would wait one after the other.
    with mock.patch("services.orchestrator.access.gate._REFUSAL_SECONDS", 0.005):
        async with scripted_gateway(settings, keys=keys_of((GOOD, EXPIRED))) as (served, _):
            yield served


async def answered(served: Gateway, method: str, route: str, holder: KeyHolder | None) -> httpx2.Response:
    asked = HTTP[method, route]
    return await served.http.request(method, asked.path or route, headers=headers_of(holder, xi=asked.xi), **asked.how)


def test_every_route_is_in_the_table() -> None:
    assert routes() == set(HTTP) | {("WEBSOCKET", path) for path in SOCKETS}


async def test_no_request_passes_without_a_valid_key() -> None:
    """And each is refused in the form of its API."""
    rows = []
    async with guarded() as served:
        for method, route in sorted(HTTP, key=lambda each: (each[1], each[0])):
            statuses = {}
            for name, holder in CALLERS.items():
                answer = await answered(served, method, route, holder)
                statuses[name] = answer.status_code
                for each in (GOOD, EXPIRED, WRONG):
                    assert each.secret not in answer.text + str(answer.headers)
                if name != "valid":
                    assert answer.status_code == 401, (method, route, name, answer.text)
                    assert answer.headers["www-authenticate"] == "Bearer"
                    assert code_of(route, answer) == "invalid_api_key", answer.text
            assert statuses["valid"] not in (401, 403), (method, route)
            rows.append(f"| {method} | `{route}` | 401 | 401 | 401 |")
    assert [row for row in rows if row not in PAGE.read_text(encoding="utf-8")] == []


def code_of(route: str, answer: httpx2.Response) -> str:
    content = answer.json()
    if route.startswith(("/v1/text-to-speech", "/v1/voices", "/v2/voices")):
        return str(content["detail"]["status"])
    if "error" in content and isinstance(content["error"], dict):
        return str(content["error"]["code"])
    return str(content["code"])


async def spoken(
    served: Gateway, path: str, messages: list[dict[str, Any]], headers: dict[str, str]
) -> tuple[int, list[Any]]:
    """The close code and what came before it."""
    heard: list[Any] = []
    async with connect(f"ws://{served.address}{path}", additional_headers=headers) as socket:
        try:
            for message in messages:
                await socket.send(json.dumps(message))
            while True:
                message = await socket.recv()
                heard.append(json.loads(message) if isinstance(message, str) else message)
                if path.startswith("/v1/audio/stream") and isinstance(message, str) and heard[-1]["type"] == "summary":
                    return 1000, heard
        except ConnectionClosed as closed:
            return closed.rcvd.code if closed.rcvd else 1006, heard


async def test_no_websocket_speaks_without_a_valid_key() -> None:
    rows = []
    async with guarded() as served:
        for route, (path, messages) in SOCKETS.items():
            for name, holder in CALLERS.items():
                code, heard = await spoken(served, path, messages, headers_of(holder))
                audio = any(isinstance(each, bytes) or each.get("audio") for each in heard)
                assert (code, audio) == ((1000, True) if name == "valid" else (1008, False)), (route, name, heard)
                assert not any(each.secret in str(heard) for each in (GOOD, EXPIRED, WRONG))
            rows.append(f"| WebSocket | `{route}` | 1008 | 1008 | 1008 |")
    assert [row for row in rows if row not in PAGE.read_text(encoding="utf-8")] == []


@pytest.mark.parametrize("holder", [GOOD, WRONG], ids=["valid", "wrong"])
async def test_where_a_key_may_be_besides_the_header(holder: KeyHolder) -> None:
    eleven, ours = SOCKETS["/v1/text-to-speech/{voice_id}/stream-input"], SOCKETS["/v1/audio/stream"]
    first = [{"text": " ", "xi_api_key": holder.secret}, *eleven[1][1:]]
    bearer = [{"text": " ", "authorization": f"Bearer {holder.secret}"}, *eleven[1][1:]]
    setup = [{**ours[1][0], "api_key": holder.secret}, *ours[1][1:]]
    async with guarded() as served:
        for path, messages in (
            (eleven[0], first),
            (eleven[0], bearer),
            (ours[0], setup),
            *((f"{path}?api_key={holder.secret}", messages) for path, messages in SOCKETS.values()),
        ):
            code, heard = await spoken(served, path, messages, {})
            assert code == (1000 if holder is GOOD else 1008), (path, heard)


async def test_what_is_open_stays_open_and_a_missing_key_is_noticed_before_the_body() -> None:
    async with guarded(require_key=True) as served:
        for path in ("/", "/healthz", "/readyz", "/health", "/docs", "/openapi.json", "/page/scripts/page.js"):
            assert (await served.http.get(path)).status_code == 200, path
        for method, route in HTTP:
            assert (await answered(served, method, route, None)).status_code == 401
        assert (await served.http.get("/no/such/path")).status_code == 401
        assert (await served.http.get("/no/such/path", headers=GOOD.headers)).status_code == 404
        assert (await served.http.post("/v1/audio/speech", content=b"x" * 1_000_000)).status_code == 401


async def test_limits_are_429_with_the_time_to_come_back() -> None:
    limited = key_holder("limited", limits={"requests_per_minute": 1})
    async with scripted_gateway(keys=keys_of([limited])) as (served, _):
        await served.http.post("/v1/audio/speech", headers=limited.headers, **_SPEAK.how)
        answer = await served.http.post("/v1/text-to-speech/anna", headers=limited.headers, **_ELEVEN)
        assert answer.status_code == 429
        assert int(answer.headers["retry-after"]) in range(50, 61)
        assert 50_000 < int(answer.headers["retry-after-ms"]) <= 60_000
        assert answer.json()["detail"]["status"] == "rate_limit_exceeded"
        assert "1 requests a minute" in answer.text
        again = await served.http.post("/v1/audio/speech", headers=limited.headers, json={"input": "word"})
        assert again.json()["error"] | {"message": ""} == {
            "message": "", "type": "rate_limit_error", "param": None, "code": "rate_limit_exceeded",
        }  # fmt: skip


async def test_without_keys_no_request_needs_one() -> None:
    async with scripted_gateway() as (served, _):
        for holder in CALLERS.values():
            assert (await answered(served, "POST", "/v1/audio/speech", holder)).status_code == 200
            assert (await answered(served, "GET", "/v1/models", holder)).status_code == 200
