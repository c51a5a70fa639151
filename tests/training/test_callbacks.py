"""Tests, with a real trainer, what the callbacks write to TensorBoard, to the log and to the terminal."""

import io
import logging
import re
import time
from pathlib import Path
from typing import Any

import lightning as L
import markdown
import pytest
import torch
from datasets import Dataset
from entente.console.escape import table
from entente.console.log import display
from lightning.pytorch.callbacks import EarlyStopping
from lightning.pytorch.loggers import TensorBoardLogger
from PIL import Image
from rich.console import Console
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from entente.attention.alignment import word_spans
from entente.attention.numbers import measure, pairs_of
from entente.attention.record import CROSS, DECODER, ENCODER, AttentionMap
from entente.console import escape
from entente.console import log as console_log
from entente.data.alignments import Gold
from entente.data.corpora import Corpus
from entente.data.module import TranslationData
from entente.data.tokenizer import PAD, Tokenizer, Vocabulary
from entente.decoding.search import Search
from entente.decoding.translate import translate
from entente.models import MODELS
from entente.training import views
from entente.training.progress import TrainingProgress
from entente.training.run_directory import Checkpoints, CheckpointSettings
from entente.training.translator import Optim, Translator
from entente.training.views import TensorBoardViews, Views, attention_figures

SRC = ["Le chat noir dort.", "Il a faim | soif.", "Elle dort.", "Le chat a faim.", "Il dort *ici*."]
TGT = ["The black cat sleeps.", "He is hungry | thirsty.", "She sleeps.", "The cat is hungry.", "He sleeps *here*."]
FIXED = ["Le chat dort.", "Elle a faim."]


def view(fixed: list[str] = FIXED, **chosen: int) -> TensorBoardViews:
    """Returns a callback that logs only the views in `chosen`, for example attention_every=4 or translations=2."""
    given = {"attention": "attention_every" in chosen, "heads": 0, "translations": 0, "diagnosis": 0, **chosen}
    return TensorBoardViews(Views(**given), fixed)


@pytest.fixture(scope="module")
def vocabulary() -> Vocabulary:
    return Vocabulary(Tokenizer.train(SRC * 3, 300), Tokenizer.train(TGT * 3, 300), joint=False)


def translator(vocabulary: Vocabulary, name: str = "transformer", max_steps: int = 8, **search: Any) -> Translator:
    sizes = (12, 2, 3, 20) if name == "transformer" else (12, 10, 14)
    model = MODELS[name](len(vocabulary.src), len(vocabulary.tgt), False, PAD, 1, *sizes)
    return Translator(model, vocabulary, Optim(warmup=2), Search(length_factor=0.2, length_offset=6, **search), max_steps, 1)


def fit(module: Translator, path: Path, *chosen: L.Callback, **options: Any) -> L.Trainer:
    split = Dataset.from_dict({"src": SRC, "tgt": TGT})
    trainer = L.Trainer(
        accelerator="cpu",
        max_steps=module.max_steps,
        max_epochs=-1,
        val_check_interval=4,
        check_val_every_n_epoch=None,
        log_every_n_steps=1,
        logger=TensorBoardLogger(path, name="", version=""),
        callbacks=[*chosen],
        num_sanity_val_steps=0,
        enable_checkpointing=False,
        enable_model_summary=False,
        enable_progress_bar=False,
        **options,
    )
    trainer.fit(module, datamodule=TranslationData(Corpus(split, split, {}), module.vocabulary, 60, 1))
    return trainer


def events(path: Path) -> EventAccumulator:
    accumulator = EventAccumulator(str(path), size_guidance={"images": 0, "tensors": 0, "scalars": 0})
    accumulator.Reload()
    return accumulator


class Raises(L.Callback):
    """Raises `error` after step 5."""

    def __init__(self, error: type[BaseException]) -> None:
        self.error = error

    def on_train_batch_end(self, trainer: L.Trainer, *_: Any) -> None:
        if trainer.global_step == 5:
            raise self.error


@pytest.mark.parametrize(
    ("name", "kinds"),
    [
        ("transformer", ["encoder self-attention", "decoder masked self-attention", "cross-attention"]),
        ("birnn", ["alignment"]),
    ],
)
def test_attention_maps_of_every_sentence_and_kind(name: str, kinds: list[str], vocabulary: Vocabulary, tmp_path: Path) -> None:
    fit(translator(vocabulary, name), tmp_path, view(attention_every=0))
    written = events(tmp_path)
    tags = {f"weights/{title}/{kind}" for kind in kinds for title in (*FIXED, "valid 1")}
    assert set(written.Tags()["images"]) == tags
    for tag in tags:
        images = written.Images(tag)
        assert [image.step for image in images] == [4, 8]
        pixels = Image.open(io.BytesIO(images[-1].encoded_image_string))
        assert (pixels.width, pixels.height) == (images[-1].width, images[-1].height) and pixels.width > 400
        assert len(set(pixels.get_flattened_data())) > 20


