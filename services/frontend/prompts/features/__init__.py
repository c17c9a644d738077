"""What a voice prompt is measured by: mel, Kaldi filterbank, Whisper log-mel, and the resampler in
front of them.
"""
