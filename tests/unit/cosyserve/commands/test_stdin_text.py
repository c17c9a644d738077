"""Standard input as it arrives."""

import os

import pytest
from cosyserve.commands.terminal.standard_streams import read_text


async def test_characters_come_whole_however_their_bytes_are_cut() -> None:
    reading, writing = os.pipe()
    arriving = read_text(reading)
    os.write(writing, "é".encode()[:1])
    os.write(writing, "é".encode()[1:] + b" \xff ")
    os.close(writing)
    assert "".join([piece async for piece in arriving]) == "é \ufffd "
    os.close(reading)


async def test_what_cannot_be_read_is_an_error_and_no_silence() -> None:
    reading, writing = os.pipe()
    with pytest.raises(OSError, match="Bad file descriptor"):
        await anext(read_text(writing))
    os.close(reading)
    os.close(writing)
