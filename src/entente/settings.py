"""Every setting of the project, with its type, default and explanation. This module imports no torch, so that commands can
check their settings and print help quickly.

A class is a section of a configuration; `conflicts` describes values that do not go together. Nested dictionaries are valid
input, a list may stand for a tuple and a whole number for a float, but no other type is converted.
"""

import os
from collections.abc import Iterator
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from entente.files import NAME_RULE, is_name, is_split

MISSING = "???"  # OmegaConf's marker for a value that the user must set


def _require(valid: bool, text: str, rule: str) -> str:
    if not valid:
        raise ValueError(f"give {rule}")
    return text


Name = Annotated[str, AfterValidator(lambda text: _require(is_name(text), text, f"a name ({NAME_RULE})"))]
SplitName = Annotated[str, AfterValidator(lambda text: _require(is_split(text), text, f"a name ({NAME_RULE}, without @)"))]
FOLDER_RULE = f"the name of a folder under output_dir (each part {NAME_RULE}; parts are separated by /)"
Folder = Annotated[str, AfterValidator(lambda text: _require(all(map(is_name, text.split("/"))), text, FOLDER_RULE))]
Count = Annotated[int, Field(ge=1)]
Seed = Annotated[int, Field(ge=0, lt=2**32)]
Width = Annotated[int, Field(ge=1, le=8192)]
Probability = Annotated[float, Field(ge=0, lt=1)]
Share = Annotated[float, Field(gt=0, lt=1)]
Weight = Annotated[int, Field(ge=1, le=1000)]
Steps = Annotated[int, Field(ge=0)] | Share  # a number of steps, or a share of the run's
Interval = Count | Share
Threads = Annotated[Annotated[int, Field(ge=1, le=4096)] | None, Field(description="number of CPU threads; null: one per core")]
File = Annotated[str, AfterValidator(os.path.expanduser)]  # a path; ~ is replaced by the home folder
OutputDir = Annotated[File, Field(description="folder of the runs")]
LISTS = Field(strict=False)  # a tuple that may be given as a list, as in YAML
Sublayer = Literal["self", "cross", "ff"]
AttentionKind = Literal["encoder", "decoder", "cross", "alignment"]
Sublayers = Annotated[tuple[Sublayer, ...], LISTS]
Norm = Literal["pre", "post", "rms", "none"]
Projection = Literal["query", "key", "value"]
Scale = Literal["d_k", "none", "n_keys"]
EmbeddingScale = Literal["d_model", "none", "initial"]
SoftmaxOver = Literal["keys", "queries", "batch"]
Grouping = Literal["alone", "mixed"]
BleuTokenizer = Literal["13a", "intl", "zh", "char", "none", "ja-mecab", "ko-mecab"]
Metrics = Annotated[tuple[Literal["bleu", "chrf", "ter"], ...], LISTS]
TIED = "use the target embedding as output projection, and as source embedding if the vocabulary is joint"


def setting(default: Any, explanation: str, **limits: Any) -> Any:
    """Returns a field with a default (`...`: none, the user must give it), its explanation in one line, and its limits."""
    return Field(default, description=explanation, **limits)


class Section(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False, frozen=True)

    def conflicts(self) -> Iterator[str]:
        """Yields a line for each combination of values in this section that cannot be used, naming full keys."""
        yield from ()

    @model_validator(mode="after")
    def _refuse_conflicts(self) -> Self:
        if problems := list(self.conflicts()):
            raise ValueError("\n".join(problems))
        return self


