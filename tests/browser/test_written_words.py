"""Spoken words find the written ones: numbers, titles, words left out, batch by batch."""

import json

import pytest

from tests.browser.conftest import Page

pytestmark = pytest.mark.asyncio(loop_scope="module")

CASES = [
    # text; words by batch; what is marked in turn
    ("One two.", [["one", "two"]], ["One", "two."]),
    ("“Well,” she said — twice!", [["well", "she", "said", "twice"]], ["“Well,”", "she", "said", "twice!"]),
    ("It costs $12 today", [["it", "costs", "twelve", "dollars", "today"]], ["It", "costs", "$12", "today"]),
    ("Buy $5 or 6 dollars.", [["buy", "five", "dollars", "or", "six", "dollars"]],
     ["Buy", "$5", "or", "6", "dollars."]),
    ("the cat the cat the", [["the", "cat"], ["the", "cat", "the"]], ["the", "cat", "the", "cat", "the"]),
    ("It is 1999. Then 2000 came", [["it", "is", "nineteen", "ninety", "nine"], ["then", "two", "thousand", "came"]],
     ["It", "is", "1999.", "Then", "2000", "came"]),
    ("x ♞ y", [["x", "y"]], ["x", "y"]),
    ("1 2 3", [["one", "two", "three"]], ["1"]),
    ("1 2 3 go", [["one", "two", "three"], ["go"]], ["1 2 3", "go"]),
    ("你好", [], []),
    ("said", [["quite", "other", "words", "altogether"]], ["said"]),
    ("", [["something"]], []),
]  # fmt: skip
SCRIPT = """(async () => {{
  const {{ WrittenWords }} = await import("/page/scripts/written_words.js");
  const [text, batches] = {given};
  const written = new WrittenWords(text);
  const times = new Map();
  let at = 0;
  for (const batch of batches) {{
    for (const {{ first, last, start }} of written.place(batch.map((word) => ({{ word, start: at, end: ++at }})))) {{
      for (let i = first; i <= last; i++) times.set(i, start);
    }}
  }}
  const marked = Map.groupBy([...times.keys()].sort((a, b) => a - b), (i) => times.get(i));
  return [...marked.values()].map((together) =>
    together.map((i) => text.slice(written.words[i].from, written.words[i].to)).join(" "));
}})()"""


async def test_spoken_words_find_the_written_ones(page: Page) -> None:
    found = {text: await page.tab.value(SCRIPT.format(given=json.dumps([text, batches]))) for text, batches, _ in CASES}
    assert found == {text: marked for text, _, marked in CASES}


async def test_long_texts_cost_little(page: Page) -> None:
    """20,000 characters in one sentence: what the page allows at most."""
    words = "one two three four 5 six " * 800
    spoken = [words.replace("5", "five").split()]
    assert await page.tab.value(SCRIPT.format(given=json.dumps([words, spoken]))) == words.split()
