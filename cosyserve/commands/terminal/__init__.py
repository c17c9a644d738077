"""What commands share: arguments, standard input, sound and messages at the terminal."""
