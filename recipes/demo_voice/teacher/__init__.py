"""The teacher, Kokoro-82M (hexgrad, Apache-2.0), a StyleTTS 2 text-to-speech model, as batched
torch modules with the names of the published checkpoint and the layout of
https://github.com/hexgrad/kokoro; unlike there, sentences of different lengths share a batch and
each comes out as it would alone.
"""
