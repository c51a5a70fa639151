"""Tests small but complete runs, from the configuration to the metrics, and the commands that load their checkpoints."""

import json
from pathlib import Path

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData

from bad_inputs import Result
from bad_inputs import run as run_command
from entente.ablation.runs import read_run
from entente.attention.alignment import links_agreement
from entente.data.alignments import read_pharaoh
from entente.files import read_yaml
from entente.recipe import USUAL, for_corpus
from entente.settings import CheckpointSettings, OptimSettings, SearchSettings, TrainerSettings
from entente.training import views
from entente.training.train import train
from entente.validation import flat
from tiny import SMALL, configuration, run_settings, write_corpus

CONFIGS = Path(__file__).parents[2] / "configs"
LR = {"transformer": 5e-3, "birnn": 1e-2}


def overrides_in(folder: Path) -> list[str]:
    """Writes a small corpus to a folder, and returns the overrides of a short run in this folder."""
    steps = ["trainer.max_steps=6", "trainer.validate_every=3", "trainer.log_every=1", "optim.warmup=2"]
    other = ["search.length_factor=0.5", "views.attention=false", "views.heads=0", "views.diagnosis=2"]
    return [*write_corpus(folder), f"output_dir={folder / 'outputs'}", *steps, *other]


def trained(base: list[str], model: str, *changes: str) -> Path:
    return train(run_settings([*base, f"model={model}", *SMALL[model], *changes]))


