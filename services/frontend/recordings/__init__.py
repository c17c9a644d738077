"""Uploaded recordings to samples: file formats, the decoder process, limits and trimming."""
