"""`python -m services.frontend`: splits text into sentences with token ids and serves the voices of
a model directory.
"""

import asyncio
import logging
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from cosyserve.errors import CosyserveError, InvalidRequest, Overloaded, SettingsError
from cosyserve.generations.reading import generation_of
from cosyserve.model_directory import ModelDirectory
from cosyserve.rpc.server import Close, Service, run
from cosyserve.rpc.service_info import ServiceFacts, libraries, limits_of
from cosyserve.v1 import frontend_pb2_grpc
from services.frontend.analysis.analyzer import NO_DICTIONARY, Analyzer
from services.frontend.analysis.pronunciations import read_dictionary
from services.frontend.loading import read_tokenizer
from services.frontend.normalization.normalize import Normalizer
from services.frontend.prompts.onnx_network import available_device
from services.frontend.prompts.prompt_reader import PromptReader, has_prompt_networks, voice_model
from services.frontend.prompts.recording_reader import RecordingReader
from services.frontend.segmentation.sentence_splitter import split_mode
from services.frontend.servicer import FrontendServicer
from services.frontend.settings import PREFIX, FrontendSettings
from services.frontend.text.text_scheduler import MOST_CALLS, Caller, TextScheduler
from services.frontend.voices.blobs import open_blobs
from services.frontend.voices.preset_voices import PresetVoices
from services.frontend.voices.speaker_file import read_presets
from services.frontend.voices.system_part import SystemPart
from services.frontend.voices.voice import Voice
from services.frontend.voices.voice_library import VoiceLibrary
from services.frontend.voices.voice_limits import VoiceLimits
from services.frontend.voices.voice_notes import Notes, is_given_id
from services.frontend.voices.voice_store import VoiceStore

SERVICE = "cosyserve.v1.FrontendService"
WARM_UP = ("今天是2024年5月1日，气温-3.5℃，涨了12.5%。", "On May 1st, 2024 it cost $12.50 and 3 kg.")
SWEEP_SECONDS = ORPHAN_SECONDS = 3600.0
"""Seconds. A blob that is older than this and that no voice needs was left by a process that died.
The sweep runs at this interval.
"""
SWITCH_SECONDS = 0.0005
log = logging.getLogger("services.frontend")


@dataclass(frozen=True)
class Loaded:
    """Everything that is loaded before the first call is accepted."""

    analyzer: Analyzer
    system: SystemPart
    presets: PresetVoices
    notes: dict[str, Notes]
    """Notes of the presets, by voice id."""
    store: VoiceStore | None
    prompt_reader: PromptReader | None
    """None when the model directory has no prompt networks."""


def read_model(settings: FrontendSettings) -> Loaded:
    """Blocks. Raises ModelError for an unusable model directory, and SettingsError for a default
    voice that cannot exist, for an invalid dictionary and for a storage that cannot be opened.
    """
    directory = ModelDirectory(Path(settings.model))
    tokenizer = read_tokenizer(directory)
    noted = read_presets(directory, tokenizer)
    presets = _presets([voice for voice, _ in noted], settings)
    package = None
    if settings.normalizer == "wetext":
        # The grammars take most of a second to import and load.
        from services.frontend.normalization.wetext_package import WeText

        package = WeText()
    dictionary = NO_DICTIONARY
    if settings.pronunciations is not None:
        try:
            dictionary = read_dictionary(settings.pronunciations, tokenizer.is_phonemes, tokenizer.pronunciation_marks)
        except (ValueError, InvalidRequest) as error:
            raise SettingsError(f"{PREFIX}PRONUNCIATIONS: {error}") from error
    analyzer = Analyzer(
        Normalizer(package),
        tokenizer,
        allow_special=settings.allow_special,
        dictionary=dictionary,
        split=split_mode(directory),
    )
    for text in WARM_UP:
        list(analyzer.sentences(text))
    return Loaded(
        analyzer,
        SystemPart(generation_of(directory), tokenizer),
        presets,
        {voice.id: notes for voice, notes in noted},
        _store(directory, settings),
        _prompt_reader(directory, settings),
    )


def _presets(voices: list[Voice], settings: FrontendSettings) -> PresetVoices:
    wanted = settings.default_voice
    # With a storage, the default voice may be a stored one that is created later.
    later = settings.voices_url and wanted and is_given_id(wanted) and all(voice.id != wanted for voice in voices)
    try:
        return PresetVoices(voices, None if later else wanted)
    except ValueError as error:
        raise SettingsError(f"{PREFIX}DEFAULT_VOICE: {error}") from error


