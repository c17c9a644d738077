"""The frontend over real gRPC, and its start: which settings are refused and which failures of the
voice storage are tolerated.
"""

import asyncio
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import pytest

from cosyserve.metrics.first_result import FirstResult
from cosyserve.model_directory import ModelDirectory
from cosyserve.telemetry import Timing
from cosyserve.v1 import frontend_pb2 as pb
from services.frontend.__main__ import main
from services.frontend.analysis.input_text import Piece, StreamingText
from services.frontend.normalization.normalize import Normalizer
from services.frontend.prompts.prompt_reader import voice_model
from services.frontend.segmentation.text_units import Units
from services.frontend.settings import FrontendSettings
from services.frontend.voices.voice_library import VoiceLibrary
from tests.contract.frontend.frontend_calls import analyze, served, stream
from tests.stacks.calls import conversation, refusal, refused, rest
from tests.stacks.up_process import TINY

pytestmark = pytest.mark.start(default_voice="zs_a")
INVALID = grpc.StatusCode.INVALID_ARGUMENT
TEXT = "Hello 12 worlds. Dr. Smith paid 3.50 dollars! 你好，今天3.5公斤。再见"


async def sentences(stub: Any, text: str, language: str = "") -> list[pb.Sentence]:
    return [response.sentence for response in await analyze(stub, text, language_code=language)]


async def streamed(stub: Any, fragments: list[str], language: str = "") -> list[pb.Sentence]:
    return [response.sentence for response in await stream(stub, fragments, language_code=language)]


async def test_sentences_are_numbered_and_carry_ids_and_language(stub: Any) -> None:
    result = await sentences(stub, "Sentence number 1 is here. " * 20)
    assert [sentence.index for sentence in result] == list(range(len(result)))
    assert len(result) > 3
    assert result[0].text.startswith("Sentence number one is here. Sentence")
    assert list(result[0].token_ids) == list(result[0].text.encode())
    assert {sentence.language for sentence in result} == {"en"}


@pytest.mark.parametrize(
    ("text", "language", "spoken", "called"),
    [
        ("今天3.5公斤", "", "今天三点五公斤。", "zh"),
        ("3.5 kg", "en-GB", "three point five kilograms.", "en"),
        ("10 Äpfel", "de-DE", "10 Äpfel.", "de-DE"),
        ("10 個", "ja", "10 個。", "ja"),
    ],
)
async def test_the_language_decides_the_reading(stub: Any, text: str, language: str, spoken: str, called: str) -> None:
    (sentence,) = await sentences(stub, text, language)
    assert (sentence.text, sentence.language) == (spoken, called)


NOTHING = "text holds only punctuation, blanks or what this model cannot read; there is nothing to speak"


@pytest.mark.parametrize(
    ("text", "language", "message"),
    [
        ("", "", "text is empty; there is nothing to speak"),
        ("...!?", "", NOTHING),
        (" \n\t", "", NOTHING),
        ("😀 \x00", "en", NOTHING),
        ("<||>", "en", NOTHING),
        ("hi", "en_US", 'language_code is \'en_US\'; expected a BCP-47 tag such as "en-US" or "zh", or nothing'),
    ],
)
async def test_bad_text_is_refused_alike_by_both(stub: Any, text: str, language: str, message: str) -> None:
    assert await refused(sentences(stub, text, language)) == (INVALID, message)
    assert await refused(streamed(stub, [text[:9], text[9:]], language)) == (INVALID, message)


async def test_too_much_text_is_refused(stub: Any) -> None:
    assert await refused(sentences(stub, "a" * 20_001)) == (INVALID, "text has 20001 characters, allowed 1 to 20000")
    refusal = await refused(streamed(stub, ["a" * 100_000, "a" * 100_001]))
    assert refusal == (INVALID, "text has 200001 characters, allowed 1 to 200000")


@pytest.mark.parametrize(
    ("requests", "message"),
    [
        ([], "no message came, expected the setup"),
        ([pb.AnalyzeStreamRequest(text="hi")], "the first message carries text, expected the setup"),
        ([pb.AnalyzeStreamRequest()], "the first message carries nothing, expected the setup"),
        ([pb.AnalyzeStreamRequest(setup={})] * 2, "a message behind the first carries setup, expected text or a flush"),
        (
            [pb.AnalyzeStreamRequest(setup={}), pb.AnalyzeStreamRequest()],
            "a message behind the first carries nothing, expected text or a flush",
        ),
    ],
)
async def test_a_stream_out_of_order_is_refused(
    stub: Any, requests: list[pb.AnalyzeStreamRequest], message: str
) -> None:
    assert await refused(conversation(stub.AnalyzeStream(), requests)) == (INVALID, message)


