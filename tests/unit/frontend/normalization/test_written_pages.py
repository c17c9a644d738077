"""Pasted text: markdown, addresses, emoji; and the language of each span."""

import pytest

from services.frontend.normalization.addresses import spoken_addresses
from services.frontend.normalization.markdown import without_markdown
from services.frontend.segmentation.language_spans import language_by_script, spans
from services.frontend.text.characters import speakable, without_emoji
from services.frontend.tokenizers.placeholders import without_controls


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
    ("text", "english"),
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
    ],
)
def test_addresses(text: str, english: str) -> None:
    assert spoken_addresses(text, "en") == english


def test_chinese_addresses() -> None:
    assert spoken_addresses("访问https://a.com/b，谢谢", "zh") == "访问a 点 com 斜杠 b，谢谢".replace(
        " 点 ", "点"
    ).replace(" 斜杠 ", "斜杠")


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
    ("text", "language"),
    [
        ("12", ""),
        ("hello", "en"),
        ("hello 世界", "zh"),
        ("これは本です", "ja"),
        ("鲜の每日早餐", "zh"),
        ("안녕하세요", "ko"),
        ("Привет", "und"),
        ("Привет, I have many apples", "en"),
    ],
)
def test_language_by_script(text: str, language: str) -> None:
    assert language_by_script(text) == language


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
