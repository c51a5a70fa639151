"""Tests, with a real trainer, what the callbacks write to TensorBoard, to the log and to the terminal."""

import io
import logging
import re
from pathlib import Path
from typing import Any

import lightning as L
import markdown
import pytest
import rich.console
import torch
from datasets import Dataset
from lightning.pytorch.loggers import TensorBoardLogger
from rich.console import Console
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from conftest import small_settings
from entente import console, escape
from entente.attention.record import CROSS, DECODER, ENCODER, AttentionMap
from entente.checkpoint import sizes_of
from entente.console import display
from entente.data.corpora import Corpus
from entente.data.module import TranslationData
from entente.data.tokenizer import Tokenizer, Vocabulary
from entente.decoding.translate import translate
from entente.escape import table
from entente.models.build import build
from entente.settings import (
    BatchSettings,
    CheckpointSettings,
    OptimSettings,
    RunSettings,
    SearchSettings,
    TrainerSettings,
    ViewsSettings,
)
from entente.training import views
from entente.training.run_directory import Checkpoints
from entente.training.trainer import TrainingProgress
from entente.training.translator import Translator
from entente.training.views import TensorBoardViews, attention_figures

SRC = ["Le chat noir dort.", "Il a faim | soif.", "Elle dort.", "Le chat a faim.", "Il dort *ici*."]
TGT = ["The black cat sleeps.", "He is hungry | thirsty.", "She sleeps.", "The cat is hungry.", "He sleeps *here*."]


def view(language: str = "fr", **changes: int) -> TensorBoardViews:
    """Returns a callback that logs only the given views, for example attention_every=4 or translations=2."""
    defaults = {"attention": "attention_every" in changes, "heads": 0, "translations": 0, "diagnosis": 0}
    return TensorBoardViews(ViewsSettings(**{**defaults, **changes}), language)


@pytest.fixture(scope="module")
def vocabulary() -> Vocabulary:
    return Vocabulary(Tokenizer.train(SRC * 3, 300), Tokenizer.train(TGT * 3, 300), joint=False)


def translator(
    vocabulary: Vocabulary, name: str = "transformer", max_steps: int = 8, patience: int | None = None, **search: Any
) -> Translator:
    settings = RunSettings(
        name="a",
        model=small_settings(name),
        optim=OptimSettings(warmup=2),
        search=SearchSettings(**{"length_factor": 0.2, "length_offset": 6, **search}),
        trainer=TrainerSettings(max_steps=max_steps, log_every=1, patience=patience),
    )
    return Translator(build(settings.model, sizes_of(vocabulary, seed=1)), vocabulary, settings, {})


def data_of(vocabulary: Vocabulary) -> TranslationData:
    """Returns data whose training and validation pairs are SRC and TGT."""
    split = Dataset.from_dict({"src": SRC, "tgt": TGT})
    return TranslationData(Corpus(split, split, {}), vocabulary, BatchSettings(max_tokens=60))


def fit(module: Translator, path: Path, *callbacks: L.Callback, **options: Any) -> L.Trainer:
    trainer = L.Trainer(
        accelerator="cpu",
        max_steps=module.settings.trainer.max_steps,
        max_epochs=-1,
        val_check_interval=4,
        check_val_every_n_epoch=None,
        log_every_n_steps=1,
        logger=TensorBoardLogger(path, name="", version=""),
        callbacks=[*callbacks],
        num_sanity_val_steps=0,
        enable_checkpointing=False,
        enable_model_summary=False,
        enable_progress_bar=False,
        **options,
    )
    trainer.fit(module, datamodule=data_of(module.vocabulary))
    return trainer


def events(path: Path) -> EventAccumulator:
    return EventAccumulator(str(path), size_guidance={"images": 0, "tensors": 0, "scalars": 0}).Reload()


def test_maps_are_of_the_modules_own_translation(vocabulary: Vocabulary, monkeypatch: pytest.MonkeyPatch) -> None:
    """Maps and captions show the cleaned source and the translation that the module's own search finds (here, beam search)."""
    module = translator(vocabulary, beam=3)
    captions, labels = [], []

    def draw(map: AttentionMap, caption: str) -> Any:
        captions.append(caption)
        labels.append((map.kind, map.rows, map.columns))
        return original(map, caption)

    original = views.draw
    monkeypatch.setattr(views, "draw", draw)
    figures = dict(attention_figures(module, [("chat", " Le chat\u00a0dort. ")]))
    assert figures.keys() == {f"weights/chat/{kind}" for kind in (ENCODER, DECODER, CROSS)}
    texts = [(figure, text) for figure in figures.values() for text in figure.axes[0].texts]
    assert min(text.get_fontsize() * figure.dpi / 72 for figure, text in texts) >= 7  # pixels, to be legible
    limit = {"length_factor": 1, "length_offset": views.MORE_PIECES}
    searches = (SearchSettings(beam=beam, **limit) for beam in (3, 1))
    [[best]], [[greedy]] = (translate(module.model, vocabulary, ["Le chat dort."], search) for search in searches)
    assert best.tokens != greedy.tokens, "the two searches give the same translation here; choose other sizes"
    source = vocabulary.src.pieces(vocabulary.encode_src(["Le chat dort."])[0])
    assert labels[0] == (ENCODER, source, source)
    assert labels[2] == (CROSS, [*vocabulary.tgt.pieces(best.tokens), "</s>"], source)
    assert set(captions) == {
        f"Le chat dort.  →  {vocabulary.tgt.decode(best.tokens)}" + ("" if best.ended else " (stopped at its length limit)")
    }
    assert captions[-1].endswith(" (stopped at its length limit)")
    assert [len(rows) for _, rows, _ in labels] == [len(source), *[len(source) + views.MORE_PIECES + 1] * 2]


