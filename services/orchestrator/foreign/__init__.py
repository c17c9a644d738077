"""What the adapters of other servers' contracts share, calls of our own service and its voices, and
the smallest of them, CosyVoice's.
"""