async def test_fragments_do_not_show_and_units_are_analyzed_alone(stub: Any) -> None:
    whole = await streamed(stub, [TEXT])
    assert await streamed(stub, list(TEXT)) == whole
    assert await streamed(stub, [TEXT[:7], "", TEXT[7:31], TEXT[31:]]) == whole
    units = Units(400)
    alone = [sentence for unit in (*units.feed(TEXT), units.finish()) for sentence in await sentences(stub, unit)]
    assert [(s.text, list(s.token_ids), s.language) for s in alone] == [
        (s.text, list(s.token_ids), s.language) for s in whole
    ]
    assert [s.index for s in whole] == [0, 1, 2, 3]


async def test_a_sentence_leaves_while_text_still_comes(stub: Any) -> None:
    call = stub.AnalyzeStream()
    await call.write(pb.AnalyzeStreamRequest(setup=pb.AnalyzeSetup()))
    await call.write(pb.AnalyzeStreamRequest(text="First one. Sec"))
    assert (await asyncio.wait_for(call.read(), 10)).sentence.text == "First one."
    await call.write(pb.AnalyzeStreamRequest(text="ond"))
    await call.done_writing()
    assert (await call.read()).sentence.text == "Second."
    assert await call.read() == grpc.aio.EOF


async def test_a_voice_comes_with_the_first_sentence_of_a_text(stub: Any) -> None:
    whole = await stub.GetVoice(pb.GetVoiceRequest(id="zs_a"))
    text = "First. " * 60
    request = pb.AnalyzeRequest(text=text, voice=pb.GetVoiceRequest(id="zs_a"))
    first, *later = [response async for response in stub.Analyze(request)]
    assert first.voice == whole
    assert later
    assert not any(response.HasField("voice") for response in later)
    assert not any(response.HasField("voice") for response in await analyze(stub, text))

    request.voice.known_content_hash = whole.voice.content_hash
    (known, *_) = [response async for response in stub.Analyze(request)]
    assert known.voice.content_known
    assert (known.voice.voice.id, known.voice.voice.content_hash) == ("zs_a", whole.voice.content_hash)
    assert not known.voice.voice.speaker_embedding
    assert (await stub.GetVoice(request.voice)) == known.voice
    request.voice.known_content_hash = "that of another"
    assert (await stub.GetVoice(request.voice)) == whole

    request.voice.id = "nobody"
    assert (await refused(rest(stub.Analyze(request))))[0] == grpc.StatusCode.NOT_FOUND


