"""`python -m services.frontend`: text to sentences with token ids, and the voices of a model directory."""

import asyncio
import logging
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from cosyserve.errors import InvalidRequest, SettingsError
from cosyserve.model_directory import ModelDirectory
from cosyserve.process import run
from cosyserve.server import Close, Service
from cosyserve.v1 import frontend_pb2_grpc
from services.frontend.analysis import NO_DICTIONARY, Analyzer
from services.frontend.pronunciations import read_dictionary
from services.frontend.registry import Registry
from services.frontend.servicer import FrontendServicer
from services.frontend.settings import PREFIX, FrontendSettings

SERVICE = "cosyserve.v1.FrontendService"
WARM_UP = ("今天是2024年5月1日，气温-3.5℃，涨了12.5%。", "On May 1st, 2024 it cost $12.50 and 3 kg.")
log = logging.getLogger("services.frontend")


def read_model(settings: FrontendSettings) -> tuple[Analyzer, Registry]:
    """Everything that takes time before the first call; blocks.

    Raises ModelError for an unusable model directory, SettingsError for a default voice that it does not have and for a bad dictionary.
    """
    # The grammars and the number speller take most of a second to import and load.
    from services.frontend.normalize import Normalizer
    from services.frontend.speaker_file import read_voices
    from services.frontend.text_tokenizer import read_tokenizer

    directory = ModelDirectory(Path(settings.model))
    tokenizer = read_tokenizer(directory)
    voices = read_voices(directory, tokenizer)
    try:
        registry = Registry(voices, settings.default_voice)
    except ValueError as error:
        raise SettingsError(f"{PREFIX}DEFAULT_VOICE: {error}") from error
    package = None
    if settings.normalizer == "wetext":
        from services.frontend.wetext_package import WeText

        package = WeText()
    dictionary = NO_DICTIONARY
    if settings.pronunciations is not None:
        try:
            dictionary = read_dictionary(settings.pronunciations, tokenizer.is_phonemes)
        except (ValueError, InvalidRequest) as error:
            raise SettingsError(f"{PREFIX}PRONUNCIATIONS: {error}") from error
    analyzer = Analyzer(Normalizer(package), tokenizer, allow_special=settings.allow_special, dictionary=dictionary)
    for text in WARM_UP:
        list(analyzer.sentences(text))
    return analyzer, registry


async def load(service: Service, settings: FrontendSettings) -> Close:
    """Read the model directory in a thread and fill the method table of `service`."""
    worker = ThreadPoolExecutor(max_workers=1, thread_name_prefix="text")
    try:
        analyzer, registry = await asyncio.get_running_loop().run_in_executor(worker, read_model, settings)
    except BaseException:
        worker.shutdown(wait=False)
        raise
    log.info("%d voices, default %s, normalizer %s", len(registry.all()), registry.default, settings.normalizer)
    servicer = FrontendServicer(analyzer, registry, worker, settings.max_characters, settings.max_stream_characters)
    frontend_pb2_grpc.add_FrontendServiceServicer_to_server(servicer, service.handlers)  # type: ignore[arg-type]

    async def close() -> None:
        await asyncio.to_thread(worker.shutdown, wait=True, cancel_futures=True)

    return close


def main() -> int:
    """Serve until SIGTERM; returns the exit status (cosyserve.process)."""
    return run(SERVICE, PREFIX, FrontendSettings, lambda settings: partial(load, settings=settings))


if __name__ == "__main__":
    sys.exit(main())
