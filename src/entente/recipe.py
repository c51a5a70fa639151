"""The recipe for a text of one's own: which settings follow from its size.

The values are those of the recipes for Multi30k and Tatoeba, and guesses for smaller and larger texts. configs/recipe includes
them as `_corpus`, below its own settings, an experiment, an ablation and the user's settings, each of which may change them.
"""

from typing import Any

RECIPES = {f"{data}_{model}" for data in ("files", "multi30k", "opus_books") for model in ("transformer", "birnn")}
USUAL = 30_000, 10.0, 100  # pairs, words per sentence and characters of the text that --help and --cfg assume


def for_corpus(pairs: int, words: float, characters: int) -> dict[str, Any]:
    """Returns the settings for a training text. words: the mean number of words per sentence, on the longer side. characters:
    how many different ones it has, each of which becomes a piece."""
    vocabulary = max(1000 if pairs < 10_000 else 4000 if pairs < 100_000 else 8000, 1000 * round(characters / 500))
    dropout = 0.3 if pairs < 10_000 else 0.15 if pairs < 100_000 else 0.1
    epochs = min(40, max(1, 15 * (30_000 * 12 / (pairs * words)) ** 0.5))
    return {
        "data": {"tokenizer": {"vocab_size": vocabulary}, "batch": {"max_tokens": 1024 if pairs < 10_000 else 2048}},
        "model": {"dropout": dropout},
        "trainer": {"max_steps": None, "epochs": float(f"{epochs:.2g}")},
    }


def summary(pairs: int, settings: Any) -> str:
    """Returns what the rule has chosen, or the user instead of it, in one line."""
    pieces, dropout, tokens = settings.data.tokenizer.vocab_size, settings.model.dropout, settings.data.batch.max_tokens
    return f"{pairs:,} training pairs: {pieces:,} pieces, dropout {dropout}, batches of {tokens:,} tokens"
