"""`python -m recipes.demo_voice.export WORK [--to models/demo]`: the trained parts put together as
one model directory, and checked.

Writes WORK/model: the yaml, the backbone's sizes and the phoneme tokenizer that earlier stages left
there, the three networks, the speech tokenizer and the speaker encoder as ONNX, and the voices.
With --to the same files replace those that the manifest next to that directory lists, and the
manifest is rewritten.
"""

import shutil
from collections.abc import Sequence
from pathlib import Path

import torch
from torch.nn import functional as F

from cosyserve.errors import ModelError
from cosyserve.model_directory import ModelDirectory
from cosyserve.spec import SAMPLE_RATE
from recipes.demo_voice.model_files import manifest, onnx_graph
from recipes.demo_voice.model_files.layout import model_directory
from recipes.demo_voice.speaker import network as speaker_network
from recipes.demo_voice.speaker.train import ONNX as SPEAKER_ONNX
from recipes.demo_voice.speaker.train import WEIGHTS as SPEAKER_WEIGHTS
from recipes.demo_voice.teacher.plan import MAIN_VOICES
from recipes.demo_voice.tokenizer import export as tokenizer_onnx
from recipes.demo_voice.tokenizer.trained import ONNX as TOKENIZER_ONNX
from recipes.demo_voice.training import commands, parameter_store
from recipes.demo_voice.voices import Corpus, voices
from services.frontend.loading import read_tokenizer
from services.frontend.prompts.features import fbank, whisper_mel
from services.frontend.prompts.features.resample import resample
from services.frontend.prompts.finer_reading import FILE as READING
from services.frontend.voices.speaker_file import FILE as VOICE_FILE
from services.frontend.voices.speaker_file import read_voices
from services.llm.engine.weights import load_tensors
from services.llm.generation.config import WEIGHTS as LLM
from services.llm.generation.config import read_config as read_llm_config
from services.llm.guards.alignment import FILE as ALIGNMENT
from services.token2wav.flow.checkpoint import FILE as FLOW
from services.token2wav.flow.unet.weights import UnetConfig, read_flow_tensors
from services.token2wav.vocoder.weights import FILE as VOCODER
from services.token2wav.vocoder.weights import load_weights
from services.token2wav.vocoder.weights import read_config as read_vocoder_config

SPEAKER = "campplus.onnx"
TEXT = (
    "cosyvoice2.yaml", "CosyVoice-BlankEN/config.json", "phonemes/symbols.json", "phonemes/lexicon.tsv.gz",
    "phonemes/letters.tsv.gz",
)  # fmt: skip
FILES = (*TEXT, LLM, FLOW, VOCODER, TOKENIZER_ONNX, READING, SPEAKER, VOICE_FILE)
PACKED = (FLOW, VOCODER)
"""Deflated, which takes a tenth off; the service that reads llm.pt maps it into memory, so that one
stays plain.
"""
MOST_BYTES = 40_000_000
_HEARD = 8
_LEAST_EQUAL, _LEAST_KNOWN = 0.999, 0.97
"""Shares of speech tokens; those trained on were made from features in half precision, and a token
may hang on a hair.
"""
_MOST_APART, _LEAST_ALIKE = 0.01, 0.999
"""Difference in an entry of a speaker vector, whose entries have variance 1; cosine of two
vectors.
"""


def assemble(work: Path, parts: dict[str, Path], names: Sequence[str], corpus: Corpus) -> ModelDirectory:
    """Copy `parts` (name in the model directory -> file) into WORK/model and write its voices."""
    directory = model_directory(work)
    for name, source in parts.items():
        if not source.exists():
            raise ModelError(f"{source}: missing; the stage that writes it has not ended")
        (parameter_store.pack if name in PACKED else shutil.copyfile)(source, directory.path / name)
    parameter_store.save(directory.path / VOICE_FILE, voices(corpus, names))
    # Learnt from the previous model.
    (directory.path / ALIGNMENT).unlink(missing_ok=True)
    return directory


def check(directory: ModelDirectory, corpus: Corpus, speaker: Path) -> None:
    """Read `directory` as the services do, and hear some speech through its two ONNX files and
    through the networks they were made from.

    speaker: weights of the speaker encoder. Raises ModelError naming what does not fit.
    """
    total = sum((directory.file(name)).stat().st_size for name in FILES)
    if total > MOST_BYTES:
        raise ModelError(f"{directory.path}: {total / 1e6:.1f} MB, at most {MOST_BYTES / 1e6:.0f} MB are bundled")
    llm = read_llm_config(directory)
    load_tensors(directory, llm)
    read_flow_tensors(directory, UnetConfig.read(directory), torch.device("cpu"), torch.float32)
    load_weights(directory, read_vocoder_config(directory))
    tokenizer = read_tokenizer(directory)
    if len(tokenizer) > llm.text_vocabulary:
        raise ModelError(f"{directory.path}: {len(tokenizer)} text ids for a table of {llm.text_vocabulary} rows")
    if not tokenizer.encode("It speaks."):
        raise ModelError(f"{directory.path}: the tokenizer has no ids for plain English")
    for voice in read_voices(directory, tokenizer):
        ids = set(voice.prompt_speech_tokens)
        if not ids <= set(range(corpus.first_id, corpus.first_id + 3**corpus.tokenizer.digits)):
            raise ModelError(
                f"{directory.path}: voice {voice.id!r} has speech tokens that the speech tokenizer never gives"
            )
    _check_onnx(directory, corpus, speaker)


