"""The page's files as the gateway serves them: types, headers, caching, and that nothing in them
comes from elsewhere or is inline. What the page does is in tests/browser.
"""

import re
from posixpath import normpath
from typing import Any

import pytest

from services.gateway.page.serving import FILES, MEDIA_TYPES
from tests.stacks.gateway_server import gateway

NOWHERE = "127.0.0.1:1"
"""The page needs no speech service to be served."""
TEXT = {name: file.content.decode() for name, file in FILES.items()}
SCRIPTS = {name: text for name, text in TEXT.items() if name.endswith(".js")}
STYLES = {name: text for name, text in TEXT.items() if name.endswith(".css")}
INDEX = TEXT["index.html"]


async def test_the_page_and_each_file_have_their_type_and_the_security_headers() -> None:
    async with gateway(NOWHERE) as served:
        for path, name in [("/", "index.html"), *((f"/page/{name}", name) for name in FILES)]:
            response = await served.http.get(path)
            assert response.status_code == 200, path
            assert response.content == FILES[name].content
            headers = response.headers
            assert headers["content-type"] == MEDIA_TYPES[name[name.rfind(".") :]]
            assert headers["x-content-type-options"] == "nosniff"
            assert headers["x-frame-options"] == "DENY"
            policy = dict(part.strip().split(" ", 1) for part in headers["content-security-policy"].split(";"))
            assert policy["default-src"] == policy["frame-ancestors"] == policy["base-uri"] == "'none'"
            assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == "'self'"


async def test_a_browser_that_has_a_file_is_sent_nothing_until_it_changes() -> None:
    async with gateway(NOWHERE) as served:
        first = await served.http.get("/")
        assert first.headers["cache-control"] == "no-cache"
        for known in (first.headers["etag"], f'"other", W/{first.headers["etag"]}', "*"):
            again = await served.http.get("/", headers={"if-none-match": known})
            assert (again.status_code, again.content) == (304, b"")
            assert again.headers["etag"] == first.headers["etag"]
        other = await served.http.get("/", headers={"if-none-match": '"other"'})
        assert (other.status_code, other.content) == (200, first.content)
        head = await served.http.head("/")
    assert (head.status_code, head.content, head.headers["etag"]) == (200, b"", first.headers["etag"])
    assert int(head.headers["content-length"]) == len(first.content)


async def test_below_a_root_path_the_address_without_its_slash_leads_to_the_page() -> None:
    async with gateway(NOWHERE, root_path="/tts") as served:
        bare = await served.http.get("/tts")
        assert (bare.status_code, bare.headers["location"]) == (307, f"http://{served.address}/tts/")
        # Proxies that strip the root path, and those that do not.
        for path in ("/tts/", "/", "/tts/page/icon.svg", "/page/icon.svg"):
            assert (await served.http.get(path)).status_code == 200, path


@pytest.mark.parametrize("path", ["/page/", "/page/serving.py", "/page/../__main__.py", "/page/%2e%2e/app.py"])
async def test_nothing_else_is_served(path: str) -> None:
    async with gateway(NOWHERE) as served:
        response = await served.http.get(path)
    assert response.status_code == 404
    assert response.json()["error"]["code"] == "no_such_path"


def test_nothing_is_inline_and_nothing_comes_from_elsewhere() -> None:
    assert not re.findall(r"<style|\sstyle=|\son\w+=|javascript:", INDEX)
    assert re.findall(r"<script[^>]*>(.*?)</script>", INDEX, re.DOTALL) == [""]
    for name, text in TEXT.items():
        addresses = re.findall(r"(?:https?:)?//[\w.-]+\.\w+\S*", re.sub(r"^\s*//.*", "", text, flags=re.MULTILINE))
        assert [address for address in addresses if "www.w3.org" not in address] == [], name
        assert "innerHTML" not in text, name


def test_what_the_files_name_exists() -> None:
    named = {path.removeprefix("page/") for path in re.findall(r'(?:src|href)="(page/[^"]+)"', INDEX)}
    for name, text in SCRIPTS.items():
        folder = name.rpartition("/")[0]
        relative = re.findall(r'from "(\.[^"]+)"', text) + re.findall(r'new URL\("(\w+\.js)", import', text)
        named |= {normpath(f"{folder}/{path}") for path in relative}
    assert named == FILES.keys() - {"index.html"}


def test_scripts_use_elements_that_the_page_has() -> None:
    ids = set(re.findall(r'\sid="([\w-]+)"', INDEX))
    for name, text in SCRIPTS.items():
        assert set(re.findall(r'element\("([\w-]+)"\)', text)) <= ids, name
    labelled = set(re.findall(r'(?:for|aria-labelledby|aria-describedby)="([\w-]+)"', INDEX))
    assert labelled <= ids


def test_files_hold_one_idea_and_say_which() -> None:
    wrong = {
        name
        for name, text in {**SCRIPTS, **STYLES}.items()
        if not text.startswith(("// ", "/* ")) or len(text.splitlines()) > 300 or re.search(r".{121}", text)
    }
    assert not wrong


def themes() -> dict[str, dict[str, str]]:
    light, dark = re.findall(r":root \{(.*?)\}", STYLES["styles/colours.css"], re.DOTALL)
    values = dict(re.findall(r"--([\w-]+): (#\w{6});", light))
    return {"light": values, "dark": values | dict(re.findall(r"--([\w-]+): (#\w{6});", dark))}


def luminance(colour: str) -> float:
    """Relative luminance of WCAG 2."""
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    darker, lighter = sorted((luminance(one), luminance(other)))
    return (lighter + 0.05) / (darker + 0.05)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_text_and_controls_have_contrast(theme: str) -> None:
    """WCAG 2.2 AA: 4.5 for text, 3 for the edges of fields and for what a picture shows."""
    colours = themes()[theme]
    text: Any = [
        ("ink", "card"), ("ink", "ground"), ("ink", "field"), ("ink", "accent-soft"),
        ("faint", "card"), ("faint", "ground"), ("faint", "field"),
        ("accent", "card"), ("accent", "ground"), ("on-accent", "accent"),
        ("on-accent", "accent-over"), ("failure", "failure-soft"),
    ]  # fmt: skip
    shown = [("field-edge", "card"), ("accent", "card"), *((name, "card") for name in colours if name in STAGE_COLOURS)]
    weak = {(a, b): ratio for a, b in text if (ratio := contrast(colours[a], colours[b])) < 4.5}
    weak |= {(a, b): ratio for a, b in shown if (ratio := contrast(colours[a], colours[b])) < 3}
    assert not weak


STAGE_COLOURS = {"stage-frontend", "stage-prefill", "stage-decode", "stage-flow", "stage-vocoder"}
