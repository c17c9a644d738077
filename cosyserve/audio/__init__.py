"""Sample formats: encodings and rates, companding, WAV files, and when sound becomes audible."""
