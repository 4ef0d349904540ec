"""`data check`: what is wrong with a text, where, and copies without it."""
