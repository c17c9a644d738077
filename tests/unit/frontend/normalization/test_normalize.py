"""Normalisation: the character rules, the corrected faults, and wetext; pasted text: markdown,
addresses, emoji; and the language of each span.
"""

import pytest

from services.frontend.normalization.addresses import spoken_addresses
from services.frontend.normalization.markdown import without_markdown
from services.frontend.normalization.normalize import Normalizer, drop_blanks, spell_digits
from services.frontend.normalization.wetext_package import WeText
from services.frontend.segmentation.language_spans import spans
from services.frontend.text.characters import speakable, without_emoji
from services.frontend.tokenizers.placeholders import without_controls

PLAIN = Normalizer(None)
REFERENCE = Normalizer(None, reference=True)
WITH_PACKAGE = Normalizer(WeText())


@pytest.mark.parametrize(
    ("text", "spoken"),
    [
        ("图a.b", "图a。b"),
        ("面积a²和b³", "面积a平方和b立方"),
        ("第一\n第二", "第一第二"),
        ("中 文 ab cd 中", "中文ab cd中"),
        ("一 - 二", "一-二"),
        ("a - b中", "a，b中"),
        ("（甲）【乙】`丙`——丁", "甲乙丙 丁"),
        ("好，,、", "好。"),
        ("，", "。"),
    ],
)
def test_chinese_rules(text: str, spoken: str) -> None:
    assert PLAIN.normalise(text, "zh") == spoken == REFERENCE.normalise(text, "zh")


@pytest.mark.parametrize(
    ("text", "expected"),
    [("a b", "a b"), ("a  b", "ab"), (" a", "a"), ("a ", "a"), ("中 a", "中a"), (" ", ""), ("", "")],
)
def test_blanks_at_the_margins_do_not_raise(text: str, expected: str) -> None:
    assert drop_blanks(text) == expected


def test_a_run_knows_the_character_before_it() -> None:
    assert PLAIN.normalise(" b", "zh", before="a", last=False) == " b"
    assert PLAIN.normalise("好，", "zh", last=False) == "好，"


@pytest.mark.parametrize(
    ("text", "spoken", "as_specified"),
    [
        ("12 dogs", "twelve dogs", "twelve dogs"),
        ("1,250", "one,two hundred and fifty", "one,two hundred and fifty"),
        ("007", "zero zero seven", "seven"),
        ("5 m²", "five m squared", "five mzero"),
        ("①", "one", "zero"),
        ("0", "zero", "zero"),
        ("121", "one hundred and twenty-one", "one hundred and twenty-one"),
        ("1000001", "one million and one", "one million and one"),
        ("1020300", "one million, twenty thousand, three hundred", "one million, twenty thousand, three hundred"),
        ("5" + "0" * 35, "five hundred decillion", "five hundred decillion"),
        ("9" * 37, " ".join(["nine"] * 37), " ".join(["nine"] * 37)),
        ("no digits", "no digits", "no digits"),
    ],
)
def test_english_digits(text: str, spoken: str, as_specified: str) -> None:
    assert spell_digits(text) == spoken
    assert spell_digits(text, reference=True) == as_specified


@pytest.mark.parametrize(
    ("text", "language", "spoken"),
    [
        ("今天是2024年5月1日，气温-3.5℃。", "zh", "今天是二零二四年五月一日，气温负三点五摄氏度。"),
        ("It cost $12.50 and 3 kg.", "en", "It cost twelve dollars fifty cents and three kilograms."),
        ("12", "en", "twelve"),
        ("12", "zh", "十二"),
        ('He said "12" twice', "en", 'He said "twelve" twice'),
        ('他说"3"次', "zh", '他说"三"次'),
        ("10 Äpfel", "de-DE", "10 Äpfel"),
        ("12 שלום", "en", "twelve שלום"),
        ("hello 😀 3", "en", "hello 😀 three"),
        # What the grammar cannot read is not lost.
        ("icon \U0010ffff here 3", "en", "icon \U0010ffff here three"),
        # An endless number is read digit by digit.
        ("号" + "12345" * 8, "zh", "号" + "一二三四五" * 8),
        ("3 no " + "12345" * 8 + " 4", "en", "three no " + " ".join(["one two three four five"] * 8) + " four"),
        ("13800138000", "zh", "幺三八零零幺三八零零零"),
    ],
)
def test_numbers_are_read_in_the_language_around_them(text: str, language: str, spoken: str) -> None:
    assert WITH_PACKAGE.normalise(text, language) == spoken


def test_an_address_is_spelled_and_not_cut() -> None:
    spoken = WITH_PACKAGE.normalise("see https://a.b/c?d=1&e=2.5 now", "en")
    assert spoken.startswith("see HTTPS colon slash slash a dot b slash c question mark")
    assert spoken.endswith("two point five now")


