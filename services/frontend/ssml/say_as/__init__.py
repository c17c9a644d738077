"""Values that a caller has said the kind of (SSML `say-as`): read from how they are written, and
put into words of a language.
"""
