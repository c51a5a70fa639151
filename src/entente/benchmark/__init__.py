"""Ours against other programs, side by side on one machine."""