class TransformerSettings(Section):
    name: Literal["transformer"] = "transformer"
    d_model: Width = setting(128, "width of every layer")
    n_heads: int = setting(4, "attention heads per layer", ge=1, le=128)
    n_layers: int = setting(3, "number of layers in the encoder, and in the decoder", ge=1, le=64)
    d_ff: int = setting(512, "hidden width of the feed-forward network; swiglu uses 2/3", ge=1, le=65536)
    dropout: Probability = setting(0.1, "dropout on embeddings and sublayer outputs")
    attention_dropout: Probability = setting(0.0, "dropout on attention weights")
    residual: Sublayers = setting(("self", "cross", "ff"), "sublayers that have a residual connection")
    norm: Norm = setting("pre", "where to normalise; rms: like pre, with RMSNorm")
    activation: Literal["relu", "swiglu"] = setting("relu", "activation of the feed-forward network")
    zero_init: bool = setting(False, "initialise the last layer of each sublayer to zero")
    tied: bool = setting(True, TIED)
    positions: Literal["sinusoidal", "learned", "rotary", "none"] = setting("sinusoidal", "how positions are encoded")
    embedding_scale: EmbeddingScale = setting("d_model", "factor of embeddings: sqrt(d_model); initial: in initial values only")
    sublayers: Sublayers = setting(("self", "cross", "ff"), "sublayers of each layer")
    mask_padding: bool = setting(True, "hide source padding from attention")
    mask_future: bool = setting(True, "hide later target tokens from each token")
    score: Literal["dot", "additive", "bilinear", "cosine"] = setting("dot", "how a query is compared with a key")
    scale: Scale = setting("d_k", "divisor of scores: the root of d_k or of n_keys, the number of visible keys; none: 1")
    projections: Annotated[tuple[Projection, ...], LISTS] = setting(("query", "key", "value"), "learned projections")
    output_projection: bool = setting(True, "mix the outputs of the heads by a learned projection")
    sliced_heads: bool = setting(False, "the projections of a head read only its slice of the vectors")
    equal_heads: bool = setting(False, "the heads of a layer start with the same weights")
    d_k: Width | None = setting(None, "width of a head; null: d_model / n_heads")
    softmax: SoftmaxOver = setting("keys", "axis of the softmax; keys: the weights of each query sum to 1")
    mask_value: Annotated[float, Field(le=0)] | None = setting(None, "value of a masked score; null: minus infinity")

    def conflicts(self) -> Iterator[str]:
        if self.d_model % self.n_heads:
            yield f"model.d_model={self.d_model} is not divisible by model.n_heads={self.n_heads}"
        if self.d_k is not None and len(set(self.projections)) < 3:  # an identity gives a head the width d_model / n_heads
            yield f"model.d_k={self.d_k} needs all three projections; leave model.d_k null, or learn all three"
        for name, value in (("d_k", self.d_k), ("zero_init", self.zero_init)):
            if value and not self.output_projection:
                yield f"model.{name}={value} needs model.output_projection=true; set it, or leave out {name}"
        if "self" not in self.sublayers:  # without it, the decoder would not see earlier target tokens
            yield f"model.sublayers={list(self.sublayers)} must include self; only cross and ff can be left out"


class BiRNNSettings(Section):
    name: Literal["birnn"] = "birnn"
    d_embedding: Width = setting(256, "width of the embeddings")
    d_hidden: Width = setting(256, "state width of the decoder and of each encoder direction")
    d_attention: Width = setting(256, "hidden width of the additive score")
    dropout: Probability = setting(0.2, "dropout on embeddings, encoder outputs and readout")
    tied: bool = setting(True, TIED)
    score: Literal["additive", "dot", "bilinear", "none"] = setting("additive", "attention score; none: no attention")
    cell: Literal["gru", "lstm"] = setting("gru", "recurrent cell of encoder and decoder")
    forget_bias: float = setting(1.0, "initial bias of an LSTM's forget gates; a GRU has none")
    bidirectional: bool = setting(True, "the encoder reads in both directions")
    readout: Literal["maxout", "residual", "context"] = setting("maxout", "residual: state + context; context: context only")
    mask_padding: bool = setting(True, "hide source padding from attention")
    softmax: SoftmaxOver = setting("keys", "axis of the softmax; keys: the weights of each query sum to 1")


