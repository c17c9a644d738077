"""Odd texts made from real ones: a seeded source of
mutations.
"""

import random

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


def mutated(source: random.Random) -> str:
    """The next text, 0 to 20000 characters: one in 200 is long and repeats itself, which is what
    makes bad rules slow.
    """
    text = source.choice(SEEDS)
    for _ in range(source.randint(0, 6)):
        text = _mutation(text, source)[:600]
    if source.random() < 0.005:
        unit = text[: source.randint(1, 40)] or source.choice(PIECES)
        text = (unit * (MOST_CHARACTERS // len(unit)))[: source.randint(1_000, MOST_CHARACTERS)]
    return text


def growing(text: str, source: random.Random, *, phonemes: bool) -> dict[str, str]:
    """Pronunciations that make much of `text`: words and letters of its own, said with up to 200
    characters.
    """
    words = [word[: source.randint(1, 64)] for word in text.split()] + list(text[:40])
    written = [word for word in words if any(character.isalnum() for character in word)]
    spoken = [
        " ".join(source.sample(words, min(len(words), 9))),
        source.choice(words or [""]) * 100,
        source.choice(SEEDS),
        "la " * 66,
    ]
    spoken += ["/" + "nˈIki " * 30 + "n/"] if phonemes else []
    chosen = source.sample(written, min(len(written), source.randint(1, 6)))
    return {word: source.choice(spoken).strip()[:200] or "x" for word in chosen}


def _mutation(text: str, source: random.Random) -> str:
    start, end = sorted((source.randint(0, len(text)), source.randint(0, len(text))))
    kind = source.randrange(7)
    if kind == 0:
        return text[:start] + text[end:]
    if kind == 1:
        return text[:start] + source.choice(PIECES) * source.choice((1, 1, 2, 30)) + text[start:]
    if kind == 2:
        return text[:start] + text[start:end] * source.randint(2, 4) + text[end:]
    if kind == 3:
        return text[:start] + source.choice(SEEDS) + text[end:]
    if kind == 4:
        return text[:start] + chr(source.choice((source.randrange(0x3000), source.randrange(0x110000)))) + text[start:]
    if kind == 5:
        return text[:start] + text[start:end][::-1] + text[end:]
    return text[:start] + text[start:end].swapcase() + text[end:]
