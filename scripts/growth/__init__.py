"""Measures how cost grows with sentence length, vocabulary, width and corpus."""
