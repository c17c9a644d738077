"""What a generation request contains and the rules that produce its tokens: request, scripts,
sampling and lengths.
"""
