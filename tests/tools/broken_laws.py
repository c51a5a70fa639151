"""Lists the laws that each ablation must break. test_variants.py defines the laws, and tests each ablation against the list."""

from pathlib import Path
from typing import Any

import yaml

ABLATION_FILES = {file.stem: file.read_text() for file in sorted(Path(__file__).parents[2].glob("configs/ablation/*.yaml"))}

ATTENTION = {"attention"}
NO_FUTURE = {"causality", "chunks", "target padding"}  # broken by a decoder that sees later tokens
NO_PADDING = {"source padding", "alone"}  # broken by attention to padding
KEEPS_ALL = {
    "transformer": """
        additive_score baseline bilinear_score cosine_score d_k_256 d_k_256_unscaled layers_1 layers_1_no_residual
        layers_2 layers_2_no_residual layers_4 layers_4_no_residual learned_positions modern no_dropout
        equal_heads large_embeddings no_embedding_scale no_feed_forward no_label_smoothing no_norm
        no_output_projection no_projections no_query_projection no_residual no_residual_cross no_residual_ff no_residual_self
        no_warmup one_head post_norm rms_norm rotary scaled_by_keys sliced_heads swiglu unscaled untied zero_init""",
    "birnn": """baseline bilinear_score dot_score lstm no_attention no_dropout no_label_smoothing no_warmup one_direction
        readout_context readout_residual untied""",
}
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
BROKEN = {(name, variant): set[str]() for name, variants in KEEPS_ALL.items() for variant in variants.split()} | BREAKS


def model_settings(variant: str) -> dict[str, Any]:
    """Returns the model settings that an ablation changes, with their new values."""
    return (yaml.safe_load(ABLATION_FILES[variant]) or {}).get("model", {})
