"""The bundled voice's flow: speech tokens to mel, trained on the network that
`services.token2wav.flow` serves.
"""
