"""The teacher: Kokoro-82M (hexgrad, Apache-2.0), a StyleTTS 2 text-to-speech model, as batched
torch modules.

Modules and parameters are named as in the published checkpoint; the layout is that of
https://github.com/hexgrad/kokoro. Unlike there, sentences of different lengths share a batch and
come out as they would alone.
"""
