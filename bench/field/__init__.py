"""The method by which streaming servers are compared, nari-labs' tts_bench: measured by ourselves
over HTTP and gRPC, and their tool unmodified.
"""
