"""`entente trace`: one attention step by step, in numbers."""

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from annotated_types import Ge, doc

from entente.commands.attention import SENTENCE, Kind, trace_attention
from entente.config.schema import problems
from entente.process import Threads


@dataclass(frozen=True)
class Trace:
    checkpoint: Annotated[str | None, doc("a file, or a run's directory (its best checkpoint)")] = None
    sentence: Annotated[str, doc("in the source language")] = SENTENCE
    target: Annotated[str | None, doc("what the decoder is to produce; null: the model's own greedy translation")] = None
    kind: Annotated[Kind | None, doc("null: attention to the source; of the example, all")] = None
    layer: Annotated[Annotated[int, Ge(1)] | None, doc("of a Transformer, from 1; null: the first")] = None
    head: Annotated[Annotated[int, Ge(1)] | None, doc("from 1; null: the first")] = None
    step: Annotated[Annotated[int, Ge(1)] | None, doc("of a BiRNN, the target step, from 1; null: the first")] = None
    example: Annotated[
        bool | Literal["transformer", "birnn"],
        doc("no checkpoint but a tiny model, two sentences of 3 tokens, width 4; true: transformer"),
    ] = False
    output: Annotated[str | None, doc("a file, NAME.md: the same as Markdown")] = None
    columns: Annotated[Annotated[int, Ge(1)] | None, doc("columns of a wide tensor that are shown; null: all")] = 8
    output_dir: str = "outputs"
    threads: Threads = None


def check(config: dict[str, Any]) -> list[str]:
    return problems(Trace, "", config)


main = trace_attention
