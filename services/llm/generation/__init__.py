"""What a sentence asks for and the rules by which its tokens are made: request, scripts, sampling,
lengths.
"""