async def test_a_voice_is_read_beside_the_text_and_counts_for_no_sentence(
    stub: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, read = asyncio.Event(), VoiceLibrary.voice

    async def slow(library: VoiceLibrary, *which: str) -> Any:
        await made.wait()
        return await read(library, *which)

    monkeypatch.setattr(VoiceLibrary, "voice", slow)
    monkeypatch.setattr(FirstResult, "made", lambda _: made.set())
    request = pb.AnalyzeRequest(text="One.", voice=pb.GetVoiceRequest(id="zs_a"))
    (only,) = await asyncio.wait_for(rest(stub.Analyze(request)), 10)
    assert (only.sentence.text, only.voice.voice.id) == ("One.", "zs_a")


async def test_voices(stub: Any) -> None:
    page = await stub.ListVoices(pb.FrontendServiceListVoicesRequest())
    listed = page.voices
    assert page.model == "cosyvoice2"
    assert [(voice.id, voice.is_default, voice.prompt_seconds) for voice in listed] == [
        ("spk_a", False, 0.0),
        ("zs_a", True, 0.8),
    ]
    voice = (await stub.GetVoice(pb.GetVoiceRequest())).voice
    assert (voice.id, voice.content_hash) == ("zs_a", listed[1].content_hash)
    assert (len(voice.prompt_text_ids), len(voice.prompt_speech_tokens), len(voice.prompt_mel)) == (9, 20, 40 * 80 * 4)
    assert await refused(stub.GetVoice(pb.GetVoiceRequest(id="nobody"))) == (
        grpc.StatusCode.NOT_FOUND,
        "there is no voice 'nobody'; known: spk_a, zs_a",
    )
    assert await refused(stub.GetVoice(pb.GetVoiceRequest(id="x" * 129))) == (
        INVALID,
        "the voice id has 129 characters, allowed 1 to 128",
    )


async def test_hanging_up_stops_the_work(stub: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    runs: list[int] = []
    normalise = Normalizer.normalise

    def counted(self: Normalizer, text: str, *arguments: Any, **options: Any) -> str:
        runs.append(len(text))
        return normalise(self, text, *arguments, **options)

    monkeypatch.setattr(Normalizer, "normalise", counted)
    call = stub.Analyze(pb.AnalyzeRequest(text="In 2024 it sold 1,250 units at $12.50 each. " * 450))
    await call.read()
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call.read()
    # An answered call afterwards means that the worker is free again.
    await sentences(stub, "One.")
    seen = len(runs)
    await asyncio.sleep(0.2)
    assert len(runs) == seen
    assert seen < 60


async def test_the_span_carries_length_and_language_and_no_text(stub: Any, spans: list[Timing]) -> None:
    await sentences(stub, "今天3.5公斤")
    (span,) = spans
    assert (span.name, span.attributes) == (
        "frontend.analyze",
        {"text.characters": 7, "text.language": "zh", "text.sentences": 1},
    )
    assert span.end_ns > span.start_ns


@pytest.mark.parametrize(
    ("variables", "status", "message"),
    [
        ({"LISTEN": "127.0.0.1:0"}, 2, "COSYSERVE_FRONTEND_MODEL is not set"),
        (
            {"LISTEN": "127.0.0.1:0", "MODEL": str(TINY), "NORMALIZER": "magic"},
            2,
            "NORMALIZER is 'magic', expected one of wetext, none",
        ),
        (
            {"LISTEN": "127.0.0.1:0", "MODEL": str(TINY), "MAX_CHARACTERS": "0"},
            2,
            "MAX_CHARACTERS is 0, allowed 1 to 20000",
        ),
        (
            {"LISTEN": "127.0.0.1:0", "MODEL": str(TINY), "DEFAULT_VOICE": "x"},
            2,
            "COSYSERVE_FRONTEND_DEFAULT_VOICE: there is no voice 'x'",
        ),
        ({"LISTEN": "127.0.0.1:0", "MODEL": "/nowhere"}, 3, "/nowhere: no such model directory"),
    ],
)
def test_a_bad_start_ends_with_a_line(
    variables: dict[str, str],
    status: int,
    message: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(f"COSYSERVE_FRONTEND_{name}", value)
    assert main() == status
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("partial", [False, True])
async def test_text_of_which_nothing_is_spoken_is_read_in_slices(
    monkeypatch: pytest.MonkeyPatch, partial: bool
) -> None:
    """The worker may switch callers between two slices."""
    fed: list[int] = []
    feed = StreamingText.feed

    def counted(self: StreamingText, fragment: str) -> Iterator[Piece]:
        fed.append(len(fragment))
        return feed(self, fragment)

    steps = 0

    class Worker(ThreadPoolExecutor):
        def submit(self, *arguments: Any, **options: Any) -> Any:
            nonlocal steps
            steps += self._thread_name_prefix == "text"
            return super().submit(*arguments, **options)

    monkeypatch.setattr(StreamingText, "feed", counted)
    monkeypatch.setattr("services.frontend.__main__.ThreadPoolExecutor", Worker)
    async with served(FrontendSettings(listen="127.0.0.1:0", model=TINY, drain_seconds=1)) as stub:
        steps = 0
        assert await refused(stream(stub, ["…" * 40_100], partial_sentences=partial)) == (INVALID, NOTHING)
    assert fed == [400] * 100 + [100]
    assert steps >= 101


def test_a_corrupt_speaker_file_ends_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(TINY / "CosyVoice-BlankEN", tmp_path / "CosyVoice-BlankEN")
    shutil.copy(TINY / "cosyvoice2.yaml", tmp_path)
    (tmp_path / "spk2info.pt").write_bytes(b"damaged")
    monkeypatch.setenv("COSYSERVE_FRONTEND_LISTEN", "127.0.0.1:0")
    monkeypatch.setenv("COSYSERVE_FRONTEND_MODEL", str(tmp_path))
    assert main() == 3
    assert "spk2info.pt: not a file of plain tensors" in capsys.readouterr().err


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
        await refusal(stub.ListVoices(pb.FrontendServiceListVoicesRequest()), grpc.StatusCode.RESOURCE_EXHAUSTED)
        names.unlink()
        listed = (await stub.ListVoices(pb.FrontendServiceListVoicesRequest())).voices
        assert [voice.id for voice in listed] == ["spk_a", "zs_a"]