def test_maps_are_of_the_modules_own_translation(vocabulary: Vocabulary, monkeypatch: pytest.MonkeyPatch) -> None:
    """Maps and captions show the cleaned source and the translation that the module's own search finds (here, beam search)."""
    module = translator(vocabulary, beam=3)
    captions, rows = [], []

    def draw(map: AttentionMap, caption: str) -> Any:
        captions.append(caption)
        rows.append((map.kind, map.rows, map.columns))
        return plain(map, caption)

    plain = views.draw
    monkeypatch.setattr(views, "draw", draw)
    assert len(list(attention_figures(module, [("chat", " Le chat\u00a0dort. ")]))) == 3
    [[best]], [[greedy]] = (translate(module.model, vocabulary, ["Le chat dort."], how) for how in (module.search, Search()))
    assert best.tokens != greedy.tokens, "the two searches give the same translation here; choose other sizes"
    source = vocabulary.src.pieces(vocabulary.encode_src(["Le chat dort."])[0])
    assert rows[0] == ("encoder self-attention", source, source)
    assert rows[2] == ("cross-attention", [*vocabulary.tgt.pieces(best.tokens), "</s>"], source)
    assert set(captions) == {
        f"Le chat dort.  →  {vocabulary.tgt.decode(best.tokens)}" + ("" if best.ended else " (stopped at its length limit)")
    }


def test_maps_skip_validations_but_never_the_last(vocabulary: Vocabulary, tmp_path: Path) -> None:
    saving = Checkpoints(tmp_path, CheckpointSettings())
    fit(translator(vocabulary, "birnn", max_steps=16), tmp_path, view(FIXED[:1], attention_every=7), saving)
    assert [image.step for image in events(tmp_path).Images(f"weights/{FIXED[0]}/alignment")] == [4, 12, 16]


def test_maps_are_also_drawn_when_training_stops_early(vocabulary: Vocabulary, tmp_path: Path) -> None:
    module = translator(vocabulary, "birnn", max_steps=99)
    trainer = fit(module, tmp_path, EarlyStopping("valid/bleu", mode="max"), view([], attention_every=98))
    images = events(tmp_path).Images("weights/valid 1/alignment")
    assert [image.step for image in images] == [4, trainer.global_step] and trainer.global_step < 96


