"""What the bundled voice reads: its lexicon, its letter-to-sound model, and sentences that books
lack.
"""
