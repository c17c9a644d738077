"""The text tokenizer of the model directory: Qwen2's byte-level BPE followed by the special tokens
of its generation (`Generation.text_marks`).

Source: compatibility specifications of CosyVoice2, section 2.3, and CosyVoice3, section 2.1. The
published vocabulary has them from id 151643 on; a smaller one after its own entries, in the same
order.
"""

import json
import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Regex, Tokenizer, decoders, normalizers, pre_tokenizers
from tokenizers.models import BPE

from cosyserve.errors import ModelError
from cosyserve.generations.generation import Generation
from cosyserve.generations.reading import generation_of
from cosyserve.model_directory import ModelDirectory
from services.frontend.tokenizers.inpainting.pronunciation import PronunciationMarks
from services.frontend.tokenizers.phonemes.reading import read_words, unread
from services.frontend.tokenizers.placeholders import END_OF_TEXT, MARKUP, Marks
from services.frontend.tokenizers.tokenizer import FinalIds

FOLDER = "CosyVoice-BlankEN"
FILES = (f"{FOLDER}/vocab.json", f"{FOLDER}/merges.txt", f"{FOLDER}/tokenizer_config.json")
_QWEN_SPECIALS = (END_OF_TEXT, "<|im_start|>", "<|im_end|>")
_WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
Offsets = Sequence[tuple[int, int]]
"""For each id the characters of the text that it expresses: the first one and the one behind."""
SpokenWords = list[tuple[str, int, int]]
"""As `Tokenizer.spoken_words` gives them."""
_CHUNK = re.compile(r"\S+")
_PLAIN = re.compile(r"([A-Za-z]+(?:'[A-Za-z]+)*)[,!?;:]*")
"""One word, which needs no further reading."""


class TextTokenizer:
    """Text to token ids. Immutable and thread-safe. generation: whose special tokens it has; None:
    that of the directory.

    Raises ModelError naming the file when the directory's tokenizer files are missing, malformed or
    not Qwen2's.
    """

    is_phonemes = None
    """This model reads written text."""
    languages = ()
    """Bytes express every text."""

    def __init__(self, directory: ModelDirectory, generation: Generation | None = None) -> None:
        vocabulary_path, merges_path, config_path = (directory.file(name) for name in FILES)
        specials = (END_OF_TEXT, *(generation or generation_of(directory)).text_marks)
        vocabulary = _read_vocabulary(vocabulary_path, specials)
        merges = _read_merges(merges_path)
        _check_specials(config_path, len(vocabulary))
        self._plain = _build(vocabulary, merges, merges_path, specials)
        self._plain.encode_special_tokens = True
        self._parsing = _build(vocabulary, merges, merges_path, specials)
        self._special = {self._parsing.token_to_id(token): token for token in specials}
        written = [token for token in specials if not is_control(token)]
        self.marks = Marks(written)
        self.pronunciation_marks = PronunciationMarks(self.marks) if set(written) - set(MARKUP) else None

    def __len__(self) -> int:
        return int(self._parsing.get_vocab_size(with_added_tokens=True))

    def encode(self, text: str, *, allow_special: bool = False) -> list[int]:
        """Ids of `text` after NFC. Marks such as `[breath]` are always parsed; `<|...|>`
        control tokens only with `allow_special`, otherwise they are ordinary characters.
        """
        tokenizer = self._parsing if allow_special else self._plain
        ids: list[int] = tokenizer.encode(text, add_special_tokens=False).ids
        return ids

    def incremental_encoder(self, *, allow_special: bool = False) -> "IncrementalBpe":
        """As `tokenizers.tokenizer.Tokenizer.incremental_encoder`."""
        return IncrementalBpe(self, allow_special)

    def spoken_words(self, text: str, *, allow_special: bool = False) -> list[tuple[str, int, int]]:
        """As `tokenizers.tokenizer.Tokenizer.spoken_words`."""
        return self.encode_words(text, allow_special=allow_special)[1]

    def encode_words(self, text: str, *, allow_special: bool = False) -> tuple[list[int], SpokenWords]:
        """`encode` and `spoken_words` in one."""
        tokenizer = self._parsing if allow_special else self._plain
        encoding = tokenizer.encode(text, add_special_tokens=False)
        marks = [self._special.get(token_id) for token_id in encoding.ids]
        return encoding.ids, written_words(text, encoding.offsets, marks)

    def unread(self, text: str) -> list[str]:
        """Always empty."""
        return []

    def id_of(self, token: str) -> int | None:
        """The id of one token, None when it does not exist."""
        token_id: int | None = self._parsing.token_to_id(token)
        return token_id


class IncrementalBpe:
    """Encodes runs of whole words one by one: no merge crosses a word boundary, and a blank belongs
    to the word after it. Implements `tokenizers.tokenizer.IncrementalEncoder`.
    """

    opening: tuple[int, ...] = ()

    def __init__(self, tokenizer: TextTokenizer, allow_special: bool) -> None:
        self._tokenizer, self._allow_special = tokenizer, allow_special

    def feed(self, run: str) -> FinalIds:
        return FinalIds(*self._tokenizer.encode_words(run, allow_special=self._allow_special))

    def finish(self, run: str) -> FinalIds:
        return self.feed(run)


def is_control(token: str) -> bool:
    """Whether a special token steers the model, and is parsed only when allowed."""
    return token.startswith("<|")


