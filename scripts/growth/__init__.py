"""Measures how time and memory grow with sentence length, vocabulary size, model width and corpus size."""
