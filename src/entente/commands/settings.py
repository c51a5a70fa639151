"""The settings of the commands other than `train`, which imports no torch either (see entente.settings)."""

from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field

from entente import settings as base
from entente.settings import LISTS, AttentionKind, Count, File, SamplingSettings, Section, Threads, setting

Dictionaries = Annotated[tuple[dict[str, Any], ...], LISTS]
Names = Annotated[tuple[base.Name, ...], LISTS, Field(min_length=1)]
Texts = Annotated[tuple[str, ...], LISTS, Field(min_length=1)]
Files = Annotated[tuple[File, ...], LISTS, Field(min_length=1)]
# Those of entente.data.faults
Rule = Literal[
    "empty", "duplicate", "near_duplicate", "entity", "tag", "encoding", "control",
    "untranslated", "swapped", "language", "numbers", "misaligned", "shifted",
]  # fmt: skip
Rules = Annotated[tuple[Rule, ...], LISTS]
RUNS, SENTENCE = "null: the run's", "Il n'est pas aussi grand que son père."
TRUST = "allow reading the corpus files or URLs named in the checkpoint; not needed for data=grammar"


class SearchChanges(Section):
    beam: int | None = setting(None, RUNS, ge=1, le=1000)
    length_penalty: float | None = setting(None, RUNS, ge=-10, le=10)
    length_factor: float | None = setting(None, RUNS, ge=0, le=100)
    length_offset: int | None = setting(None, RUNS, ge=1, le=100_000)


class DecodingSettings(Section):
    checkpoint: File = setting(..., "checkpoint file, or a run's directory, whose best checkpoint is used")
    accelerator: Literal["auto", "cpu", "gpu", "cuda", "mps", "tpu"] = setting("auto", "device to run on")
    threads: Threads = None
    search: SearchChanges = SearchChanges()


class ScoringSettings(DecodingSettings):
    trust_data: bool = setting(False, TRUST)
    src: File | None = setting(None, "file of source sentences to score instead of a split; needs tgt=FILE too")
    tgt: File | None = setting(None, "like src, for the target")

    def conflicts(self) -> Iterator[str]:
        if bool(self.src) != bool(self.tgt):
            yield "src and tgt go together: give both files, src=FILE tgt=FILE"
        if self.src and self.model_dump()["split"] != "test":
            yield f"src={self.src} has no splits: leave out either src and tgt, or split"


class EvaluationChanges(Section):
    tokenize: base.BleuTokenizer | None = setting(None, RUNS)
    metrics: base.Metrics | None = setting(None, RUNS)


class EvaluateSettings(ScoringSettings):
    split: str | Texts = setting(
        "test", "split or splits of the corpus, or all; test@alone batches each sentence alone, test@mixed mixes lengths"
    )
    evaluation: EvaluationChanges = EvaluationChanges()
    attention: bool = setting(False, "also measure the attention, and score it as a word alignment")
    alignments: File | None = setting(
        None, "file of gold links between words split at spaces; 0-0 is a sure link, 1?3 a possible one"
    )
    occlusion: int = setting(0, "sentences on which to compare attention with leaving out words", ge=0)
    intervene: Dictionaries | Annotated[tuple[Dictionaries, ...], LISTS] = setting(
        (), "changes to the trained model, such as [{mute: cross, layer: 2, head: 1}]; a list of lists: a table of these"
    )
    output: File | None = setting(None, "folder for metrics.json, translations and alignments, or interventions.json")

    def conflicts(self) -> Iterator[str]:
        yield from super().conflicts()
        if self.alignments and not self.src:
            yield f"alignments={self.alignments} needs src=FILE and tgt=FILE; give these too, or leave out alignments"
        for name, value in (("alignments", self.alignments), ("occlusion", self.occlusion)):
            if value and not self.attention:
                yield f"{name}={value} needs attention=true; add it, or leave out {name}"
        if self.attention and any(isinstance(each, tuple) for each in self.intervene):
            yield "attention=true: give one list of interventions that is not in another list, or leave out attention"