def test_maps_skip_validations_but_never_the_last(vocabulary: Vocabulary, tmp_path: Path) -> None:
    saving = Checkpoints(tmp_path, CheckpointSettings())
    fit(translator(vocabulary, "birnn", max_steps=16), tmp_path / "a", view("xx", attention_every=7), saving)
    assert [image.step for image in events(tmp_path / "a").Images("weights/valid 1/alignment")] == [4, 12, 16]
    trainer = fit(translator(vocabulary, "birnn", max_steps=99, patience=3), tmp_path / "b", view("xx", attention_every=98))
    images = events(tmp_path / "b").Images("weights/valid 1/alignment")
    assert [image.step for image in images] == [4, trainer.global_step] and trainer.global_step < 96


@pytest.mark.parametrize("model", ["transformer", "birnn"])
def test_callbacks_do_not_change_training(
    model: str, vocabulary: Vocabulary, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(views, "FIXED_SENTENCES", {"fr": ()})  # only the map of the first validation pair is drawn
    weights = []
    views_of_all = view(attention_every=0, heads=2, translations=10, diagnosis=2)
    for name, callbacks in (("with", [views_of_all, TrainingProgress()]), ("without", [])):
        module = translator(vocabulary, model)
        fit(module, tmp_path / name, *callbacks)
        weights.append(module.state_dict())
    assert all(torch.equal(weights[0][key], weights[1][key]) for key in weights[1])


@pytest.mark.parametrize("text", ["a | b", "*a* __b__ `c`", "<b>x</b> & <script>", "[a](b)", "\\| \\*", "~~a~~", "|", "a\nb"])
def test_a_table_shows_its_text_unchanged(text: str) -> None:
    import html

    page = markdown.markdown(table(["x", "y"], [[escape.markdown(text), "z"]]), extensions=["tables"])
    cells = re.findall("<td>(.*?)</td>", page, re.DOTALL)
    assert [html.unescape(cell) for cell in cells] == [text.replace("\n", " "), "z"]
    assert not re.search("<(?!/?(table|thead|tbody|tr|th|td)>)", page), "there are tags other than the table's own"


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    """Makes the display write to a terminal, and returns what it has written."""
    screen = Console(file=io.StringIO(), force_terminal=True, force_interactive=True, width=110, color_system=None)
    monkeypatch.setattr(rich.console, "Console", lambda **_: screen)
    assert isinstance(screen.file, io.StringIO)
    return screen.file


@pytest.fixture(autouse=True)
def log_to_caplog(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """Makes our logger propagate to the root logger, which caplog reads. Another test may have disabled propagation."""
    monkeypatch.setattr(logging.getLogger("entente"), "propagate", True)
    monkeypatch.setattr(console, "SILENCE", 1e9)
    caplog.set_level(logging.INFO, "entente")


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == "entente" and "step" in record.getMessage()]


def test_progress_without_a_terminal(vocabulary: Vocabulary, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    saving = Checkpoints(tmp_path, CheckpointSettings())
    trainer = fit(translator(vocabulary, max_steps=13), tmp_path, saving, TrainingProgress())
    pattern = r"step (\d+)/13  epoch [\d.]+  loss [\d.]+  [\d,]+ tokens/s  NLL [\d.]+  BLEU .*?  \d:\d\d(, \d:\d\d left|$)"
    matches = [re.fullmatch(pattern, line) for line in lines(caplog)]
    assert [m and int(m[1]) for m in matches] == [4, 8, 12, 13], lines(caplog)  # after each validation
    assert ["left" in line for line in lines(caplog)] == [True] * 3 + [False]
    assert f"BLEU {trainer.lightning_module.bleu:.1f}" in lines(caplog)[-1]
    assert display.tasks == []


@pytest.mark.parametrize("error", [ZeroDivisionError, KeyboardInterrupt])
def test_the_display_ends_with_the_run(
    error: type[BaseException], vocabulary: Vocabulary, tmp_path: Path, terminal: io.StringIO
) -> None:
    class Raises(L.Callback):
        def on_train_batch_end(self, trainer: L.Trainer, *_: Any) -> None:
            if trainer.global_step == 5:
                raise error

    with pytest.raises((error, SystemExit)):
        fit(translator(vocabulary), tmp_path, TrainingProgress(), Raises())
    output = terminal.getvalue()
    assert "step 5/8" in output  # the last state
    assert output.rindex("\x1b[?25h") > output.rindex("\x1b[?25l")
    assert display.tasks == []


def test_progress_counts_optimiser_steps(vocabulary: Vocabulary, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    fit(translator(vocabulary, max_steps=6), tmp_path, TrainingProgress(), accumulate_grad_batches=3)
    steps = [int(line.split()[1].split("/")[0]) for line in lines(caplog)]
    assert steps == [1, 2, 4, 5], "validation runs after batches 4, 8, 12 and 16, but the lines count steps of 3 batches"


def test_the_best_bleu_is_shown_once_it_is_no_longer_reached(
    vocabulary: Vocabulary, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    module = translator(vocabulary, max_steps=4)
    module.best = (99.5, 0.0)
    fit(module, tmp_path, TrainingProgress())
    assert "(best 99.5)" in lines(caplog)[-1]
