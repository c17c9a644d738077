"""GET /v1/audio/voices: in the forms that OpenAI's SDK and Open WebUI read."""

from tests.stacks.gateway_server import Gateway


async def test_voices_are_openais_objects_and_open_webuis_pairs(served: Gateway) -> None:
    answer = (await served.http.get("/v1/audio/voices")).json()
    (voice, *_) = answer["data"]
    assert voice["object"] == "audio.voice"
    assert voice["type"] in ("preset", "audio_sample")
    assert isinstance(voice["created_at"], int)
    assert {each["id"]: each["name"] for each in answer["voices"]} == {
        each["id"]: each["name"] for each in answer["data"]
    }
