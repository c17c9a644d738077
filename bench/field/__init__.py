"""The benchmark of the field, nari-labs' tts_bench, run unmodified against this server."""
