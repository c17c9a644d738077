"""Decoding of uploaded recordings: file formats, the decoder process, limits and trimming."""
