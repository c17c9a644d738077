"""Both generations of the model, of one size, beside each other on this machine."""
