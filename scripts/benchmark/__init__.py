"""Compares the speed of Entente with that of other programs, measured in alternation on one machine."""