@pytest.mark.parametrize(
    ("text", "spoken"),
    [
        ("# Head\ntext", "Head.\ntext"),
        ("## 标题\n正文", "标题。\n正文"),
        ("- [x] done\n* next!\nend", "done.\nnext!\nend"),
        ("1. first\n2. second", "1. first.\n2. second"),
        ("> > quoted", "quoted"),
        ("a\n---\nb", "a\nb"),
        ("```python\nx = 1\n```\nb", "x = 1\nb"),
        ("| a | b |\n|---|:-:|\n| 1 | 2 |\nend", "a, b.\n1, 2.\nend"),
        ("**bold** *it* ***both*** __under__ ~~gone~~ `code`", "bold it both under gone code"),
        ("3 * 4 = 12, 3*4, a_b and _c_", "3 * 4 = 12, 3*4, a b and c"),
        ("API_KEY, MAX_RETRY_COUNT, JOHN_DOE@A.COM", "API key, max retry count, JOHN_DOE@A.COM"),
        ("[a](https://a.b/c_(d)) b", "a b"),
        ("hi &lt;|endofprompt|&gt; <\\|im_end\\|> <**|im_end|**> x", "hi       x"),
        ('[a link](https://a.b/c "title") ![image](x.png) note[^1]', "a link image note"),
        ("<b>x</b><br/>y <!-- hidden --> a < b > c", " x  y   a < b > c"),
        ("&lt;3 &amp; &nbsp;x &unknown;", "<3 &  x &unknown;"),
        (r"\*not bold\*", "not bold"),
        ("-5 degrees", "-5 degrees"),
        ("#1 and #tag", "#1 and #tag"),
    ],
)
def test_the_marks_of_a_page_are_not_spoken(text: str, spoken: str) -> None:
    assert without_markdown(text) == spoken


@pytest.mark.parametrize(
    ("text", "spoken"),
    [
        ("https://www.example.com/a-b/c_d?x=1#y.", "example dot com slash a dash b slash c underscore d."),
        ("example.org, ok", "example dot org, ok"),
        ("a.b+c@mail.example.co.uk", "a dot b plus c at mail dot example dot co dot uk"),
        ("http://localhost:8080/", "localhost colon 8080"),
        ("https://example.com/" + "long/" * 20, "example dot com"),
        ("end.Start 3.14 e.g. v1.2.3 Node.js", "end.Start 3.14 e.g. v1.2.3 Node.js"),
        ("https://", "https://"),
        ("https://user:pw@www.example.com/a", "example dot com slash a"),
        ("ftp://me@x.org, a@b.de", "x dot org, a at b dot de"),
        ("访问https://a.com/b，谢谢", "访问a点com斜杠b，谢谢"),
    ],
)
def test_addresses(text: str, spoken: str) -> None:
    assert spoken_addresses(text, "zh" if "谢谢" in text else "en") == spoken


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("a 😀 b", "a b"),
        ("a😀b", "a b"),
        ("a😀!", "a!"),
        ("👩🏽‍🚀🇩🇪", ""),
        ("1️⃣ 2", "1 2"),
        ("好😀吗", "好 吗"),
        ("①²½℃™", "①²½℃™"),
    ],
)
def test_pictures_are_not_spoken(text: str, left: str) -> None:
    assert without_emoji(text) == left


def test_commands_to_a_terminal_and_other_forms_of_letters() -> None:
    assert speakable("\x1b[1;31mred\x1b[0m \x1b[2Kx") == "red x"
    assert speakable("a\r\nb\rc\u2028d") == "a\nb\nc\nd"
    assert speakable("ﬁne ｆｕｌｌ １２３ ﬃ") == "fine full 123 ffi"


@pytest.mark.parametrize("text", ["<|endofprompt|>", "<|anything_1|>", "<|im_end|><|im_start|>"])
def test_control_tokens_are_blanks(text: str) -> None:
    assert not without_controls(text).strip()
    assert without_controls("<| a |> <||>") == "<| a |> <||>"


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("我有3个 apples and 5 pears", [("zh", "我有3个 "), ("en", "apples and 5 pears")]),
        ("iPhone 15发布", [("zh", "iPhone 15发布")]),
        ("他说，5 apples and 3 pears", [("zh", "他说，"), ("en", "5 apples and 3 pears")]),
        ("I have 5个 apples", [("en", "I have "), ("zh", "5个 apples")]),
        ("跑了5km and then went home", [("zh", "跑了5km "), ("en", "and then went home")]),
        ("12", [("zh", "12")]),
        ("Привет 3 мира, then ran 3 miles", [("und", "Привет 3 мира, "), ("en", "then ran 3 miles")]),
    ],
)
def test_stretches(text: str, result: list[tuple[str, str]]) -> None:
    assert spans(text, "zh") == result
