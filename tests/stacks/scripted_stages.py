"""Stages that follow a script, over real gRPC: the counterparts of the orchestrator's tests.

The sentences of a text are its words; a sentence has five speech tokens per letter, numbered on;
the sound of token t is 960 samples of the value LOUDNESS + t. So what a listener should hear is
known without any model.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import grpc
import numpy as np

from cosyserve.rpc.server import Service
from cosyserve.v1 import (
    frontend_pb2,
    frontend_pb2_grpc,
    identity_pb2,
    llm_pb2,
    llm_pb2_grpc,
    synthesis_pb2_grpc,
    token2wav_pb2,
    token2wav_pb2_grpc,
    voice_pb2,
)
from tests.stacks.in_process import HERE, orchestrated, serving

IDENTITY = identity_pb2.EngineIdentity(model_hash="0", backend="scripted", precision="int", device="cpu")


LOUDNESS = 1000
"""Above any level of silence."""


@dataclass
class Script:
    """What goes wrong. Each hook is awaited at its place and may abort the call, wait for ever, or
    pass.
    """

    analyze: Callable[[Any], Any] | None = None
    analysis: Callable[[frontend_pb2.AnalyzeRequest, Any], AsyncIterator[frontend_pb2.AnalyzeResponse]] | None = None
    """The answer to Analyze, in place of the words."""
    generate: Callable[[Any, int], Any] | None = None
    """After each message, with the number of tokens sent so far."""
    begin_decode: Callable[[token2wav_pb2.DecodeSetup, Any], Any] | None = None
    """Before anything is answered."""
    decode: Callable[[Any, int], Any] | None = None
    """Before each piece of audio, with the number of samples sent so far."""
    identity: identity_pb2.EngineIdentity = field(default_factory=lambda: IDENTITY)
    first_hop_tokens: int = 0
    """For which the decoder says that it cuts prompts."""
    calls: list[str] = field(default_factory=list)
    replayed: list[int] = field(default_factory=list)
    text_setups: list[frontend_pb2.AnalyzeSetup] = field(default_factory=list)
    """Of all calls with a text."""
    first_indices: list[int] = field(default_factory=list)
    """Of the AnalyzeStream calls."""
    last_languages: list[str] = field(default_factory=list)
    """Of the same."""
    received_characters: int = 0
    letters: tuple[int, ...] = ()
    """Ids of the letters of the first sentence, sent one by one in parts; without: 1 for each. Of a
    whole text: of each sentence.
    """
    instruction: tuple[int, ...] = ()
    """Ids of any instruction; without: see ReadInstruction."""
    voice: voice_pb2.Voice = field(
        default_factory=lambda: voice_pb2.Voice(id="anna", content_hash="h", speaker_embedding=bytes(4 * 192))
    )
    read: Callable[[Any], Any] | None = None
    """Before a recording, speech or an instruction is answered."""
    model: str = ""
    """Generation of the model, as a frontend names it; empty: of an earlier release."""
    system_text_ids: list[int] = field(default_factory=list)
    """Of the model; empty: it needs none."""
    voices_asked: list[str] = field(default_factory=list)
    """Ids of the GetVoice calls."""
    voices_beside: list[str] = field(default_factory=list)
    """Ids of the voices that were asked for together with a text."""
    contents_left_out: int = 0
    """Of voices, in answers to one who has them."""
    answers_beside: bool = True
    """Whether they are answered; a frontend of an earlier release does not."""
    speech_rate: float = 0.0
    """Of the tokens of a recording that is converted; 0: of an earlier release."""
    lists: int = 0
    """ListVoices calls."""
    recordings: list[voice_pb2.PromptRecording] = field(default_factory=list)
    llm_setups: list[llm_pb2.GenerateSetup] = field(default_factory=list)
    decode_setups: list[token2wav_pb2.DecodeSetup] = field(default_factory=list)
    active: int = 0
    """Calls now inside LLM or token2wav."""
    timed: bool = False
    """Of frontend and llm: whether words have times. A word is its sentence, letter for letter."""
    cancelled: int = 0
    """Calls that the caller cancelled."""
    silent_tokens: bool = False
    loudness: Callable[[int], int] = lambda token: LOUDNESS + token
    """Value of a token's samples."""
    warmed: list[str] = field(default_factory=list)

    @contextlib.contextmanager
    def inside(self, call: str) -> Iterator[None]:
        """A call while the block runs."""
        self.calls.append(call)
        self.active += 1
        try:
            yield
        except (asyncio.CancelledError, GeneratorExit):
            self.cancelled += 1
            raise
        finally:
            self.active -= 1

    def words(self, word: str, ids: Sequence[int]) -> list[frontend_pb2.SpokenWord]:
        """The words of a sentence, as far as they have times."""
        return [frontend_pb2.SpokenWord(text=word.strip(".,!?"), first_id=0, ids=len(ids))] if self.timed else []

    async def require_identity(self, setup: Any, context: Any) -> None:
        if setup.HasField("expected_identity") and setup.expected_identity != self.identity:
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, "another engine")