def _store(directory: ModelDirectory, settings: FrontendSettings) -> VoiceStore | None:
    if not settings.voices_url:
        return None
    try:
        store = VoiceStore(open_blobs(settings.voices_url, voice_model(directory)), generation_of(directory).name)
    except ValueError as error:
        raise SettingsError(f"{PREFIX}VOICES_URL: {error}") from error
    try:
        log.info("%d stored voices", len(store.ids()))
    except Overloaded as error:
        # The presets are served without the storage.
        log.warning("the stored voices cannot be reached at the moment: %s", error.message)
    return store


def _prompt_reader(directory: ModelDirectory, settings: FrontendSettings) -> PromptReader | None:
    if not has_prompt_networks(directory):
        return None
    device = available_device() if settings.prompt_device == "auto" else settings.prompt_device
    reader = PromptReader(directory, device=device, threads=settings.prompt_threads)
    log.info("the prompt networks run on %s", reader.provider)
    return reader


async def load(service: Service, settings: FrontendSettings) -> Close:
    """Read the model directory in a thread and register the servicer with `service`."""
    # Text, prompts and storage block on different resources, so each has its own pool.
    text = ThreadPoolExecutor(max_workers=MOST_CALLS, thread_name_prefix="text")
    prompts = ThreadPoolExecutor(max_workers=1, thread_name_prefix="prompts")
    storage = ThreadPoolExecutor(max_workers=8, thread_name_prefix="storage")
    workers = (text, prompts, storage)
    try:
        loaded = await asyncio.get_running_loop().run_in_executor(text, read_model, settings)
    except BaseException:
        for worker in workers:
            worker.shutdown(wait=False)
        raise
    scheduler = TextScheduler(text, settings.text_workers)
    library = VoiceLibrary(
        loaded.presets,
        loaded.store,
        storage,
        default=settings.default_voice,
        cache_bytes=settings.voices_cache_bytes,
        fresh_seconds=settings.voices_fresh_seconds,
        limits=VoiceLimits(settings.max_voices, settings.max_tenant_voices),
        notes=loaded.notes,
    )
    reader = None
    if loaded.prompt_reader is not None:
        reader = RecordingReader(
            loaded.prompt_reader, loaded.analyzer, prompts, settings.max_voice_makings, loaded.system
        )
    log.info(
        "%d voices of the model, default %s, normalizer %s",
        len(loaded.presets.all()),
        library.default,
        settings.normalizer,
    )
    servicer = FrontendServicer(loaded.analyzer, library, reader, scheduler, settings, loaded.system)
    frontend_pb2_grpc.add_FrontendServiceServicer_to_server(servicer, service.handlers)  # type: ignore[arg-type]
    service.info.describe(
        ServiceFacts(
            limits=limits_of(
                settings,
                "max_characters",
                "max_stream_characters",
                "max_voices",
                "max_tenant_voices",
                "max_voice_makings",
                "voices_cache_bytes",
                "max_message_bytes",
            ),
            libraries=libraries("tokenizers", "tiktoken", "kaldi-native-fbank", "onnxruntime", "wetext"),
        ),
        lambda: _analyze_once(loaded.analyzer, scheduler),
    )
    sweeping = asyncio.create_task(_sweep(library))

    async def close() -> None:
        sweeping.cancel()
        await asyncio.gather(sweeping, return_exceptions=True)
        for worker in workers:
            await asyncio.to_thread(worker.shutdown, wait=True, cancel_futures=True)

    return close


async def _analyze_once(analyzer: Analyzer, scheduler: TextScheduler) -> None:
    """Analyze one text per language, scheduled like a request."""
    for sample in WARM_UP:
        await scheduler.run(Caller(), lambda sample=sample: list(analyzer.sentences(sample)))  # type: ignore[misc]


async def _sweep(library: VoiceLibrary) -> None:
    while True:
        try:
            await library.sweep(ORPHAN_SECONDS)
        except CosyserveError as error:
            log.warning("the sweep of the voice storage failed: %s", error.message)
        await asyncio.sleep(SWEEP_SECONDS)


def main() -> int:
    """Serve until SIGTERM; returns the exit status (cosyserve.rpc.server)."""
    # A computing thread delays the event loop by up to this interval; the default of 5 ms would
    # apply several times per call.
    sys.setswitchinterval(SWITCH_SECONDS)
    return run(SERVICE, PREFIX, FrontendSettings, lambda settings: partial(load, settings=settings))


if __name__ == "__main__":
    sys.exit(main())
