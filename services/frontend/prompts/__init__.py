"""What a request contains in addition to its text: recordings that become voices, and
instructions.
"""
