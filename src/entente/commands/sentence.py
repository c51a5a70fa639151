"""The settings of `entente attention` and `entente trace`, which look at one sentence."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Literal

from annotated_types import Ge, Interval, doc

from entente.commands.trained import OutputDir, TrustData
from entente.config.schema import problems
from entente.process import Threads

SENTENCE = "Il n'est pas aussi grand que son père."
Kind = Literal["encoder", "decoder", "cross", "alignment"]


@dataclass(frozen=True, kw_only=True)
class Attention:
    """The settings of `entente attention`."""

    checkpoint: Annotated[
        str | Sequence[str], doc("one: all of its attention; several: side by side; files, or runs' directories")
    ]
    sentence: Annotated[str, doc("in the source language")] = SENTENCE
    target: Annotated[str | None, doc("a translation that the model is to read; null: its own")] = None
    beam: Annotated[int, Interval(ge=1, le=1000), doc("of its own translation")] = 1
    pair: Annotated[
        str | None, doc("instead of both: SPLIT/NUMBER of the run's corpus, with gold links where known: pair=test/1")
    ] = None
    trust_data: TrustData = False
    kind: Annotated[Kind | None, doc("encoder, decoder or cross of a Transformer, alignment of a BiRNN; null: each")] = None
    words: Annotated[bool, doc("whole words instead of pieces")] = False
    layer: Annotated[Annotated[int, Ge(1)] | None, doc("of the large picture, from 1; null: the last")] = None
    head: Annotated[Annotated[int, Ge(1)] | None, doc("from 1; null: the mean of the layer's heads")] = None
    occlusion: Annotated[bool, doc("add what leaving out each source word changes, and how far the two agree")] = False
    output: Annotated[str, doc("a folder, for PNG and SVG; or one picture: .png, .svg, .pdf")] = "outputs/attention"
    output_dir: OutputDir = "outputs"
    threads: Threads = None


@dataclass(frozen=True)
class Trace:
    """The settings of `entente trace`."""

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


check_attention = partial(problems, Attention, "")
check_trace = partial(problems, Trace, "")
