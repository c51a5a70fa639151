"""What the arguments of a model may be. Annotations say the ranges, and a ValueError that names the argument as NAME=VALUE
refuses everything else: an unknown choice, or values that do not go together."""

from collections.abc import Collection, Mapping, Sequence
from typing import Annotated, Literal, TypeVar

from annotated_types import Interval

K = TypeVar("K", bound=str)
V = TypeVar("V")

# The upper bounds are far beyond use. They are there because a configuration may come with a checkpoint from a stranger.
VocabularySize = Annotated[int, Interval(ge=1, le=1_000_000)]
TokenId = Annotated[int, Interval(ge=0, lt=1_000_000)]
Seed = Annotated[int, Interval(ge=0, lt=2**32)]
Width = Annotated[int, Interval(ge=1, le=8192)]
DropoutRate = Annotated[float, Interval(ge=0, lt=1)]  # the probability that a value is dropped

Projection = Literal["query", "key", "value"]
PROJECTIONS: tuple[Projection, ...] = ("query", "key", "value")
Sublayer = Literal["self", "cross", "ff"]
SUBLAYERS: tuple[Sublayer, ...] = ("self", "cross", "ff")


def refuse_unknown(argument: str, values: Sequence[str], choices: Collection[str]) -> None:
    """Each value is one of the choices."""
    for value in values:
        if value not in choices:
            raise ValueError(f"{argument}={value}: choose from {', '.join(choices)}")


def choose(argument: str, value: K, choices: Mapping[K, V]) -> V:
    """What the chosen value means."""
    refuse_unknown(argument, [value], choices)
    return choices[value]


def heads_divide(d_model: int, n_heads: int) -> None:
    """Every head has an equal share of the width."""
    if d_model % n_heads:
        raise ValueError(f"d_model={d_model} is not divisible by n_heads={n_heads}")


def unprojected_width(d_k: int | None, projections: Sequence[Projection]) -> None:
    """A query, key or value that is not projected keeps the width D / H per head."""
    if d_k is not None and set(projections) != set(PROJECTIONS):
        raise ValueError(f"d_k={d_k} needs all three projections; leave d_k null, or projections whole")


def self_attention_stays(sublayers: Sequence[Sublayer]) -> None:
    """The decoder's self-attention carries what was read so far, which every later token needs."""
    if "self" not in sublayers:
        raise ValueError(f"sublayers={list(sublayers)} must have self; cross and ff can be left out")
