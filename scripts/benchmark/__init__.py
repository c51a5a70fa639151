"""Compares the speed of Entente with other programs, measured in alternation on one machine."""