def _build(
    vocabulary: dict[str, int], merges: list[tuple[str, str]], merges_path: Path, specials: Sequence[str]
) -> Tokenizer:
    try:
        tokenizer = Tokenizer(BPE(vocab=vocabulary, merges=merges))
    except Exception as error:  # the library raises nothing more specific
        raise ModelError(f"{merges_path}: does not fit vocab.json: {error}") from error
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_WORDS), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    # Only control tokens are "special" to the library: encode_special_tokens turns them into
    # ordinary characters.
    tokenizer.add_tokens([AddedToken(token, special=is_control(token), normalized=False) for token in specials])
    return tokenizer


def _read_vocabulary(path: Path, specials: Sequence[str]) -> dict[str, int]:
    vocabulary = _read_json(path)
    if not all(isinstance(token_id, int) for token_id in vocabulary.values()):
        raise ModelError(f"{path}: expected a mapping of token to integer id")
    if sorted(vocabulary.values()) != list(range(len(vocabulary))):
        raise ModelError(f"{path}: ids are not exactly 0 to {len(vocabulary) - 1}")
    missing = [symbol for symbol in pre_tokenizers.ByteLevel.alphabet() if symbol not in vocabulary]
    if missing:
        raise ModelError(
            f"{path}: {len(missing)} of the 256 byte symbols are missing, among them {sorted(missing)[0]!r}"
        )
    reserved = [token for token in specials if token in vocabulary]
    if reserved:
        raise ModelError(f"{path}: holds {reserved[0]!r}, which must come after the vocabulary")
    return vocabulary


def _read_merges(path: Path) -> list[tuple[str, str]]:
    merges = []
    for number, line in enumerate(_read_text(path).split("\n"), start=1):
        if not line or (number == 1 and line.startswith("#version")):
            continue
        parts = line.rstrip("\r").split(" ")
        if len(parts) != 2 or not all(parts):
            raise ModelError(f"{path}: line {number} is not a pair of tokens")
        merges.append((parts[0], parts[1]))
    return merges


def _check_specials(path: Path, vocabulary_length: int) -> None:
    """Require that the config declares exactly Qwen2's three special tokens after the vocabulary,
    so that the tokens of the generation get their trained ids.
    """
    declared = _read_json(path).get("added_tokens_decoder")
    if not isinstance(declared, dict) or not all(isinstance(entry, dict) for entry in declared.values()):
        raise ModelError(f"{path}: added_tokens_decoder is missing or not a mapping of id to token")
    tokens = {str(token_id): entry.get("content") for token_id, entry in declared.items()}
    expected = {str(vocabulary_length + place): token for place, token in enumerate(_QWEN_SPECIALS)}
    if tokens != expected:
        raise ModelError(
            f"{path}: added_tokens_decoder declares {tokens}, expected {expected} (Qwen2's, not Qwen2.5's, tokenizer)"
        )


def _read_json(path: Path) -> dict[str, Any]:
    try:
        data = json.loads(_read_text(path))
    except (json.JSONDecodeError, RecursionError) as error:
        raise ModelError(f"{path}: not valid JSON: {error}") from error
    if not isinstance(data, dict):
        raise ModelError(f"{path}: expected a JSON object")
    return data


def _read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ModelError(f"{path}: unreadable: {error}") from error


def written_words(text: str, offsets: Offsets, marks: Sequence[str | None]) -> SpokenWords:
    """marks: for each id the mark that it is (`[breath]`, `[HH]`), None for written text.

    Marks of a pronunciation that stand together are one word, between slashes (`/HH AH0 L OW1/`);
    other marks are none. A stretch between two blanks that has no English reading is one word as it
    is written; words of one stretch ("well-known") share its ids.
    """
    words: SpokenWords = []
    for first, behind in _runs(offsets, marks):
        if marks[first] is None:
            words += _of_text(text, offsets, first, behind)
        elif sounds := [mark.strip("[]") for mark in marks[first:behind] if mark and _is_sound(mark)]:
            words.append((f"/{' '.join(sounds)}/", first, behind - first))
    return words


def _is_sound(mark: str) -> bool:
    return mark.startswith("[") and mark not in MARKUP


def _runs(offsets: Offsets, marks: Sequence[str | None]) -> Iterator[tuple[int, int]]:
    """Ranges of ids that are all text or all marks that stand together."""
    borders = [place + 1 for place, (one, other) in enumerate(pairwise(marks)) if _kind(one) != _kind(other)]
    yield from pairwise([0, *borders, len(marks)] if marks else [])


def _kind(mark: str | None) -> int:
    return 0 if mark is None else 1 + _is_sound(mark)


def _of_text(text: str, offsets: Offsets, first: int, behind: int) -> Iterator[tuple[str, int, int]]:
    begin = place = first
    end = offsets[behind - 1][1]
    for chunk in _CHUNK.finditer(text, offsets[first][0], end):
        while offsets[place][1] <= chunk.start():
            place += 1
        begin = place
        while place < behind and offsets[place][0] < chunk.end():
            place += 1
        for word in _words_of(chunk[0]):
            yield word, begin, place - begin
        # An id may express the end of one stretch and the blank before the next.
        place = max(begin, place - 1)


def _words_of(stretch: str) -> list[str]:
    if plain := _PLAIN.fullmatch(stretch):
        return [plain[1]]
    return [stretch] if unread(stretch) else [word.text for word in read_words(stretch)]