class ImportanceSettings(ScoringSettings):
    split: str = setting("test", "split of the corpus")
    output: File | None = setting(None, "folder for importance.json and its picture; null: the run's directory")


class TranslationSearch(SearchChanges):
    beam: int | None = setting(None, "hypotheses kept at each step; null: the run's, or 5 if it is greedy", ge=1, le=1000)
    n_best: int = setting(1, "translations returned per sentence", ge=1, le=1000)


class TranslateSettings(DecodingSettings):
    search: TranslationSearch = TranslationSearch()
    sampling: SamplingSettings | None = setting(None, "temperature, top_k and seed, to draw translations instead of searching")
    input: File | None = setting(
        None, "text file, plain or compressed, or a pipe; null: standard input, or a prompt in a terminal"
    )
    output: File | None = setting(None, "file for the translations; null: standard output")
    scores: bool = setting(
        False, "add two columns: the mean log-probability of a piece; flags: too_long, cut, unseen (words), numbers (replaced)"
    )

    def conflicts(self) -> Iterator[str]:
        if self.sampling and (self.search.n_best > 1 or (self.search.beam or 1) > 1):
            yield "sampling draws one translation of each line: leave out search.beam and search.n_best"


class ExportSettings(Section):
    checkpoint: File = setting(..., "checkpoint file, or a run's directory, whose best checkpoint is used")
    format: Literal["ctranslate2", "huggingface"] = setting(..., "the library for which to write the model")
    output: File = setting(..., "new folder for the model")
    quantization: Literal["int8"] | None = setting(None, "type of the weights, only for ctranslate2; null: float32")
    input: File | None = setting(None, "text file, some of whose lines are translated by both; null: translations/valid.tsv")
    threads: Threads = None

    def conflicts(self) -> Iterator[str]:
        if self.format == "huggingface" and self.quantization:
            yield f"format=huggingface quantization={self.quantization}: only format=ctranslate2 quantizes; leave it out"


class AttentionSettings(Section):
    checkpoint: File | Files = setting(..., "checkpoint file, run's directory, or a list of these to draw side by side")
    sentence: str = setting(SENTENCE, "sentence in the source language")
    target: str | None = setting(None, "translation for the model to read; null: the model's own greedy translation")
    pair: str | None = setting(None, "pair of the run's corpus, such as test/1, instead of sentence and target")
    trust_data: bool = setting(False, TRUST)
    kind: AttentionKind | None = setting(None, "encoder, decoder or cross in a Transformer, alignment in a BiRNN; null: all")
    words: bool = setting(False, "show whole words instead of pieces")
    layer: Count | None = setting(None, "layer to draw alone, counted from 1; null: all, or the last if head is set")
    head: Count | None = setting(None, "head to draw alone, counted from 1; null: all, or their mean if layer is set")
    occlusion: bool = setting(False, "also show the effect of leaving out each source word, and its correlation")
    output: File = setting("outputs/attention", "folder, or the path of one picture (.png, .svg, .pdf)")
    threads: Threads = None

    def conflicts(self) -> Iterator[str]:
        if self.occlusion and self.kind in ("encoder", "decoder"):
            yield f"kind={self.kind}: occlusion=true needs attention to the source; leave kind out, or give kind=cross"
        if self.pair and (self.target or self.sentence != SENTENCE):
            yield f"pair={self.pair} has a sentence and a target: leave out either pair, or sentence and target"