@pytest.mark.parametrize("name", ["transformer", "birnn"])
def test_with_gold_links_the_best_head_has_an_error_rate(
    name: str, vocabulary: Vocabulary, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    split, links = Dataset.from_dict({"src": SRC, "tgt": TGT}), frozenset({(0, 0), (1, 1)})
    gold = [Gold(word_spans(src), word_spans(tgt), links, links) for src, tgt in zip(SRC, TGT, strict=True)]
    data = TranslationData(Corpus(split, split, {}, gold={"valid": gold}), vocabulary, 60, 1)
    drawn: list[Any] = []
    plain = views.draw_heads
    monkeypatch.setattr(views, "draw_heads", lambda values, title: drawn.append((values, title)) or plain(values, title))
    board, module = TensorBoardLogger(tmp_path, name="", version=""), translator(vocabulary, name)
    views.log_heads(board, module, data, 99, 7)
    board.save()
    _, alignments = measure(module.model, vocabulary, pairs_of(data, "valid"))
    expected = min(alignments.agreement(h).aer for h in alignments.heads() if h.step == "produced" and h.head is not None)
    [shown] = events(tmp_path).Scalars("weights/valid aer best head")
    assert (shown.step, shown.value) == (7, pytest.approx(expected))
    assert len(drawn) == (name == "transformer")
    for values, title in drawn:
        assert "5 validation sentences" in title
        assert {kind: "aer" in found for kind, found in values.items()} == {ENCODER: False, DECODER: False, CROSS: True}
        assert float(values[CROSS]["aer"].min()) == pytest.approx(expected)


def test_maps_do_not_change_training(vocabulary: Vocabulary, tmp_path: Path) -> None:
    weights = []
    for name, chosen in (("with", [view(attention_every=0, heads=2, translations=10), TrainingProgress()]), ("without", [])):
        module = translator(vocabulary)
        torch.manual_seed(1)
        fit(module, tmp_path / name, *chosen)
        weights.append(module.state_dict())
    assert all(torch.equal(weights[0][key], weights[1][key]) for key in weights[1])


def test_sample_translations(vocabulary: Vocabulary, tmp_path: Path) -> None:
    module = translator(vocabulary)
    fit(module, tmp_path, view(translations=2))
    written = events(tmp_path)
    [tag] = written.Tags()["tensors"]
    assert tag == "translations/valid/text_summary"
    assert [event.step for event in written.Tensors(tag)] == [4, 8]
    text = written.Tensors(tag)[-1].tensor_proto.string_val[0].decode()
    assert text.splitlines()[:2] == ["| source | reference | translation |", "| --- | --- | --- |"]
    assert len(text.splitlines()) == 4
    cells = re.findall("<td>(.*?)</td>", markdown.markdown(text, extensions=["markdown.extensions.tables"]))
    assert cells[:2] == [SRC[0], TGT[0]] and len(cells) == 6
    assert module.valid
    first = escape.markdown(module.valid.hypotheses[0])
    shown = markdown.markdown(table(["translation"], [[first]]), extensions=["tables"])
    assert f"<td>{cells[2]}</td>" in shown


@pytest.mark.parametrize("text", ["a | b", "*a* __b__ `c`", "<b>x</b> & <script>", "[a](b)", "\\| \\*", "~~a~~", "|", "a\nb"])
def test_a_table_shows_its_text_unchanged(text: str) -> None:
    import html

    shown = markdown.markdown(table(["x", "y"], [[escape.markdown(text), "z"]]), extensions=["tables"])
    cells = re.findall("<td>(.*?)</td>", shown, re.DOTALL)
    assert [html.unescape(cell) for cell in cells] == [text.replace("\n", " "), "z"]
    assert not re.search("<(?!/?(table|thead|tbody|tr|th|td)>)", shown), "there are tags other than the table's own"


def terminal() -> Console:
    return Console(file=io.StringIO(), force_terminal=True, force_interactive=True, width=110, color_system=None)


def output(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


@pytest.fixture(autouse=True)
def log_to_caplog(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """Makes our logger propagate to the root logger, which caplog reads. Another test may have disabled propagation."""
    monkeypatch.setattr(logging.getLogger("entente"), "propagate", True)
    caplog.set_level(logging.INFO, "entente")


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == "entente" and "step" in record.getMessage()]


def test_progress_without_a_terminal(vocabulary: Vocabulary, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    trainer = fit(translator(vocabulary, max_steps=13), tmp_path, TrainingProgress())
    pattern = r"step (\d+)/13  loss [\d.]+  [\d,]+ tokens/s  BLEU .*?  \d:\d\d, \d:\d\d left"
    found = [re.fullmatch(pattern, line) for line in lines(caplog)]
    assert [m and int(m[1]) for m in found] == [4, 8, 12, 13], lines(caplog)  # after each validation, and at the end
    assert f"BLEU {float(trainer.callback_metrics['valid/bleu']):.1f}" in lines(caplog)[-1]
    assert display.tasks == []


def test_progress_counts_optimiser_steps(vocabulary: Vocabulary, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    fit(translator(vocabulary, max_steps=6), tmp_path, TrainingProgress(), accumulate_grad_batches=3)
    steps = [int(x.split()[1].split("/")[0]) for x in lines(caplog)]
    assert steps == [1, 2, 4, 5, 6], "validation runs after batches 4, 8, 12 and 16, but the lines count steps of 3 batches"


def test_progress_on_a_terminal(
    vocabulary: Vocabulary, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    console = terminal()
    monkeypatch.setattr(console_log, "Console", lambda **_: console)
    fit(translator(vocabulary, max_steps=20), tmp_path, TrainingProgress(), limit_val_batches=1)
    shown = output(console)
    assert shown.count("\x1b[?25l") == shown.count("\x1b[?25h") > 0, "the cursor is not shown again"
    assert "BLEU" in shown and " left" in shown
    drawn = [int(x) for x in re.findall(r"step (\d+)/20", shown)]
    assert drawn == sorted(drawn) and drawn[0] == 0 and drawn[-1] == 20
    assert [x.split()[1] for x in lines(caplog)] == ["4/20", "8/20", "12/20", "16/20", "20/20"]


@pytest.mark.parametrize("error", [ZeroDivisionError, KeyboardInterrupt])
def test_the_display_ends_with_the_run(
    error: type[BaseException], vocabulary: Vocabulary, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    console = terminal()
    monkeypatch.setattr(console_log, "Console", lambda **_: console)
    with pytest.raises((error, SystemExit)):
        fit(translator(vocabulary), tmp_path, TrainingProgress(), Raises(error))
    shown = output(console)
    assert "step 4/8" in shown
    assert shown.rindex("\x1b[?25h") > shown.rindex("\x1b[?25l")
    assert display.tasks == []


def test_best_bleu_survives_a_resume(vocabulary: Vocabulary, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    progress = TrainingProgress()
    progress.load_state_dict({"bleu": 50.0, "best": 99.5})
    fit(translator(vocabulary, max_steps=4), tmp_path, progress)
    assert "(best 99.5)" in lines(caplog)[-1]
    assert progress.state_dict()["best"] == 99.5


def test_the_time_of_training_ends_with_training(
    vocabulary: Vocabulary, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The recorded training time does not include the final evaluation."""
    saving = Checkpoints(tmp_path, CheckpointSettings())
    fit(translator(vocabulary, max_steps=2), tmp_path, saving)
    trained = saving.seconds
    monkeypatch.setattr(time, "perf_counter", lambda: 1e9)
    assert 0 < trained == saving.seconds


def test_without_tensorboard_nothing_is_decoded_or_drawn(
    vocabulary: Vocabulary, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(views, "attention_figures", lambda *_: pytest.fail("a map is drawn but not written"))
    trainer = L.Trainer(accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False)
    view(attention_every=0, heads=2, translations=10).on_validation_end(trainer, translator(vocabulary))
