"""Start of the frontend with a voice storage: which settings are refused and which storage failures
are tolerated.
"""

from pathlib import Path

import grpc
import pytest

from cosyserve.model_directory import ModelDirectory
from cosyserve.v1 import frontend_pb2 as pb
from services.frontend.__main__ import main
from services.frontend.prompts.prompt_reader import voice_model
from services.frontend.settings import FrontendSettings
from tests.contract.frontend.frontend_calls import analyze, served
from tests.stacks.calls import refused

TINY = Path(__file__).parents[2] / "golden" / "tiny"


@pytest.mark.parametrize("name", ["中文男", "../x", "a b", ".hidden"])
def test_a_default_voice_that_cannot_exist_is_refused_with_a_storage_too(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    variables = {"LISTEN": "127.0.0.1:0", "MODEL": str(TINY), "VOICES_URL": str(tmp_path), "DEFAULT_VOICE": name}
    for variable, value in variables.items():
        monkeypatch.setenv(f"COSYSERVE_FRONTEND_{variable}", value)
    assert main() == 2
    assert f"COSYSERVE_FRONTEND_DEFAULT_VOICE: there is no voice {name!r}" in capsys.readouterr().err


async def test_a_storage_that_is_down_at_start_leaves_the_presets(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    # A file in place of the folder of names fails like the listing of an unreachable store.
    (tmp_path / voice_model(ModelDirectory(TINY))).mkdir()
    names = tmp_path / voice_model(ModelDirectory(TINY)) / "names"
    names.touch()
    settings = FrontendSettings(
        listen="127.0.0.1:0", model=TINY, voices_url=str(tmp_path), default_voice="zs_a", drain_seconds=1
    )
    async with served(settings) as stub:
        assert "the voice storage could not list names: NotADirectoryError" in caplog.text
        assert (await stub.GetVoice(pb.GetVoiceRequest())).voice.id == "zs_a"
        assert (await stub.GetVoice(pb.GetVoiceRequest(id="spk_a"))).voice.id == "spk_a"
        assert [response.sentence.text for response in await analyze(stub, "Hello.")] == ["Hello."]
        status, _ = await refused(stub.ListVoices(pb.FrontendServiceListVoicesRequest()))
        assert status is grpc.StatusCode.RESOURCE_EXHAUSTED
        names.unlink()
        listed = (await stub.ListVoices(pb.FrontendServiceListVoicesRequest())).voices
        assert [voice.id for voice in listed] == ["spk_a", "zs_a"]