class OptimSettings(Section):
    optimizer: Literal["adam", "muon"] = setting("adam", "adam, or muon for the matrices and adam for the rest")
    lr: float = setting(3e-3, "peak learning rate", gt=0)
    momentum: Probability = setting(0.95, "decay rate of muon's running mean of gradients")
    beta1: Probability = setting(0.9, "decay rate of adam's running mean of gradients")
    beta2: Probability = setting(0.98, "decay rate of adam's running mean of squared gradients")
    weight_decay: float = setting(0.0, "weight decay, decoupled from the gradient as in AdamW", ge=0)
    warmup: Steps = setting(200, "steps of the linear warm-up, or their share of the run")
    schedule: Literal["inverse_sqrt", "cosine", "linear", "constant"] = setting(
        "cosine", "shape of the decay; cosine and linear would reach 0 one step after the last"
    )
    decay_from: Steps = setting(200, "step, or share of the run, at which the decay starts; short runs need a smaller one")
    label_smoothing: Probability = setting(0.1, "probability spread uniformly over the vocabulary")


class TrainerSettings(Section):
    suffix: str = setting("", "appended to the run's name")
    max_steps: Count | None = setting(1600, "optimiser steps to train for; null: as many as epochs or minutes say")
    epochs: Annotated[float, Field(gt=0)] | None = setting(None, "passes over the training text, instead of max_steps")
    minutes: Annotated[float, Field(gt=0)] | None = setting(None, "time of the run with its evaluation, instead of max_steps")
    validate_every: Interval = setting(400, "steps between validations, or their share of the run")
    patience: Count | None = setting(None, "stop after this many validations without a gain, even before the rate has decayed")
    gradient_clip: float = setting(1.0, "maximum global gradient norm; 0: no clipping", ge=0)
    accumulate: Count = setting(1, "batches per optimiser step")
    precision: str | int = setting("32-true", "precision, as named by Lightning: bf16-mixed, 16-mixed, 64-true, ...")
    accelerator: str = setting("auto", "device to train on, as named by Lightning: auto, cpu, gpu, ...")
    devices: Count | Literal["auto"] = setting(1, "processes per machine, one per device; auto: all GPUs")
    num_nodes: Count = setting(1, "number of machines; `devices` applies to each of them")
    strategy: Literal["auto", "ddp"] = setting("auto", "auto: ddp with several devices")
    threads: Threads = None
    log_every: Count = setting(20, "steps between logged values")
    limit_batches: Count | Annotated[float, Field(gt=0, le=1)] = setting(1.0, "share or number of batches to evaluate")

    def conflicts(self) -> Iterator[str]:
        if not (self.max_steps or self.epochs or self.minutes):
            yield "trainer.max_steps, trainer.epochs, trainer.minutes: set one of them"

    @property
    def steps(self) -> int:
        """The number of steps, which is known once the text has been read."""
        assert self.max_steps is not None
        return self.max_steps


class CheckpointSettings(Section):
    every: Interval = setting(200, "steps between checkpoints, or share of the run; a killed run loses at most that many")
    keep: Count = setting(2, "number of latest checkpoints to keep for resuming")
    average: Count = setting(1, "latest checkpoints whose mean is evaluated, unless a single one has a higher BLEU")


class SearchSettings(Section):
    beam: int = setting(1, "hypotheses kept at each step; 1: greedy search", ge=1, le=1000)
    length_penalty: float = setting(1.0, "exponent of the length penalty; 0: none", ge=-10, le=10)
    n_best: int = setting(1, "hypotheses that a search completes; training uses the best", ge=1, le=1000)
    length_factor: float = setting(2.0, "length limit = length_factor * source tokens + length_offset", ge=0, le=100)
    length_offset: int = setting(10, "tokens added to the length limit; see length_factor", ge=1, le=100_000)

    def conflicts(self) -> Iterator[str]:
        if self.n_best > self.beam:
            yield f"search.n_best={self.n_best} and search.beam={self.beam}: n_best must be between 1 and beam"


class SamplingSettings(Section):
    temperature: float = setting(1.0, "divisor of the logits; below 1, likely pieces become likelier", gt=0, le=100)
    top_k: Count | None = setting(None, "how many of the likeliest pieces are drawn from (Fan et al. 2018); null: all")
    seed: Seed = setting(1, "seed; a line's translation is a function of it and of the line's number")


class EvaluationSettings(Section):
    tokenize: BleuTokenizer | None = setting(None, "sacreBLEU's tokenizer; null: zh, char (Japanese, Korean, Thai, ...) or 13a")
    metrics: Metrics = setting(("bleu", "chrf", "ter"), "scores to compute at the end; BLEU is always computed")


