"""How the models in `models/` were made."""
