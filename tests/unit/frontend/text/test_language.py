"""Languages: by tag, by script, and invalid tags."""

import pytest

from cosyserve.errors import InvalidRequest
from services.frontend.text.language import language_of


@pytest.mark.parametrize(
    ("code", "text", "language"),
    [
        ("", "hello", "en"),
        ("", "hello 中", "zh"),
        ("", "ひらがな", "en"),
        ("", "2024", "en"),
        ("en-US", "中文", "en"),
        ("EN", "x", "en"),
        ("zh", "hello", "zh"),
        ("zh-Hant-TW", "x", "zh"),
        ("cmn-Hans-CN", "x", "zh"),
        ("de-DE", "x", "de-DE"),
        ("ja", "x", "ja"),
        ("sl-rozaj-biske", "x", "sl-rozaj-biske"),
        ("de-CH-1996", "x", "de-CH-1996"),
        ("x-private", "x", "x-private"),
    ],
)
def test_language(code: str, text: str, language: str) -> None:
    assert language_of(code, text) == language


@pytest.mark.parametrize(
    "code", ["zh_CN", "english language", "e", "en-", "-en", "中文", "en-US\n", "en" + "-abcde" * 20, "12"]
)
def test_what_is_no_tag_is_refused(code: str) -> None:
    with pytest.raises(InvalidRequest, match="BCP-47"):
        language_of(code, "hello")
