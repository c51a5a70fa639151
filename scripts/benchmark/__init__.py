"""Measures Entente and other programs in alternation on one machine."""