def expected_audio(text: str) -> bytes:
    tokens = [token for word in text.split() for token in range(5 * len(word))]
    return np.repeat(np.array(tokens, dtype="<i2") + np.int16(LOUDNESS), 960).tobytes()


def prompted_voice(name: str, text_ids: list[int], tokens: list[int]) -> voice_pb2.Voice:
    """A voice made of a recording; its mel is all ones."""
    return voice_pb2.Voice(
        id=name,
        content_hash=f"hash of {name}",
        prompt_text_ids=text_ids,
        prompt_speech_tokens=tokens,
        prompt_mel=np.ones((2 * len(tokens), 80), "<f4").tobytes(),
        speaker_embedding=np.ones(192, "<f4").tobytes(),
    )


class Frontend(frontend_pb2_grpc.FrontendServiceServicer):
    def __init__(self, script: Script) -> None:
        self.script = script

    async def Analyze(
        self, request: frontend_pb2.AnalyzeRequest, context: Any
    ) -> AsyncIterator[frontend_pb2.AnalyzeResponse]:
        self.script.calls.append("analyze")
        self.script.text_setups.append(request.setup)
        if self.script.analysis:
            async for response in self.script.analysis(request, context):
                yield response
            return
        voice = None
        if request.HasField("voice") and self.script.answers_beside:
            self.script.voices_beside.append(request.voice.id)
            voice = await self._voice(request.voice, context)
        for index, word in enumerate(request.text.split()):
            if self.script.analyze:
                await self.script.analyze(context)
            ids = self.script.letters or [len(word)]
            sentence = frontend_pb2.Sentence(
                index=index,
                token_ids=ids,
                words=self.script.words(word, ids),
                max_sentence_characters=request.setup.max_sentence_characters,
            )
            yield frontend_pb2.AnalyzeResponse(sentence=sentence, voice=voice)
            voice = None

    async def AnalyzeStream(
        self, request_iterator: Any, context: Any
    ) -> AsyncIterator[frontend_pb2.AnalyzeStreamResponse]:
        """A word is complete when a blank follows it, the flush or the end; in parts it is sent
        letter by letter.
        """
        script = self.script
        script.calls.append("analyze_stream")
        setup = (await anext(request_iterator)).setup
        await context.send_initial_metadata(())
        index, waiting, settled, given = setup.first_index, "", 0, 0
        script.text_setups.append(setup)
        script.first_indices.append(index)
        script.last_languages.append(setup.last_language_code)

        def response(word: str, unfinished: bool) -> frontend_pb2.AnalyzeStreamResponse:
            ids = [1] * len(word[given:]) if setup.partial_sentences else [len(word)]
            if script.letters:
                ids = list(script.letters[given : len(word)])
            words = [] if unfinished else script.words(word, ids)
            sentence = frontend_pb2.Sentence(
                index=index, token_ids=ids, words=words, max_sentence_characters=setup.max_sentence_characters
            )
            return frontend_pb2.AnalyzeStreamResponse(sentence=sentence, unfinished=unfinished)

        async for request in request_iterator:
            flushed = request.WhichOneof("part") == "flush"
            waiting += request.text
            script.received_characters += len(request.text)
            while " " in waiting or (flushed and waiting):
                word, blank, waiting = waiting.partition(" ")
                settled += len(word + blank)
                if script.analyze:
                    await script.analyze(context)
                if word:
                    yield response(word, False)
                    index, given = index + 1, 0
            while setup.partial_sentences and waiting[given:]:
                until = given + 1 if script.letters else len(waiting)
                yield response(waiting[:until], True)
                given = until
            progress = frontend_pb2.AnalyzeProgress(
                characters=settled, sentences=index, last_language_code=f"x-{index}" if index else ""
            )
            yield frontend_pb2.AnalyzeStreamResponse(progress=progress)
        if waiting:
            yield response(waiting, False)

    async def GetVoice(self, request: frontend_pb2.GetVoiceRequest, context: Any) -> frontend_pb2.GetVoiceResponse:
        self.script.voices_asked.append(request.id)
        return await self._voice(request, context)

    async def _voice(self, request: frontend_pb2.GetVoiceRequest, context: Any) -> frontend_pb2.GetVoiceResponse:
        if request.id not in ("", "anna"):
            await context.abort(grpc.StatusCode.NOT_FOUND, f"no voice {request.id!r}; known: anna")
        voice = self.script.voice
        if known := request.known_content_hash == voice.content_hash:
            self.script.contents_left_out += 1
            voice = voice_pb2.Voice(id=voice.id, content_hash=voice.content_hash)
        return frontend_pb2.GetVoiceResponse(
            voice=voice, system_text_ids=self.script.system_text_ids, content_known=known
        )

    async def ReadRecording(
        self, request: frontend_pb2.ReadRecordingRequest, context: Any
    ) -> frontend_pb2.ReadRecordingResponse:
        """A voice of as many speech tokens as the sound has bytes; of as many text ids as the
        transcript has words.
        """
        await self._reading(context)
        self.script.recordings.append(request.recording)
        said, tokens = request.recording.transcript.split(), list(request.recording.audio)
        voice = prompted_voice("recording-0", list(range(len(said))), tokens)
        return frontend_pb2.ReadRecordingResponse(voice=voice, system_text_ids=self.script.system_text_ids)

    async def ReadSpeech(
        self, request: frontend_pb2.ReadSpeechRequest, context: Any
    ) -> frontend_pb2.ReadSpeechResponse:
        """The bytes of the sound are its tokens."""
        await self._reading(context)
        return frontend_pb2.ReadSpeechResponse(speech_tokens=list(request.audio), rate=self.script.speech_rate)

    async def ReadInstruction(
        self, request: frontend_pb2.ReadInstructionRequest, context: Any
    ) -> frontend_pb2.ReadInstructionResponse:
        """An id for each word and one for its end."""
        await self._reading(context)
        ids = self.script.instruction or [*(len(word) for word in request.instruction.split()), 999]
        return frontend_pb2.ReadInstructionResponse(token_ids=ids)

    async def CreateVoice(
        self, request: frontend_pb2.FrontendServiceCreateVoiceRequest, context: Any
    ) -> frontend_pb2.FrontendServiceCreateVoiceResponse:
        """A voice of the draft's id; nothing is stored."""
        await self._reading(context)
        summary = voice_pb2.VoiceSummary(id=request.draft.id)
        return frontend_pb2.FrontendServiceCreateVoiceResponse(voice=voice_pb2.VoiceDetails(summary=summary))

    async def _reading(self, context: Any) -> None:
        with self.script.inside("read"):
            if self.script.read:
                await self.script.read(context)

    async def ListVoices(self, request: Any, context: Any) -> frontend_pb2.FrontendServiceListVoicesResponse:
        self.script.lists += 1
        return frontend_pb2.FrontendServiceListVoicesResponse(
            voices=[voice_pb2.VoiceSummary(id="anna", is_default=True)], model=self.script.model
        )


