"""The bundled voice: teacher, speech tokenizer, speech-token model, flow, vocoder and speaker
encoder, each stage one command.
"""
