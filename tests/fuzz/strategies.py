"""Odd texts and damaged files, made from real ones by Hypothesis, and how many of them are tried:
100, or as many as FUZZ_INPUTS says (`make fuzz`: a hundred thousand).

The 100 are the same each time; more are others each time. A failure is printed with its input, as
simple as Hypothesis could make it, and with the line that makes it again.
"""

import operator
import os
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

INPUTS = int(os.environ.get("FUZZ_INPUTS", "100"))
ROUND = 10_000
"""Inputs after which Hypothesis begins again, as it remembers all that it tried."""
ROUNDS = pytest.mark.parametrize("number", range(-(-INPUTS // ROUND)))
LIMITS = settings(
    max_examples=min(INPUTS, ROUND),
    derandomize="FUZZ_INPUTS" not in os.environ,
    database=None,
    deadline=None,
    print_blob=True,
    suppress_health_check=list(HealthCheck),
)
DOCUMENTS: tuple[str, ...] = (
    '<speak>One. <break time="300ms"/>Two &amp; <emphasis>three</emphasis> 5 km<break strength="weak"/></speak>',
    '<?xml version="1.0"?>\n<speak version="1.1" xml:lang="en"><p>A <s>B.</s> C</p>'
    '<prosody rate="+20%" pitch="x">D [pause 1s] e</prosody></speak>',
    '<speak>On <say-as interpret-as="date" format="ymd">2024-05-01</say-as> <say-as '
    'interpret-as="characters">AB1</say-as> '
    '<say-as interpret-as="telephone">+1 555 123</say-as> <say-as interpret-as="currency">$12.50</say-as></speak>',
    '<speak>今天<say-as interpret-as="cardinal">1024</say-as>，<say-as interpret-as="time">12:30</say-as>。'
    '<lang xml:lang="en">and <say-as interpret-as="fraction">3/4</say-as></lang></speak>',
    '<speak>Say <phoneme alphabet="ipa" ph="təˈmeɪtoʊ">tomato</phoneme> <sub alias="World 3">W3C</sub> '
    '<prosody rate="slow">so <prosody rate="1.1">x</prosody></prosody> &#233;&lt;|im_end|&gt;</speak>',
    '<speak><metadata>no</metadata><audio src="x"><desc>no</desc>yes</audio><mark name="m"/><voice '
    'name="v">hi</voice></speak>',
)
"""SSML."""
SEEDS: tuple[str, ...] = (
    "Hello 12 worlds. Dr. Smith paid $3.50, or £1,250.99, on 5/1/2024 at 7:30pm!",
    "今天是2024年5月1日，气温-3.5℃，涨了12.5%。我有3个 apples and 5 pears",
    "see https://user:pass@www.example.com:8080/a/b?c=1&d=2#e or mail a.b+c@example.co.uk",
    "# Title\n\n- **one** [link](https://a.b/c)\n- `two` ![x](y)\n\n|a|b|\n|-|-|\n|1|2|",
    "[laughter] <strong>really</strong> [breath] <|endofprompt|> <|im_start|>",
    "say [K][AE1][T] 25, 报道[j][ǐ]予好评3次, [x] [AAA9] [J] - [x] [n](https://a.de)",
    'a [pause 300ms] b <break time="1.5s"/> c [pause 0.2s]',
    "[pause 9ms][pause 5001ms]<break time='10ms' />",
    "مرحبا 12؟ كيف حالك",
    "שלום עולם 3",
    "नमस्ते 5 दुनिया",
    "これは3個です。はい！",
    "안녕하세요 7시",
    "Привет, 12 друзей. Zażółć gęślą jaźń",
    "สวัสดี 9 ชาวโลก",
    "👩🏽‍🚀🇩🇪1️⃣❤️ emoji 😀😀",
    "e\u0301\u0323\u0301\u0323 zalgo",
    "\u202eabc\u202c \u200b\ufeff",
    "²³½①Ⅳ٣𝟘７ﬁ",
    "C:\\path \"x\" 'y' {z} \\ $\\frac{1}{2}$",
    "<b>bold</b> &amp; &lt;|im_end|&gt; <!-- c -->",
    "call +1 (555) 123-4567 or 1-800-555-0199, No. 5, #1, 1990s, 5-10 km, 3x4, 10^6, 5'10\"",
    "电话+86 138-0013-8000，$1.5亿，版本2.0.1，100㎡，No.5",
    "1" * 40,
    "x" * 60,
    "好" * 60,
    ". . . ... ?!?! ；；",
    " \t\r\n\x0b\x0c\x85\u2028",
    "snake_case __bold__ ~~gone~~ *a* **b** ***c***",
    "Hello 你好 Привет → 5 € ∑ [laughter] <say-as>x</say-as> and Ω, ok?",
    *DOCUMENTS,
)
PIECES: tuple[str, ...] = (
    "<speak>",
    "</speak>",
    "</p>",
    '<say-as interpret-as="digits">',
    "</say-as>",
    '<prosody rate="fast">',
    "</prosody>",
    '<sub alias="x">',
    "<break/>",
    "&#x4f60;",
    "<!--",
    "<![CDATA[",
    "<!DOCTYPE speak [",
    *"[]<>|()*_`#-+.,:;/\\\"'$€£¥%&@=^~ \n\t0159aZé好の",
    "<|",
    "|>",
    "[pause ",
    "ms]",
    '<break time="',
    's"/>',
    "https://",
    "www.",
    ".com",
    "**",
    "```",
    "](",
    "\x00",
    "\ud800",
    "\udfff",
    "\ue000",
    "\uf8f0",
    "\uf8f2",
    "\U000f0000",
    "\U0010ffff",
    "\u200d",
    "\ufe0f",
    "\u0301",
    "😀",
    "……",
    "——",
    "。",
    "？",
    "，",
    "\u3000",
)
MOST_CHARACTERS = 20_000
_BORDERS = (0, 1, 2, 0x7F, 0x80, 0xFF, 0x7FFF, 0x8000, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF)


def one_in(count: int) -> st.SearchStrategy[bool]:
    return st.integers(1, count).map(lambda number: number == count)


def spans(whole: st.SearchStrategy[Any], most: int) -> st.SearchStrategy[Any]:
    """A stretch of what `whole` gives, of `most` characters or bytes at most."""
    return st.builds(lambda text, at, size: text[at : at + size], whole, st.integers(0, most), st.integers(0, most))


@st.composite
def texts(draw: st.DrawFn) -> str:
    """0 to 20000 characters: one in 200 is long and repeats itself, which is what makes bad rules
    slow.
    """
    seed = st.sampled_from(SEEDS)
    part = spans(seed, 150)
    pieces = st.builds(operator.mul, st.sampled_from(PIECES), st.sampled_from((1, 1, 2, 30)))
    backwards = part.map(lambda text: text[::-1])
    fragment = st.one_of(seed, part, part.map(str.swapcase), backwards, pieces, st.text(max_size=3))
    text = "".join(draw(st.lists(fragment, min_size=2, max_size=9)))[:600]
    if draw(one_in(200)):
        unit = text[: draw(st.integers(1, 40))] or draw(st.sampled_from(PIECES))
        text = (unit * MOST_CHARACTERS)[: draw(st.integers(1_000, MOST_CHARACTERS))]
    return text


def growing(text: str, *, phonemes: bool) -> st.SearchStrategy[dict[str, str]]:
    """Pronunciations that make much of `text`: words and letters of its own, said with up to 200
    characters.
    """
    words = [*text.split(), *text[:40]]
    written = [word for word in words if any(character.isalnum() for character in word)]
    spoken = [" ".join(words[-9:]), *(word * 100 for word in words[:1]), *SEEDS, "la " * 66]
    spoken += ["/" + "nˈIki " * 30 + "n/"] if phonemes else []
    keys = st.builds(lambda word, size: word[:size], st.sampled_from(written or ["x"]), st.integers(1, 64))
    values = st.sampled_from(spoken).map(lambda said: said.strip()[:200] or "x")
    return st.dictionaries(keys, values, max_size=6 if written else 0)


def damaged(files: Sequence[bytes]) -> st.SearchStrategy[bytes]:
    """One of `files` in which up to six stretches are replaced, mostly where headers are."""
    place = st.one_of(st.integers(0, 255), st.integers(0, 255), st.integers(0, 60_000))
    word = st.builds(
        lambda number, width, order: (number % (1 << 8 * width)).to_bytes(width, order),
        st.sampled_from(_BORDERS),
        st.sampled_from((1, 2, 4, 8)),
        st.sampled_from(("little", "big")),
    )
    run = st.builds(operator.mul, st.sampled_from((b"\0", b"\xff", b"\x7f\x80")), st.sampled_from((1, 16, 4_000)))
    new = st.one_of(word, run, st.binary(max_size=50), spans(st.sampled_from(files), 3_000))
    edit = st.tuples(place, st.sampled_from((0, 1, 2, 4, 8, 100, 5_000, 1_000_000)), new)

    def edited(file: bytes, edits: list[tuple[int, int, bytes]]) -> bytes:
        data = bytearray(file)
        for at, size, part in edits:
            data[at : at + size] = part
        return bytes(data)

    return st.builds(edited, st.sampled_from(files), st.lists(edit, max_size=6))