def _check_onnx(directory: ModelDirectory, corpus: Corpus, speaker: Path) -> None:
    """From the wave on, as a service would hear it; compared with the trained networks and with
    what other stages were trained on.
    """
    members = (corpus.speech.held_out or corpus.speech.training)[:_HEARD]
    waves = [resample(corpus.speech.wave(member)[None], SAMPLE_RATE, whisper_mel.RATE) for member in members]
    log_mels = [whisper_mel.whisper_log_mel(wave)[0].T.contiguous() for wave in waves]
    equal = tokenizer_onnx.agreement_with(corpus.tokenizer, log_mels, directory.file(TOKENIZER_ONNX))
    stored = [corpus.codes_of(member) for member in members]
    heard = [corpus.tokenizer.codes_of_speech(log_mel[None], torch.tensor([len(log_mel)]))[0] for log_mel in log_mels]
    known = float(torch.cat([one == other for one, other in zip(heard, stored, strict=True)]).float().mean())

    weights = parameter_store.load(speaker)
    banks = [fbank.speaker_features(wave[0])[None] for wave in waves]
    apart = max(speaker_network.largest_difference(directory.file(SPEAKER), weights, bank) for bank in banks)
    vectors = torch.cat(
        [onnx_graph.run(directory.file(SPEAKER), {speaker_network.INPUT: bank.numpy()}) for bank in banks]
    )
    alike = float((F.normalize(vectors, dim=1) * corpus.vectors[members]).sum(dim=1).min())
    print(
        f"{len(members)} utterances through ONNX Runtime: speech tokens {equal:.2%} those of torch, {known:.2%} those "
        "trained on; "
        f"speaker vectors within {apart:.1e} of torch, cosine with those trained on at least {alike:.4f}"
    )
    if equal < _LEAST_EQUAL or known < _LEAST_KNOWN or apart > _MOST_APART or alike < _LEAST_ALIKE:
        raise ModelError(f"{directory.path}: the ONNX files are not the networks that were trained")


def place(directory: ModelDirectory, to: Path) -> None:
    """Copy the model's files to `to` in place of those that its manifest lists, and write the
    manifest. Other files stay.
    """
    before = manifest.listed(to)
    for name in FILES:
        target = to / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(directory.file(name), target)
    for name in set(before) - set(FILES):
        (to / name).unlink(missing_ok=True)
    manifest.write(to)


def _weights(named: Path, usual: str) -> Path:
    """A file of weights, or the usual one in a folder."""
    return named if named.suffix == ".pt" else named / usual


def main(arguments: Sequence[str] | None = None) -> None:
    parser = commands.stage("export", __doc__, "work folder in which all trainings have ended")
    commands.add_tokenizer(parser)
    parser.add_argument(
        "--llm", default="llm", help="folder of the language model, or a file in it such as llm/llm_best.pt"
    )
    parser.add_argument("--flow", default="flow", help="folder or file of the flow")
    parser.add_argument("--vocoder", default="vocoder", help="folder or file of the vocoder")
    parser.add_argument("--voices", default=",".join(MAIN_VOICES), help="voice ids of the speech, divided by commas")
    parser.add_argument("--to", type=Path, help="model directory to replace, with its manifest")
    options = parser.parse_args(arguments)
    work: Path = options.work
    parts = {
        LLM: _weights(work / options.llm, LLM),
        FLOW: _weights(work / options.flow, FLOW),
        VOCODER: _weights(work / options.vocoder, VOCODER),
        TOKENIZER_ONNX: work / options.tokenizer / TOKENIZER_ONNX,
        SPEAKER: work / SPEAKER_ONNX,
    }
    corpus = Corpus.read(work, options.tokenizer)
    directory = assemble(work, parts, options.voices.split(","), corpus)
    for name in FILES:
        print(f"{directory.file(name).stat().st_size / 1e6:7.2f} MB  {name}")
    check(directory, corpus, work / SPEAKER_WEIGHTS)
    if options.to is not None:
        place(directory, options.to)


if __name__ == "__main__":
    main()