@pytest.fixture
def base(tmp_path: Path) -> list[str]:
    return overrides_in(tmp_path)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Trains a run of each model, and returns the directories of the runs by model. Tests must not change these directories."""
    base = overrides_in(tmp_path_factory.mktemp("runs"))
    return {model: trained(base, model, "data.batch.both_directions=1", "views.heads=32") for model in SMALL}


def command(line: str, folder: Path) -> Result:
    """Runs a command that must succeed."""
    result = run_command(line, folder)
    assert result.code == 0, result
    return result


def test_a_run_writes_all_its_files(base: list[str]) -> None:
    run = trained(base, "transformer", "views.attention=true", "trainer.validate_every=6", "trainer.accumulate=2")
    expected = ["config.yaml", "train.log", "checkpoints/best.ckpt", "checkpoints/step-6.ckpt", "metrics.json", "training.json"]
    assert [name for name in expected if not (run / name).is_file()] == []
    assert json.loads((run / "training.json").read_text())["steps"] == 6  # of two batches
    metrics = json.loads((run / "metrics.json").read_text())
    assert set(metrics) == {"valid", "test"}
    assert {"bleu", "chrf", "ter", "nll", "signature", "bleu_by_source_length"} <= set(metrics["test"])
    assert metrics["test"]["sentences"] == 29
    translations = (run / "translations" / "test.tsv").read_text(encoding="utf-8").splitlines()
    assert len(translations) == 1 + 29 and all(line.count("\t") == 2 for line in translations)

    events = EventAccumulator(str(run), size_guidance={"images": 0}).Reload()
    scalars, images = events.Tags()["scalars"], events.Tags()["images"]
    training = {f"train/{name}" for name in ("loss", "nll", "tokens_per_second", "lr")}
    assert {*training, "valid/bleu", "valid/chrf", "valid/nll", "when finished/test bleu"} <= set(scalars)
    assert {tag.partition("/")[0] for tag in scalars} == {"train", "valid", "when finished", "why"}
    assert [event.step for event in events.Scalars("valid/bleu")] == [6]
    for kind in ("encoder self-attention", "decoder masked self-attention", "cross-attention"):
        assert sum(tag.startswith("weights/") and tag.endswith(f"/{kind}") for tag in images) == 3, images
        assert f"weights/valid 1/{kind}" in images
    texts = {tag: events.Tensors(f"{tag}/text_summary") for tag in ("translations/valid", "scores/when finished")}
    assert [text.step for text in texts["translations/valid"]] == [6]
    assert [text.step for text in texts["scores/when finished"]] == [6]
    rows = texts["scores/when finished"][0].tensor_proto.string_val[0].decode().splitlines()
    numbers = [float(cell) for cell in rows[3].strip("|").split("|")[1:]]
    assert numbers == pytest.approx([metrics["test"][name] for name in ("sentences", "bleu", "chrf", "ter", "nll")], abs=0.005)
    assert events.summary_metadata["_hparams_/session_start_info"].plugin_data.plugin_name == "hparams"
    experiment = HParamsPluginData.FromString(events.summary_metadata["_hparams_/experiment"].plugin_data.content).experiment
    assert [info.name.tag for info in experiment.metric_infos] == [views.TEST_BLEU, views.VALID_BLEU]
    assert events.Scalars("when finished/test bleu")[-1].value == pytest.approx(metrics["test"]["bleu"])
    assert events.Scalars(views.VALID_BLEU)[-1].value == pytest.approx(metrics["valid"]["bleu"])


@pytest.mark.parametrize("model", sorted(SMALL))
def test_the_baseline_of_ablations_has_the_defaults_of_the_code(model: str) -> None:
    settings = run_settings([f"model={model}", "experiment=ablation_baseline"])
    assert (settings.optim, settings.checkpoint, settings.search) == (OptimSettings(), CheckpointSettings(), SearchSettings())
    assert settings.trainer == TrainerSettings() and settings.model == type(settings.model)()
    assert settings.optim.optimizer == "adam"


RECIPES = sorted(path.stem for path in CONFIGS.glob("recipe/*_*.yaml"))


@pytest.mark.parametrize("recipe", RECIPES)
def test_a_recipe_is_chosen_by_data_and_model_and_changes_what_it_says(recipe: str) -> None:
    data, _, model = recipe.rpartition("_")
    fast, baseline = (
        dict(flat(configuration("train", [f"data={data}", f"model={model}", *changes])))
        for changes in ([], ["experiment=ablation_baseline"])
    )
    settings = dict(flat({} if data == "grammar" else for_corpus(*USUAL)))
    for name in [recipe] if data == "grammar" else [f"multi30k_{model}", recipe]:
        settings |= flat(read_yaml(CONFIGS / "recipe" / f"{name}.yaml"))
    leaves = {key for key, value in settings.items() if key != "defaults" and not isinstance(value, dict)}
    assert {key for key in fast if fast[key] != baseline[key] and not isinstance(fast[key], dict)} == leaves


@pytest.mark.parametrize("model", sorted(SMALL))
def test_a_model_learns_to_translate_and_its_checkpoint_scores_the_same(base: list[str], model: str, tmp_path: Path) -> None:
    changes = ["trainer.max_steps=250", "trainer.validate_every=125", f"optim.lr={LR[model]}", "optim.warmup=20"]
    run = trained(base, model, *changes, "search.length_factor=1.5")
    metrics = json.loads((run / "metrics.json").read_text())
    assert metrics["test"]["bleu"] > 95
    command(f"evaluate checkpoint={run} trust_data=true split=all accelerator=cpu output=out", tmp_path)
    assert json.loads((tmp_path / "out" / "metrics.json").read_text()) == metrics
    logged = EventAccumulator(str(run)).Reload().Scalars("valid/bleu")
    assert max(e.value for e in logged) == pytest.approx(metrics["valid"]["bleu"], rel=1e-6)  # events are stored in float32

    (tmp_path / "in.txt").write_text("Le chat voit le chien.\n\nLe garçon entend l’oiseau.\n", encoding="utf-8")
    translate = f"translate checkpoint={run} input=in.txt accelerator=cpu"
    lines = command(translate, tmp_path).out.split("\n")
    assert lines[0] == "The cat sees the dog." and lines[1] == "" and lines[3:] == [""]
    rows = [line.split("\t") for line in command(f"{translate} search.n_best=3", tmp_path).out.splitlines()]
    assert [row[0] for row in rows] == ["1"] * 3 + ["2"] + ["3"] * 3
    scores = [float(row[1]) for row in rows[:3]]
    assert scores == sorted(scores, reverse=True) and rows[0][2] == "The cat sees the dog."


def test_training_text_is_scored_in_the_direction_of_the_model(runs: dict[str, Path], tmp_path: Path) -> None:
    command(f"evaluate checkpoint={runs['birnn']} split=train trust_data=true output=out", tmp_path)
    assert json.loads((tmp_path / "out" / "metrics.json").read_text())["train"]["sentences"] == 211


def test_overfit_memorises_one_batch(base: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    changes = ["overfit=true", "trainer.max_steps=150", "trainer.validate_every=150"]
    changes += ["optim.lr=1e-2", "data.batch.max_tokens=90"]
    run = trained(base, "transformer", *changes)
    [(split, scores)] = json.loads((run / "metrics.json").read_text()).items()  # one split, since all splits are the same batch
    assert (split, scores["bleu"]) == ("valid", pytest.approx(100)) and scores["sentences"] < 23
    assert "overfit=true: memorising one batch" in capsys.readouterr().out


def test_debug_runs_two_batches_of_everything(base: list[str]) -> None:
    of_the_data = [override for override in base if not override.startswith(("trainer.", "optim."))]
    run = trained(of_the_data, "birnn", "trainer=debug", "data.batch.eval_max_tokens=60", "trainer.accelerator=cpu")
    assert run.name.endswith("-debug")  # a debug run must not take the name of a real run
    assert json.loads((run / "training.json").read_text())["steps"] == 2
    assert 0 < json.loads((run / "metrics.json").read_text())["valid"]["sentences"] < 23


def test_a_run_of_mixed_precision_trains_and_validates(base: list[str]) -> None:
    run = trained(base, "transformer", "trainer.precision=bf16-mixed")
    assert json.loads((run / "training.json").read_text())["steps"] == 6


def test_all_attention_of_a_checkpoint_becomes_pictures(runs: dict[str, Path], tmp_path: Path) -> None:
    """For each kind of attention, the command draws all heads, as PNG and as SVG."""
    for model, names in (("transformer", ["cross", "decoder", "encoder"]), ("birnn", ["alignment"])):
        (folder := tmp_path / f"{model}.maps").mkdir()  # not a picture, in spite of its suffix
        attention = f"attention checkpoint={runs[model]} sentence='Le chat voit le chien.'"
        command(f"{attention} output={folder}", tmp_path)
        [pictures] = folder.iterdir()
        expected = sorted(f"{name}.{kind}" for name in names for kind in ("png", "svg"))
        assert sorted(path.name for path in pictures.iterdir()) == expected
        text = (pictures / f"{names[0]}.svg").read_text()
        assert "chien" in text and "<svg" in text
        command(f"{attention} output={folder} kind={names[0]} words=true target='The bird seeks the horse.' head=1", tmp_path)
        [of_words] = {*folder.iterdir()} - {pictures}
        text = (of_words / f"{names[0]}-head1.svg").read_text()
        assert "given, not translated: The bird" in text and "<!-- seeks -->" in text
        for mistake in ("layer=2", "head=3"):
            result = run_command(f"{attention} output={folder} {mistake}", tmp_path)
            assert result.code == 2 and f"error: {mistake}: choose from 1 to" in result.err
    result = run_command(f"{attention} kind=cross", tmp_path)
    assert result.err == "error: kind=cross: this model has alignment; choose one of these\n"


@pytest.mark.parametrize("model", ["transformer", "birnn"])
def test_attention_is_measured_against_a_users_own_links(model: str, runs: dict[str, Path], tmp_path: Path) -> None:
    """The command writes the links of the best head to a file, and reports their alignment error rate."""
    for side, text in (("fr", "Le chat voit le chien .\nLe chat suit le garçon .\n"), ("en", "The cat sees .\nThe boy .\n")):
        (tmp_path / side).write_text(text)
    (tmp_path / "gold").write_text("0-0 1-1 2?2 5-3\n0?0 4-1 5-2\n")
    line = f"evaluate checkpoint={runs[model]} src=fr tgt=en alignments=gold attention=true occlusion=2 output=out"
    output = " ".join(command(line, tmp_path).out.split())
    report = json.loads((tmp_path / "out/metrics.json").read_text())["fr"]["attention"]
    kinds = {"alignment"}
    if model == "transformer":
        kinds = {"encoder self-attention", "decoder masked self-attention", "cross-attention"}
    assert set(report) == {*kinds, "word_alignment", "occlusion"}
    alignment = report["word_alignment"]
    assert alignment["oracle"]["aer"] == 0 and len(alignment["heads"]) == (6 if model == "transformer" else 2)
    written = (tmp_path / "out/alignments/fr.pharaoh").read_text().splitlines()
    links = [[tuple(map(int, link.split("-"))) for link in line.split()] for line in written]
    texts = [(tmp_path / side).read_text().splitlines() for side in ("fr", "en")]
    agreement = links_agreement(zip(links, read_pharaoh(tmp_path / "gold", *texts), strict=True))
    assert agreement.aer == pytest.approx(alignment["best"]["aer"])
    for words in ("oracle", "attention of each head", "these sentences themselves", "same_first"):
        assert words in output, output[-3000:]


def test_every_head_is_measured_at_each_validation(runs: dict[str, Path]) -> None:
    """A Transformer logs a picture of its heads. A BiRNN logs the measures of its only head."""
    numbers = {f"{aspect} alignment" for aspect in ("entropy", "end", "punctuation", "diagonal")}
    for model, expected, pictures in (("transformer", set(), ["weights/valid heads"]), ("birnn", numbers, [])):
        events = EventAccumulator(str(runs[model]), size_guidance={"scalars": 0, "images": 0}).Reload()
        tags = [tag for tag in events.Tags()["scalars"] if tag.startswith("weights/")]
        assert set(tags) == {f"weights/valid {name}" for name in expected}
        assert events.Tags()["images"] == pictures
        logged = [*map(events.Scalars, tags), *map(events.Images, pictures)]
        assert all([event.step for event in curve] == [3, 6] for curve in logged)


@pytest.mark.parametrize("model", SMALL)
def test_the_diagnosis_is_logged(runs: dict[str, Path], model: str) -> None:
    """The diagnosis is logged at step 1 and every 2 steps."""
    curves = {tag: points for tag, points in read_run(runs[model]).history.items() if tag.startswith("why/")}
    assert curves and all([step for step, _ in points] == [1, 2, 4, 6] for points in curves.values())
    places = {tag: points for tag, points in curves.items() if tag.count("/") == 2}
    aspects = {tag.split("/")[1] for tag in places}
    sublayer_aspects = {"update_ratio", "update_cosine", "position_cosine"} if model == "transformer" else set()
    assert aspects == {"gradient_norm", "attention_entropy", "score_variance", "source_effect"} | sublayer_aspects
    for aspect in aspects:
        lines = [[value for _, value in points] for tag, points in places.items() if tag.split("/")[1] == aspect]
        for word, end in (("smallest", min), ("largest", max)):
            values = [value for _, value in curves[f"why/{aspect} {word}"]]
            assert values == [end(column) for column in zip(*lines, strict=True)]