class ViewsSettings(Section):
    attention: bool = setting(True, "draw attention maps of two fixed sentences and of the first validation sentence")
    attention_every: int = setting(1000, "steps between attention maps; 0: at each validation", ge=0)
    heads: int = setting(32, "validation sentences on which to measure each head (entropy, ...); 0: none", ge=0)
    translations: int = setting(10, "number of sample translations", ge=0)
    diagnosis: int = setting(50, "steps between diagnoses of gradients, sublayers and attention; 0: never", ge=0)


class TokenizerSettings(Section):
    vocab_size: int = setting(8000, "maximum number of pieces", ge=1, le=1_000_000)
    type: Literal["bpe", "unigram"] = setting("bpe", "algorithm that learns the pieces")
    joint: bool = setting(True, "one vocabulary for both sides, which tied embeddings need")
    plain_source: bool = setting(False, "encode the source as people type it, with l'été? instead of l’été ?")


class BatchSettings(Section):
    max_tokens: Count = setting(4096, "maximum number of positions, including padding, on either side of a batch")
    eval_max_tokens: Count = setting(4096, "like max_tokens, but for evaluation batches")
    both_directions: int = setting(0, "first epochs that also contain each pair with its sides swapped", ge=0)


class CorpusSection(Section):
    src: Name = setting("fr", "source language")
    tgt: Name = setting("en", "target language")
    tokenizer: TokenizerSettings = TokenizerSettings()
    batch: BatchSettings = BatchSettings()

    def conflicts(self) -> Iterator[str]:
        if self.src == self.tgt:
            yield f"data.src={self.src} data.tgt={self.tgt}: source and target are the same language"
        if self.batch.both_directions and not self.tokenizer.joint:
            yield f"data.batch.both_directions={self.batch.both_directions} needs data.tokenizer.joint=true"


class GrammarSettings(CorpusSection):
    name: Literal["grammar"] = "grammar"
    seed: Seed = setting(1, "seed of the corpus; the training seed does not change the pairs")
    train: int = setting(30_000, "number of training pairs", ge=1, le=1_000_000)
    valid: int = setting(1000, "number of validation pairs", ge=1, le=1_000_000)
    test: int = setting(1000, "number of pairs in each test split", ge=1, le=1_000_000)

    def conflicts(self) -> Iterator[str]:
        yield from super().conflicts()
        if {self.src, self.tgt} != {"fr", "en"}:
            yield f"data.src={self.src} data.tgt={self.tgt}: the grammar is for fr and en; use one as source, one as target"


class TwoFiles(Section):
    src: File
    tgt: File


class ColumnSettings(Section):
    src: str | Count | None = setting(None, "column by name, or number from 1; null: named after language or side")
    tgt: str | Count | None = setting(None, "like src, for the target")


class SplitSettings(Section):
    valid: Count | Share | None = setting(None, "number or share of pairs to hold out for validation; null: 5%, at most 1,000")
    test: Annotated[int, Field(ge=0)] | Share | None = setting(None, "like valid, but for testing; 0: none")
    seed: Seed = setting(1, "seed of the split; the training seed does not change which pairs are held out")


class ExtraSettings(Section):
    file: File | None = None
    src: File | None = None
    tgt: File | None = None
    columns: ColumnSettings | None = setting(None, "the columns of this file, or null to use data.columns")
    weight: Weight = setting(1, "how many times an epoch contains each pair")
    tag: str | None = setting(None, "the piece <TAG> begins each source, as for back-translated text", pattern="^[a-z]+$")

    def conflicts(self) -> Iterator[str]:
        if (bool(self.file), bool(self.src), bool(self.tgt)) not in {(True, False, False), (False, True, True)}:
            yield "give either file=FILE, or both src=FILE and tgt=FILE"


class TextSection(CorpusSection):
    max_words: Count = setting(100, "maximum words per side; training pairs above it are dropped and counted")
    max_ratio: Annotated[float, Field(ge=1)] | None = setting(None, "like max_words: maximum ratio of word counts")
    varied: Annotated[float, Field(ge=0, le=1)] = setting(0.0, "share of train read again in lower case or without full stop")


