"""Scripts of clients run to their end: what they report, and what happens to those that do not."""

from pathlib import Path

import pytest

from tools.clients import attempts as subject
from tools.clients.attempts import attempts
from tools.clients.roster import Script

ADDRESS = "http://127.0.0.1:1"
HERE = {"http": ADDRESS}
REPORT = """
import json, sys
def report(call, result):
    print(json.dumps({"client": "some client", "version": "1.2", "call": call, "result": result}))
print("a line of the client's own"); print("{}"); print("[1]")
"""


def script_of(folder: Path, body: str, name: str = "client.py") -> Script:
    path = folder / name
    path.write_text(REPORT + body, encoding="utf-8")
    return Script(str(path))


async def test_a_row_for_each_call_and_other_lines_are_left_out(tmp_path: Path) -> None:
    tried = await attempts(script_of(tmp_path, "report(sys.argv[1], 'ok'); report('b', 'ok, 2 s')"), HERE)
    assert [(row.client, row.version, row.call, row.result) for row in tried] == [
        ("some client", "1.2", ADDRESS, "ok"),
        ("some client", "1.2", "b", "ok, 2 s"),
    ]
    assert all(row.succeeded and not row.failed for row in tried)


async def test_a_call_that_failed_explains_the_exit_status(tmp_path: Path) -> None:
    (row,) = await attempts(script_of(tmp_path, "report('a', 'ValueError: no'); sys.exit(1)"), HERE)
    assert row.failed
    assert row.result == "ValueError: no"


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("report('a', 'ok'); sys.exit('it broke')", "exit status 1: it broke"),
        ("", "exit status 0: no line of error"),
        ("raise RuntimeError('early')", "RuntimeError: early"),
    ],
)
async def test_an_end_without_a_reason_is_a_failure(tmp_path: Path, body: str, words: str) -> None:
    *_, last = await attempts(script_of(tmp_path, body), HERE)
    assert last.failed
    assert words in last.result


async def test_a_script_that_is_missing_is_a_failure(tmp_path: Path) -> None:
    (row,) = await attempts(Script(str(tmp_path / "gone.py")), HERE)
    assert row.failed
    assert "gone.py does not exist" in row.result


async def test_a_script_that_hangs_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subject, "_SECONDS", 0.5)
    (row,) = await attempts(script_of(tmp_path, "import time; time.sleep(60)"), HERE)
    assert row.failed
    assert "TimeoutError" in row.result


async def test_an_example_has_to_write_sound(tmp_path: Path) -> None:
    body = "import os; assert os.environ['COSYSERVE_URL']; open('a.pcm', 'wb').write(bytes({size}))"
    for size, result in ((48_000, "ok, a.pcm of 1.0 s"), (480, "only 0.01 s of sound")):
        script = script_of(tmp_path, body.format(size=size), f"{size}.py")
        (row,) = await attempts(Script(script.path, files=("a.pcm",)), HERE)
        assert row.result == result
    (row,) = await attempts(Script(script.path, files=("b.pcm",)), HERE)
    assert "FileNotFoundError" in row.result


async def test_a_client_is_given_the_addresses_of_its_protocols(tmp_path: Path) -> None:
    script = script_of(tmp_path, "report(' '.join(sys.argv[1:]), 'ok')")
    (row,) = await attempts(Script(script.path, over=("wyoming", "http")), {**HERE, "wyoming": "127.0.0.1:2"})
    assert row.call == f"127.0.0.1:2 {ADDRESS}"
