"""A trained model for use in Python, loaded with `entente.load("outputs/RUN")`.

Shapes: L layers, H heads, S source pieces and T target pieces (both with the end symbol </s>), V pieces in the vocabulary.
"""

import io
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import torch
from matplotlib.figure import Figure
from torch import Tensor

from entente import checkpoint
from entente.attention import record
from entente.attention.draw import draw
from entente.attention.hook_points import Hook, hooked, points
from entente.attention.interventions import Intervention, intervene, mute, with_means
from entente.console import log
from entente.data.batches import EvaluationBatches, Rows
from entente.data.text import clean, unseen
from entente.data.tokenizer import BOS, EOS
from entente.decoding.search import translation_search
from entente.decoding.translate import MAX_TOKENS, translate_lines
from entente.errors import InputError
from entente.files import read_file
from entente.process import single_threaded
from entente.settings import SamplingSettings
from entente.validation import validate, with_changes

Text = TypeVar("Text", str, list[str])
# Translation changes layers and torch's number of threads while it runs, and recording sees every call of a layer.
BUSY = threading.RLock()


class Score(NamedTuple):
    target: list[str]  # T pieces
    log_probabilities: Tensor  # (T,), in nats, of each piece given the source and the pieces before it


class Attention(NamedTuple):
    """The attention weights of all heads for one sentence pair, by kind: "encoder" (L, H, S, S), "decoder" (L, H, T, T) and
    "cross" (L, H, T, S) of a Transformer; "alignment" (1, 1, T, S) of a BiRNN. Except in "encoder", row t is the step that
    produces `target[t]` after reading `read[: t + 1]`."""

    maps: dict[str, record.AttentionMap]
    source: list[str]  # S pieces
    target: list[str]  # T pieces
    read: list[str]  # T pieces: <s>, then `target` without its </s>
    title: str  # both sentences

    @property
    def weights(self) -> dict[str, Tensor]:
        return {kind: map.weights for kind, map in self.maps.items()}

    def __repr__(self) -> str:
        kinds = (f"{kind} {tuple(weights.shape)}" for kind, weights in self.weights.items())
        return f"Attention({self.title}: {', '.join(kinds)})"

    def plot(self, kind: str | None = None, layer: int | None = None, head: int | None = None) -> Figure:
        """Draws one kind of attention, by default attention to the source: every layer and head, or one panel if `layer` or
        `head`, counted from 1, is given. layer=None then means the last layer, and head=None the mean of its heads."""
        kind = kind or [*self.weights][-1]  # the last is "cross" or "alignment", unless the model has neither
        if kind not in self.weights:
            raise InputError(f"kind={kind}: choose one of {', '.join(self.weights)}")
        figure = draw(self.maps[kind], self.title, layer, head)
        figure._repr_png_ = partial(_png, figure)  # type: ignore[attr-defined]  # Jupyter shows the result of this method
        return figure


def _png(figure: Figure) -> bytes:
    figure.savefig(file := io.BytesIO(), format="png")
    return file.getvalue()