class TraceSettings(Section):
    checkpoint: File | None = setting(None, "checkpoint file, or a run's directory, whose best checkpoint is used")
    sentence: str = setting(SENTENCE, "sentence in the source language")
    target: str | None = setting(None, "translation for the model to read; null: the model's own greedy translation")
    kind: AttentionKind | None = setting(None, "kind of attention; null: attention to the source, or all kinds of the example")
    layer: Count | None = setting(None, "layer of a Transformer, counted from 1; null: the first")
    head: Count | None = setting(None, "head of a Transformer, counted from 1; null: the first")
    step: Count | None = setting(None, "target step of a BiRNN, counted from 1; null: the first")
    example: bool | Literal["transformer", "birnn"] = setting(
        False, "trace a tiny model of width 4 on two short sentences instead of a checkpoint; true: transformer"
    )
    output: File | None = setting(None, "file for a copy of the trace, as Markdown")
    threads: Threads = None

    def conflicts(self) -> Iterator[str]:
        if bool(self.example) == bool(self.checkpoint):
            yield "checkpoint and example: set one of them, checkpoint=FILE, or example=true for a tiny model of its own"
        elif self.example and (self.target or self.sentence != SENTENCE):
            yield "the example has two sentences of its own: leave out either example, or sentence and target"


class SuiteSettings(Section):
    overrides: Annotated[tuple[str, ...], LISTS] = setting((), "settings of all runs, before your own")
    variants: Names = setting(..., "files in configs/ablation, all compared with `baseline`, which is one of them")


class AblateSettings(Section):
    model_config = ConfigDict(extra="ignore")  # the configuration has the settings of the runs too

    suite: base.Name | Names = setting("quick", "a name in `suites`, or a list of variants, such as [baseline,no_residual]")
    seeds: Annotated[tuple[base.Seed, ...], LISTS] = setting((1,), "each variant is trained with each seed", min_length=1)
    baseline_seeds: Annotated[tuple[base.Seed, ...], LISTS] = setting((), "further seeds of the baseline, for all comparisons")
    jobs: Count = setting(1, "number of parallel runs, each on its share of the cores")
    name: base.Folder | None = setting(None, "directory of the suite, under output_dir; null: named after the suite")
    suites: dict[base.Name, SuiteSettings] = setting({}, "suites by name")

    def conflicts(self) -> Iterator[str]:
        if isinstance(self.suite, str) and self.suite not in self.suites:
            yield f"suite={self.suite}: choose one of {', '.join(self.suites)}, or a list such as suite=[baseline,no_residual]"


class CompareSettings(Section):
    runs: File | Files = setting(
        ..., "a suite's directory, or a list of finished runs, such as [RUN,OTHER]; the first is the baseline"
    )
    output: File | None = setting(None, "folder for comparison.html, .md and .csv; null: the suite's, or a new one")
    samples: int = setting(2000, "number of bootstrap samples", ge=1, le=100_000)
    output_dir: base.OutputDir = "outputs"


class PageSettings(Section):
    runs: File | Annotated[tuple[File, ...], LISTS, Field(min_length=1, max_length=2)] = setting(
        ..., "run's directory or checkpoint file, or two of these"
    )
    input: File | None = setting(
        None, "sentences to choose from: a source per line, or a source, a tab and its reference; null: of the test split"
    )
    output: File | None = setting(None, "HTML file; null: page.html in the first run's directory")
    threads: Threads = None


class AblationsSettings(Section):
    model: Literal["transformer", "birnn"] | None = setting(None, "list only the ablations that change this model; null: all")


class InspectSettings(Section):
    data: base.DataSettings = base.GrammarSettings()
    output: File | None = setting(None, "file for the training pairs without faults, CLEAN.tsv; removed.tsv lists the others")
    rules: Rules | None = setting(None, "rules by which pairs are faulty; null: all but near_duplicate, which is often wrong")
    output_dir: base.OutputDir = "outputs"


class CorpusSettings(Section):
    n: int = setting(5, "number of sentences", ge=0, le=1000)
    split: Literal["train", "valid", "test", "test_long", "test_compositional"] = setting("test", "split")
    seed: base.Seed = setting(1, "seed of the random choice of sentences")
