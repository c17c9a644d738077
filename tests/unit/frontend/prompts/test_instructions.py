"""Instructions: the ids of the reference's tokenizer, and what is refused."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cosyserve.errors import CosyserveError, FailedPrecondition, InvalidRequest
from services.frontend.prompts.instruction import instruction_ids
from services.frontend.tokenizers.placeholders import CONTROLS, END_OF_PROMPT
from services.frontend.tokenizers.tokenizer import Tokenizer
from tests.unit.frontend import models

END = 259


@pytest.fixture
def tokenizer() -> Tokenizer:
    return models.tokenizer(models.TINY)


def recorded(text: str) -> list[int]:
    """The recorded ids of the reference's tokenizer for a text."""
    cases = json.loads((models.ROOT / models.TINY / "text_frontend.json").read_text(encoding="utf-8"))["tokenizer"][
        "encode"
    ]
    return next(case["ids"] for case in cases if case["text"] == text)


def test_the_ids_are_those_of_the_reference(tokenizer: Tokenizer) -> None:
    ids = recorded(f"用四川话说{END_OF_PROMPT}收到")
    expected = ids[: ids.index(END) + 1]
    assert len(expected) > 1
    for written in ("用四川话说", f"用四川话说{END_OF_PROMPT}", f"  用四川话说 {END_OF_PROMPT}\n"):
        assert instruction_ids(written, tokenizer) == expected


def test_it_is_read_as_it_is_written_and_marks_of_sound_are_parsed(tokenizer: Tokenizer) -> None:
    text = "Pay $3.50 in 2024, **slowly** - https://example.com 😀"
    assert instruction_ids(text, tokenizer) == [*text.encode(), END]
    marked = "[breath]hi<strong>x</strong>"
    assert instruction_ids(marked, tokenizer) == [*recorded(marked), END]


@pytest.mark.parametrize("control", CONTROLS)
def test_control_tokens_steer_nothing(tokenizer: Tokenizer, control: str) -> None:
    for text in (f"a {control} b", f"{control}a", f"a{control}{END_OF_PROMPT}"):
        assert instruction_ids(text, tokenizer) == [*text.removesuffix(END_OF_PROMPT).encode(), END]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "instruction has 0 characters besides the blanks around it, allowed 1 to 500"),
        (" \n\t ", "instruction has 0 characters"),
        ("a" * 501, "instruction has 501 characters"),
        (END_OF_PROMPT, r"instruction holds nothing that this model can read before <\|endofprompt\|>"),
        (f" {END_OF_PROMPT} ", "instruction holds nothing"),
        # One character that composes to three of four bytes.
        ("\U0001d160" * 500, "instruction comes to 6001 token ids, allowed at most 2048"),
    ],
)
def test_what_is_no_instruction(tokenizer: Tokenizer, text: str, said: str) -> None:
    with pytest.raises(InvalidRequest, match=said):
        instruction_ids(text, tokenizer)


def test_the_longest_that_is_allowed(tokenizer: Tokenizer) -> None:
    assert instruction_ids(f"  {'a' * 500} ", tokenizer) == [97] * 500 + [END]
    assert len(instruction_ids("好" * 500, tokenizer)) == 1501


@given(
    st.lists(st.one_of(st.text(max_size=20), st.sampled_from([*CONTROLS, "[breath]", " "])), max_size=8).map("".join)
)
def test_no_text_brings_a_control_token_in(text: str) -> None:
    tokenizer = models.tokenizer(models.TINY)
    try:
        ids = instruction_ids(text, tokenizer)
    except InvalidRequest:
        assert not text.strip().removesuffix(END_OF_PROMPT).strip()
        return
    assert ids[-1] == END
    assert not {tokenizer.id_of(control) for control in CONTROLS} & set(ids[:-1])
    if not text.strip().endswith(END_OF_PROMPT):
        assert instruction_ids(text + END_OF_PROMPT, tokenizer) == ids


def test_the_bundled_model_knows_no_instructions() -> None:
    phonemes = models.tokenizer(models.DEMO)
    for text, kind in (("Speak slowly.", FailedPrecondition), ("", InvalidRequest)):
        with pytest.raises(CosyserveError) as caught:
            instruction_ids(text, phonemes)
        assert type(caught.value) is kind
    with pytest.raises(FailedPrecondition, match=r"follows no instructions: .* such as the published CosyVoice2-0\.5B"):
        instruction_ids(f"Speak slowly.{END_OF_PROMPT}", phonemes)
