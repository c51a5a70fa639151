"""What the arguments of a model may be: annotations say the ranges and the choices, and constructors refuse other choices."""

from typing import Annotated, Any, get_args

from annotated_types import Interval

# The upper bounds are far beyond use. They are there because a configuration may come with a checkpoint from a stranger.
VocabularySize = Annotated[int, Interval(ge=1, le=1_000_000)]
TokenId = Annotated[int, Interval(ge=0, lt=1_000_000)]
Seed = Annotated[int, Interval(ge=0, lt=2**32)]
Width = Annotated[int, Interval(ge=1, le=8192)]
DropoutRate = Annotated[float, Interval(ge=0, lt=1)]  # the probability that a value is dropped


def refuse_unknown(**arguments: tuple[object, Any]) -> None:
    """Raises a ValueError unless each argument, NAME=(value, Literal), is one of the literal's choices, or a list of them."""
    for name, (given, literal) in arguments.items():
        for value in given if isinstance(given, list | tuple) else [given]:
            if value not in get_args(literal):
                raise ValueError(f"{name}={value}: choose from {', '.join(get_args(literal))}")