class FilesSettings(TextSection):
    name: Literal["files"] = "files"
    root: File | None = setting(None, "folder that relative paths start from, or null for the current one")
    train: TwoFiles | File = setting(..., "two parallel files, src and tgt, or one file of pairs")
    weight: Weight = setting(1, "how many times an epoch contains each pair of train")
    extra: dict[SplitName, ExtraSettings | File] | None = setting(None, "additional training text, keyed by name")
    valid: TwoFiles | File | None = setting(None, "files as for train, or null to hold out pairs from train (see split)")
    test: dict[SplitName, TwoFiles | File | None] | File | None = setting(None, "as train, or several sets by name")
    columns: ColumnSettings = setting(ColumnSettings(), "the columns of all files of pairs")
    split: SplitSettings = setting(SplitSettings(), "pairs to hold out from train, never from extra, without valid")

    def conflicts(self) -> Iterator[str]:
        yield from super().conflicts()
        sets = self.test if isinstance(self.test, dict) else {}
        for side, other in (("src", "tgt"), ("tgt", "src")):
            if sets.get(side) and not sets.get(other):
                yield f"data.test.{other} is not set: give it as data.test.{other}=FILE"
        for name in sorted({"train", "valid", *(["test"] if sets.get("src") else [])} & sets.keys()):
            yield f"data.test.{name}: this name is taken by another split; rename the test set"


class Multi30kSettings(TextSection):
    name: Literal["multi30k"] = "multi30k"
    root: File = setting(..., "path or URL of the repository multi30k/dataset, or of its folder data/task1/raw")
    tests: Annotated[tuple[SplitName, ...], LISTS] = setting(("test_2016_flickr",), "test sets that both languages have")

    def conflicts(self) -> Iterator[str]:
        yield from super().conflicts()
        for name in sorted({"train", "valid"} & {*self.tests}):
            yield f"data.tests: {name} is the name of another split"


class OpusBooksSettings(TextSection):
    name: Literal["opus_books"] = "opus_books"
    path: File = setting("Helsinki-NLP/opus_books", "data set on the hub, Parquet file, or folder of Parquet files")
    subset: str | None = setting("en-fr", "subset of the data set, named after its languages")
    split: SplitSettings = setting(SplitSettings(valid=1000, test=1000), "pairs to hold out for valid and test")


ModelSettings = Annotated[TransformerSettings | BiRNNSettings, Field(discriminator="name")]
DataSettings = Annotated[GrammarSettings | FilesSettings | Multi30kSettings | OpusBooksSettings, Field(discriminator="name")]


class RunSettings(Section):
    seed: Seed = setting(1, "seed for the initial weights, the order of batches and dropout")
    name: Folder = setting(..., "directory of the run; -overfit is appended if `overfit` is set")
    output_dir: OutputDir = "outputs"
    overfit: bool = setting(False, "memorise one batch, as a first check that a model can learn at all")
    variant: str = setting("baseline", "name of the ablation, that of its file in configs/ablation")
    resume: File | None = setting(None, "a run's directory, or auto: the newest unfinished run with this name and settings")
    init: File | None = setting(None, "a run or a checkpoint whose weights, model settings and tokenizer to start from")
    also_evaluate: Annotated[tuple[Grouping, ...], LISTS] = setting((), "groupings in which to decode the first test split too")
    optim: OptimSettings = OptimSettings()
    trainer: TrainerSettings = TrainerSettings()
    checkpoint: CheckpointSettings = CheckpointSettings()
    search: SearchSettings = SearchSettings()
    evaluation: EvaluationSettings = EvaluationSettings()
    views: ViewsSettings = ViewsSettings()
    model: ModelSettings = TransformerSettings()
    data: DataSettings = GrammarSettings()

    def stored(self) -> dict[str, Any]:
        """Returns the complete configuration as plain values, as in config.yaml and in checkpoints."""
        return self.model_dump(mode="json", exclude={"resume"})