@dataclass(frozen=True, repr=False)
class TrainedModel(checkpoint.TrainedRun):
    """A checkpoint's `model`, `vocabulary` and `settings`, with methods that translate, score and return attention. Threads may
    share it, and take turns. metrics: the scores of each split, as in the run's metrics.json; {} for a lone checkpoint."""

    metrics: dict[str, dict[str, Any]] = field(default_factory=dict)

    def __repr__(self) -> str:
        return self.summary()

    def translate(
        self,
        sentences: Text,
        beam: int | None = None,
        length_penalty: float | None = None,
        prefix: Text | None = None,
        sampling: Mapping[str, Any] | None = None,
    ) -> Text:
        """Returns the best translation of one sentence, or of each sentence in a list. beam=1 is greedy search; None means the
        default of `entente translate`. prefix: how the translation begins, or a list of these, one for each sentence (an
        empty sentence has an empty translation). Without it, a text of more than 60 words, or of three or more sentences, is
        translated sentence by sentence, and one in capitals as if it were not. sampling: draws each translation instead of
        searching for it, with `temperature`, `top_k` and `seed`, or {} for their defaults (see SamplingSettings). Logs the
        words never seen in training as a warning."""
        if isinstance(sentences, str):
            return self.translate([sentences], beam, length_penalty, None if prefix is None else [prefix], sampling)[0]
        texts = [*sentences]
        prefixes = [] if prefix is None else [prefix] * len(texts) if isinstance(prefix, str) else list(prefix)
        if prefix is not None and len(prefixes) != len(texts):
            raise InputError(f"prefix: {len(prefixes)} for {len(texts)} sentences; give one for each")
        if sampling is not None and (prefixes or (beam or 1) > 1):
            raise InputError("sampling draws one translation of each sentence: leave out beam and prefix")
        draws = None if sampling is None else validate(SamplingSettings, sampling, where="sampling: ")
        for side, lines in ((self.vocabulary.src, texts), (self.vocabulary.tgt, prefixes)):
            for line in lines:
                side.refuse_too_long(line, repr(line[:30]), is_plain=not prefixes and not draws)
        changes = {"beam": beam, "length_penalty": length_penalty, "n_best": 1}
        search = with_changes(translation_search(self.settings.search), changes)
        if message := unseen(word for sentence in texts for word in self.new_words(clean(sentence))):
            log.warning("%s", message)
        with BUSY:
            return [best.text for [best] in translate_lines(self.model, self.vocabulary, texts, search, prefixes, draws)]

    def attention(self, source: str, target: str | None = None) -> Attention:
        """Returns the attention of every layer and head for `source` and `target`, by default the greedy translation."""
        if not record.has_attention(self.model):
            raise InputError("this model has no attention: it was trained with score=none")
        with BUSY:
            src, tgt = record.read_sentence(self, source, target)
            recorded = record.record(self.model, self.vocabulary, src, tgt)
        maps = {record.NAME_OF_KIND[map.kind]: map for map in recorded}
        pieces = self.vocabulary.tgt.pieces
        title = f"{self.vocabulary.src.decode(src)} \u2192 {self.vocabulary.text(tgt)}"
        return Attention(maps, self.vocabulary.src.pieces(src), pieces([*tgt, EOS]), pieces([BOS, *tgt]), title)

    def score(self, source: str, target: str) -> Score:
        """Returns the log-probability that the model gives to each piece of `target` as a translation of `source`."""
        src, tgt = record.read_sentence(self, source, target)
        with BUSY:
            log_p = record.target_log_probabilities(self.model, src, tgt).cpu()
        produced = [*tgt, EOS]
        return Score(self.vocabulary.tgt.pieces(produced), log_p[range(len(produced)), produced])

    @contextmanager
    def intervene(self, *interventions: Intervention) -> Iterator[None]:
        """Changes the model inside the context (see entente.attention.interventions). Raises InputError for an intervention
        that this model cannot have. Other threads wait until the context ends, so do not wait for one inside it."""
        with BUSY, intervene(self.model, interventions, self.vocabulary):
            yield

    def mean_output(self, kind: str, layer: int, head: int, pairs: Iterable[tuple[str, str]]) -> list[float]:
        """Returns what a head returns on average over all pieces of the pairs of source and target, for `mute(..., to=...)`."""
        ids = [record.read_sentence(self, source, target) for source, target in pairs]
        rows = Rows(src for src, _ in ids), Rows([BOS, *tgt, EOS] for _, tgt in ids)
        with BUSY:
            batches = partial(EvaluationBatches, *rows, MAX_TOKENS)
            [resolved] = with_means(self.model, [mute(kind, layer, head, to="mean")], batches)
        values: list[float] = resolved["to"]
        return values

    def hook_names(self) -> dict[str, str]:
        """Returns the names of the activations that `hooks` and `run_with_cache` know, with their shapes (see
        entente.attention.hook_points)."""
        return {name: point.shape for name, point in points(self.model).items()}

    @contextmanager
    def hooks(self, functions: Iterable[tuple[str, Callable[[Tensor, Hook], Tensor | None]]]) -> Iterator[None]:
        """Inside the context, calls each function(tensor, hook) whenever the model computes an activation with its name, which
        may have wildcards. What the function returns replaces the activation; None leaves it. `hook.name` is its name. torch
        uses one thread inside the context, so that functions are called one at a time, and may call the model. Other threads
        wait until the context ends."""
        with BUSY, single_threaded(), hooked(self.model, functions):
            yield

    def run_with_cache(self, source: str, target: str | None = None, names: str = "*") -> tuple[Tensor, dict[str, Tensor]]:
        """Returns the log-probabilities (T, V) of each piece after those of `target` before it, and the activations with a name
        that matches, which may have wildcards. target: by default the greedy translation."""
        activations: dict[str, list[Tensor]] = {}

        def keep(value: Tensor, hook: Hook) -> None:
            activations.setdefault(hook.name, []).append(value.clone())

        with BUSY:
            src, tgt = record.read_sentence(self, source, target)
            with hooked(self.model, [(names, keep)]):
                log_p = record.target_log_probabilities(self.model, src, tgt)
        # A BiRNN computes its state (B, D) and its alignment (B, 1, S) for each position in turn.
        join = {name: torch.stack if values[0].dim() == 2 else torch.cat for name, values in activations.items()}
        return log_p, {name: join[name](values, dim=1) for name, values in activations.items()}


def load(run: str | Path, device: str | torch.device | None = None) -> TrainedModel:
    """Loads the best checkpoint in a run's directory, or a checkpoint file. device: None means CUDA if available, else the CPU.
    Raises InputError if the file is missing, damaged or not written by Entente."""
    loaded, metrics = checkpoint.load(str(run)), Path(run).expanduser() / "metrics.json"
    loaded.model.to(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    return TrainedModel(**vars(loaded), metrics=read_file(metrics) if metrics.is_file() else {})
