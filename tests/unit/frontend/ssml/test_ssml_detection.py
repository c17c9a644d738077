"""An SSML document is detected by its first characters."""

import pytest

from services.frontend.ssml.reader import begins_document, is_document, without_declaration


@pytest.mark.parametrize(
    ("text", "known"),
    [
        ("", None), (" \n", None), ("<", None), ("<spea", None), ("<speak", None), ("<speak>", True),
        ("\ufeff <speak a", True),
        ("<speak/>", True), ("<speaker>", False), ("a <speak>", False), ("<?xml versi", None),
        ("<?xml version='1.0'?> <speak>", True),
        ("<?php", False), ("<!DOCTYPE speak>", True), ("<!DOCTYPE html>", False), (" " * 401, False),
        ("[pause 1s]<speak>", False),
        ("<b>", False), ("<break time='1s'/>", False),
    ],
)  # fmt: skip
def test_a_document_is_known_by_its_beginning(text: str, known: bool | None) -> None:
    assert begins_document(text) is known
    assert is_document(text) is (known is True)


def test_places_in_a_document_stay_what_they_are_without_its_declaration() -> None:
    text = "\ufeff\n<?xml version='1.0'\n?> <speak>"
    assert without_declaration(text) == " \n" + " " * 19 + "\n" + " " * 3 + "<speak>"
    assert without_declaration("<speak>\n<?xml ?>") == "<speak>\n<?xml ?>"