def summary_of(tokens: int, text_starts: Sequence[int] = ()) -> llm_pb2.SpeechTokens:
    """The end of a sentence of so many tokens."""
    reason = llm_pb2.GenerateSummary.FINISH_REASON_END_OF_SPEECH
    return llm_pb2.SpeechTokens(
        summary=llm_pb2.GenerateSummary(finish_reason=reason, tokens=tokens, text_starts=text_starts)
    )


class Llm(llm_pb2_grpc.LlmServiceServicer):
    def __init__(self, script: Script) -> None:
        self.script = script

    async def Generate(self, request: llm_pb2.GenerateRequest, context: Any) -> AsyncIterator[llm_pb2.GenerateResponse]:
        script, replay = self.script, list(request.setup.replay_tokens)
        script.replayed.append(len(replay))
        script.llm_setups.append(request.setup)
        with script.inside("generate"):
            await script.require_identity(request.setup, context)
            tokens = list(range(5 * request.text_ids[0]))
            assert tokens[: len(replay)] == replay
            yield llm_pb2.GenerateResponse(tokens=llm_pb2.SpeechTokens(identity=script.identity))
            for sent in range(len(replay), len(tokens), 4):
                piece = tokens[sent : sent + 4]
                yield llm_pb2.GenerateResponse(tokens=llm_pb2.SpeechTokens(tokens=piece))
                if script.generate:
                    await script.generate(context, sent + len(piece))
            text_starts = [0] * len(request.text_ids) if script.timed else []
            yield llm_pb2.GenerateResponse(tokens=summary_of(len(tokens), text_starts))

    async def GenerateStream(
        self, request_iterator: Any, context: Any
    ) -> AsyncIterator[llm_pb2.GenerateStreamResponse]:
        """Five tokens for each letter, as they come."""
        script = self.script
        with script.inside("generate_stream"):
            setup = (await anext(request_iterator)).setup
            script.llm_setups.append(setup)
            replay = list(setup.replay_tokens)
            script.replayed.append(len(replay))
            yield llm_pb2.GenerateStreamResponse(tokens=llm_pb2.SpeechTokens(identity=script.identity))
            sent = 0
            async for request in request_iterator:
                for _ in request.text.ids:
                    fresh = [token for token in range(sent, sent + 5) if token >= len(replay)]
                    sent += 5
                    yield llm_pb2.GenerateStreamResponse(tokens=llm_pb2.SpeechTokens(tokens=fresh))
                    if script.generate:
                        await script.generate(context, sent)
            yield llm_pb2.GenerateStreamResponse(tokens=summary_of(sent))


