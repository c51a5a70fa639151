"""Lists the laws that each ablation must break. test_variants.py defines the laws, and tests each ablation against the list."""

import re
from pathlib import Path
from typing import Any

import yaml

ABLATION_FILES = {file.stem: file.read_text() for file in sorted(Path(__file__).parents[2].glob("configs/ablation/*.yaml"))}

ATTENTION = {"attention"}
NO_FUTURE = {"causality", "chunks", "target padding"}  # broken by a decoder that sees later tokens
NO_PADDING = {"source padding", "alone"}  # broken by attention to padding
BREAKS: dict[tuple[str, str], set[str]] = {
    ("transformer", "multiplied_mask"): NO_FUTURE | NO_PADDING | ATTENTION,
    ("transformer", "no_causal_mask"): NO_FUTURE | ATTENTION,
    ("transformer", "no_cross_attention"): {"source words", "source order"},
    ("transformer", "no_padding_mask"): NO_PADDING | ATTENTION,
    ("transformer", "no_positions"): {"source order"},
    ("transformer", "softmax_batch"): {"alone", "neighbours"} | ATTENTION,
    # With softmax_queries, the weights of a key sum to 1 over all queries, including later and padded ones.
    ("transformer", "softmax_queries"): NO_FUTURE | NO_PADDING | ATTENTION,
    ("transformer", "weak_mask"): NO_FUTURE | NO_PADDING | ATTENTION,
    ("birnn", "no_padding_mask"): NO_PADDING | ATTENTION,
    ("birnn", "softmax_batch"): {"alone", "neighbours"} | ATTENTION,
}
# The models of each ablation, which its command names; the baseline has no command, and is of both.
COMMANDS = {
    variant: (re.findall("# Command: (.*)", text) or ["(or model=birnn)"])[0] for variant, text in ABLATION_FILES.items()
}
BROKEN = {("transformer", variant): set[str]() for variant, text in COMMANDS.items() if "model=birnn ablation=" not in text}
BROKEN |= {("birnn", variant): set[str]() for variant, text in COMMANDS.items() if "model=birnn" in text} | BREAKS


def model_settings(variant: str) -> dict[str, Any]:
    """Returns the model settings that an ablation changes, with their new values."""
    return (yaml.safe_load(ABLATION_FILES[variant]) or {}).get("model", {})
