"""Short replies: whether each keeps all its words."""