class Token2Wav(token2wav_pb2_grpc.Token2WavServiceServicer):
    def __init__(self, script: Script) -> None:
        self.script = script

    async def Decode(self, request: Any, context: Any) -> AsyncIterator[token2wav_pb2.DecodeResponse]:
        """Only voices are warmed this way: whatever is asked for, nothing is heard."""
        self.script.warmed.append(request.setup.voice_hash)
        yield token2wav_pb2.DecodeResponse(audio=token2wav_pb2.DecodedAudio(summary=token2wav_pb2.DecodeSummary()))

    async def DecodeStream(
        self, request_iterator: Any, context: Any
    ) -> AsyncIterator[token2wav_pb2.DecodeStreamResponse]:
        script = self.script
        with script.inside("decode"):
            setup = (await anext(request_iterator)).setup
            script.decode_setups.append(setup)
            await script.require_identity(setup, context)
            if script.begin_decode:
                await script.begin_decode(setup, context)
            audio = token2wav_pb2.DecodedAudio(
                start_sample=setup.start_sample,
                identity=script.identity,
                first_hop_tokens=script.first_hop_tokens,
            )
            yield token2wav_pb2.DecodeStreamResponse(audio=audio)
            sent = 0
            async for request in request_iterator:
                for token in request.tokens.ids:
                    sent += 960
                    if sent <= setup.start_sample:
                        continue
                    if script.decode:
                        await script.decode(context, sent - 960)
                    pcm = np.full(960, script.loudness(token), dtype="<i2").tobytes()
                    yield token2wav_pb2.DecodeStreamResponse(
                        audio=token2wav_pb2.DecodedAudio(audio=pcm, start_sample=sent - 960)
                    )
            yield token2wav_pb2.DecodeStreamResponse(
                audio=token2wav_pb2.DecodedAudio(start_sample=sent, summary=token2wav_pb2.DecodeSummary(samples=sent))
            )


SERVICERS: dict[str, Any] = {"frontend": Frontend, "llm": Llm, "token2wav": Token2Wav}


def stage(name: str, script: Script, listen: str = HERE) -> contextlib.AbstractAsyncContextManager[Service]:
    """One scripted stage; leaving the block kills it without a grace period."""
    return serving(name, SERVICERS[name](script), listen)


@dataclass
class Stack:
    """Scripted stages behind a real orchestrator."""

    scripts: dict[str, list[Script]]
    services: dict[str, list[Service]]
    stub: "synthesis_pb2_grpc.SynthesisServiceAsyncStub"
    orchestrator: Service
    channel: grpc.aio.Channel
    """To the orchestrator."""
    exits: dict[tuple[str, int], contextlib.AsyncExitStack]

    async def kill(self, name: str, replica: int) -> None:
        await self.exits[(name, replica)].aclose()


@contextlib.asynccontextmanager
async def stack(
    replicas: dict[str, int] | None = None, *, voice: voice_pb2.Voice | None = None, **settings: Any
) -> AsyncIterator[Stack]:
    """An orchestrator with `replicas` of each scripted stage (default one), serving when the block
    begins. voice: the frontend's one.
    """
    async with contextlib.AsyncExitStack() as exits:
        scripts: dict[str, list[Script]] = {}
        services: dict[str, list[Service]] = {}
        own: dict[tuple[str, int], contextlib.AsyncExitStack] = {}
        for name in SERVICERS:
            scripts[name] = [Script() for _ in range((replicas or {}).get(name, 1))]
            for script in scripts[name]:
                script.voice.CopyFrom(voice or script.voice)
            services[name] = []
            for number, script in enumerate(scripts[name]):
                own[(name, number)] = await exits.enter_async_context(contextlib.AsyncExitStack())
                services[name].append(await own[(name, number)].enter_async_context(stage(name, script)))
        door, channel = await exits.enter_async_context(orchestrated(services, **settings))
        yield Stack(scripts, services, synthesis_pb2_grpc.SynthesisServiceStub(channel), door, channel, own)  # type: ignore[arg-type]
