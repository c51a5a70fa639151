"""Tests small but complete runs, from the configuration to the metrics, and the commands that load their checkpoints."""

import json
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from matplotlib import image
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData

from entente import checkpoint
from entente.attention.alignment import links_agreement
from entente.commands.attention import Attention, picture_attention
from entente.commands.evaluate import Evaluate, evaluate_checkpoint
from entente.commands.translate import Translate, translate_text
from entente.config.schema import defaults, fill, flat
from entente.data.alignments import read_pharaoh
from entente.errors import InputError
from entente.files import read_yaml
from entente.models import MODELS
from entente.training.optimiser import Optim
from entente.training.run_directory import new_run_directory
from entente.training.settings import PARTS
from entente.training.train import check_run, train
from tiny import SMALL, configuration, write_corpus

CONFIGS = Path(__file__).parents[2] / "configs"
ABLATED = {"baseline": [], "no_warmup": ["ablation=no_warmup"]}
LR = {"transformer": 5e-3, "birnn": 1e-2}


def settings(kind: type[Any], overrides: list[str]) -> Any:
    return fill(kind, "", configuration(kind.__name__.lower(), overrides))


def overrides_in(folder: Path) -> list[str]:
    """Writes a small corpus to a folder, and returns the overrides of a short run in this folder."""
    return [
        *write_corpus(folder),
        f"output_dir={folder / 'outputs'}",
        "trainer.accelerator=cpu",
        "trainer.max_steps=6",
        "trainer.validate_every=3",
        "trainer.log_every=1",
        "optim.warmup=2",
        "search.length_factor=0.5",
        "views.attention=false",
    ]


def trained(base: list[str], model: str, *more: str) -> Path:
    return train(configuration("train", [*base, f"model={model}", *SMALL[model], *more]))


@pytest.fixture
def base(tmp_path: Path) -> list[str]:
    return overrides_in(tmp_path)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Trains a run of each model, and returns the directories of the runs by model. Tests must not change these directories."""
    base = overrides_in(tmp_path_factory.mktemp("runs"))
    both = ["data.batch.both_directions=1", "~data.batch.eval_max_tokens"]  # the second setting has its default
    return {model: trained(base, model, *both) for model in SMALL}


def test_a_run_writes_all_its_files(base: list[str]) -> None:
    run = trained(base, "transformer", "views.attention=true", "trainer.validate_every=6")
    expected = ["config.yaml", "train.log", "checkpoints/best.ckpt", "checkpoints/step-6.ckpt", "metrics.json", "training.json"]
    assert [name for name in expected if not (run / name).is_file()] == []
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
    assert {tag.partition("/")[0] for tag in scalars} == {"train", "valid", "weights", "when finished", "why"}
    assert [e.step for e in events.Scalars("valid/bleu")] == [6]
    for kind in ("encoder self-attention", "decoder masked self-attention", "cross-attention"):
        assert sum(tag.startswith("weights/") and tag.endswith(f"/{kind}") for tag in images) == 3, images
        assert f"weights/valid 1/{kind}" in images
    texts = {tag: events.Tensors(f"{tag}/text_summary") for tag in ("translations/valid", "scores/when finished")}
    assert [text.step for text in texts["translations/valid"]] == [6]
    assert [text.step for text in texts["scores/when finished"]] == [7]
    rows = texts["scores/when finished"][0].tensor_proto.string_val[0].decode().splitlines()
    assert rows[0] == "| split | sentences | BLEU | chrF | TER | NLL |" and len(rows) == 2 + len(metrics)
    numbers = [float(cell) for cell in rows[3].strip("|").split("|")[1:]]
    assert numbers == pytest.approx([metrics["test"][name] for name in ("sentences", "bleu", "chrf", "ter", "nll")], abs=0.005)
    assert events.summary_metadata["_hparams_/session_start_info"].plugin_data.plugin_name == "hparams"
    experiment = HParamsPluginData.FromString(events.summary_metadata["_hparams_/experiment"].plugin_data.content).experiment
    assert [info.name.tag for info in experiment.metric_infos] == ["when finished/test bleu"]
    assert {"model.d_model", "optim.warmup"} <= {info.name for info in experiment.hparam_infos if not info.differs}
    assert events.Scalars("when finished/test bleu")[-1].value == pytest.approx(metrics["test"]["bleu"])


# Maps the override that chooses a schedule to its published learning rate after warm-up, divided by the peak, as a function of
# the step (from 0) and the number of steps. The cosine schedule is from Loshchilov & Hutter 2017.
DECAYS: dict[str, Callable[[int, int], float]] = {
    "optim.schedule=cosine": lambda step, steps: (1 + math.cos(math.pi * (step - 200) / (steps - 200))) / 2,
    "optim.schedule=inverse_sqrt": lambda step, steps: 200**0.5 * (step + 1) ** -0.5,  # Vaswani et al. 2017, section 5.3
    "experiment=transformer_base": lambda step, steps: 4000**0.5 * (step + 1) ** -0.5,
    "experiment=multi30k_baseline": lambda step, steps: (1 + math.cos(math.pi * (step - 400) / (steps - 400))) / 2,
    "experiment=multi30k_transformer": lambda step, steps: (steps - step) / (steps - 100),
    "experiment=multi30k_birnn": lambda step, steps: (1 + math.cos(math.pi * (step - 400) / (steps - 400))) / 2,
}


@pytest.mark.parametrize("chosen", DECAYS)
def test_without_warm_up_only_the_rates_of_the_warm_up_change(chosen: str) -> None:
    choice = [
        chosen,
        *["experiment=ablation_baseline"] * ("experiment" not in chosen),
        "trainer.max_steps=5003",
        "++data.root=.",
    ]
    settings = {name: configuration("train", [*choice, *more])["optim"] for name, more in ABLATED.items()}
    assert [key for key in settings["baseline"] if settings["baseline"][key] != settings["no_warmup"][key]] == ["warmup"]
    warmup = settings["baseline"]["warmup"]
    rates = {name: [Optim(**values).factor(step, 5003) for step in range(5003)] for name, values in settings.items()}
    assert rates["baseline"][:warmup] == pytest.approx([(step + 1) / warmup for step in range(warmup)])
    assert rates["no_warmup"][:warmup] == [1.0] * warmup
    assert rates["no_warmup"][warmup:] == rates["baseline"][warmup:]
    assert rates["baseline"][warmup:] == pytest.approx([DECAYS[chosen](step, 5003) for step in range(warmup, 5003)])


@pytest.mark.parametrize("schedule", ["cosine", "linear", "inverse_sqrt", "constant"])
@pytest.mark.parametrize("decay_from", [1, 7, 300])
def test_only_a_warm_up_longer_than_decay_from_postpones_the_decay(schedule: Any, decay_from: int) -> None:
    def rates(warmup: int, decay_from: int) -> list[float]:
        optim = Optim(warmup=warmup, schedule=schedule, decay_from=decay_from)
        return [optim.factor(step, 307) for step in range(307)]

    without = rates(0, decay_from)
    assert without[0] == 1 and without == sorted(without, reverse=True) and without[-1] > 0
    for warmup in {1, decay_from // 2, decay_from}:
        assert rates(warmup, decay_from)[warmup:] == without[warmup:]
    assert rates(decay_from + 3, decay_from) == rates(decay_from + 3, decay_from + 3)


def leaves(config: object) -> dict[str, object]:
    return {key: value for key, value in flat(config) if not isinstance(value, Mapping)}


@pytest.mark.parametrize("model", sorted(SMALL))
def test_the_baseline_of_ablations_has_the_defaults_of_the_code(model: str) -> None:
    config = configuration("train", [f"model={model}", "experiment=ablation_baseline"])
    for part, kind in {**PARTS, "model": MODELS[model]}.items():
        expected = {key: [*value] if isinstance(value, tuple) else value for key, value in defaults(kind).items()}
        assert {key: value for key, value in config[part].items() if key != "name"} == expected, part
    assert config["optim"]["optimizer"] == "adam"


RECIPES = sorted(path.stem for path in CONFIGS.glob("experiment/recipe/*.yaml"))


@pytest.mark.parametrize("recipe", RECIPES)
def test_a_recipe_is_chosen_by_data_and_model_and_changes_what_it_says(recipe: str) -> None:
    _, data, model = recipe.split("_")
    fast, usual = (
        leaves(configuration("train", [f"data={data}", f"model={model}", *more]))
        for more in ([], ["experiment=ablation_baseline"])
    )
    changed = {key for key in fast if fast[key] != usual[key]}
    assert changed == leaves(read_yaml(CONFIGS / "experiment" / "recipe" / f"{recipe}.yaml")).keys()


@pytest.mark.parametrize("model", sorted(SMALL))
def test_the_same_seed_gives_the_same_weights_and_another_one_does_not(base: list[str], model: str) -> None:
    states = []
    for seed in (3, 3, 4):
        run = trained(base, model, f"seed={seed}")
        states.append(torch.load(run / "checkpoints" / "step-6.ckpt", weights_only=True)["state_dict"])
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])
    assert not all(torch.equal(states[0][name], states[2][name]) for name in states[0])


@pytest.mark.parametrize("model", sorted(SMALL))
def test_a_model_learns_to_translate_and_its_checkpoint_scores_the_same(
    base: list[str], model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    more = ["trainer.max_steps=400", "trainer.validate_every=200", f"optim.lr={LR[model]}", "optim.warmup=20"]
    run = trained(base, model, *more, "search.length_factor=1.5")
    metrics = json.loads((run / "metrics.json").read_text())
    assert metrics["test"]["bleu"] > 95

    monkeypatch.chdir(tmp_path)  # the checkpoint is found and loaded from any working directory
    again = evaluate_checkpoint(
        settings(
            Evaluate,
            [f"checkpoint={run}", "trust_data=true", "split=all", "accelerator=cpu", f"output={tmp_path / 'out'}"],
        )
    )
    assert again == metrics
    assert json.loads((tmp_path / "out" / "metrics.json").read_text()) == metrics
    logged = EventAccumulator(str(run)).Reload().Scalars("valid/bleu")
    assert max(e.value for e in logged) == pytest.approx(metrics["valid"]["bleu"], rel=1e-6)  # events are stored in float32

    source = tmp_path / "in.txt"
    source.write_text("Le chat voit le chien.\n\nLe garçon entend l’oiseau.\n", encoding="utf-8")
    arguments = [f"checkpoint={run}", f"input={source}", "accelerator=cpu"]
    capsys.readouterr()
    translate_text(settings(Translate, arguments))
    lines = capsys.readouterr().out.split("\n")
    assert lines[0] == "The cat sees the dog." and lines[1] == "" and lines[3:] == [""]
    translate_text(settings(Translate, [*arguments, "search.n_best=3"]))
    rows = [line.split("\t") for line in capsys.readouterr().out.splitlines()]
    assert [row[0] for row in rows] == ["1"] * 3 + ["2"] + ["3"] * 3
    scores = [float(row[1]) for row in rows[:3]]
    assert scores == sorted(scores, reverse=True) and rows[0][2] == "The cat sees the dog."


def test_training_text_is_scored_in_the_direction_of_the_model(runs: dict[str, Path]) -> None:
    metrics = evaluate_checkpoint(settings(Evaluate, [f"checkpoint={runs['birnn']}", "split=train", "trust_data=true"]))
    assert metrics["train"]["sentences"] == 211


def test_a_second_run_of_one_name_has_a_directory_of_its_own(base: list[str]) -> None:
    first = trained(base, "birnn")
    before = {path: path.read_bytes() for path in first.rglob("*") if path.is_file()}
    second = trained(base, "birnn")
    assert second.name == first.name + "-2"
    assert {path: path.read_bytes() for path in first.rglob("*") if path.is_file()} == before


def test_a_name_that_is_too_long_leaves_nothing_behind(base: list[str], tmp_path: Path) -> None:
    with pytest.raises(InputError, match="give the name of a folder"):
        trained(base, "birnn", f"name={'x' * 300}")
    assert not (tmp_path / "outputs").exists()
    with pytest.raises(InputError, match="cannot create a directory with this name"):
        new_run_directory(tmp_path / "outputs", "x" * 300, {})
    assert not (tmp_path / "outputs").exists()


def test_overfit_memorises_one_batch(base: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    more = ["overfit=true", "trainer.max_steps=150", "trainer.validate_every=150", "optim.lr=1e-2", "data.batch.max_tokens=90"]
    run = trained(base, "transformer", *more)
    [(split, scores)] = json.loads((run / "metrics.json").read_text()).items()  # one split, since all splits are the same batch
    assert (split, scores["bleu"]) == ("valid", pytest.approx(100)) and scores["sentences"] < 23
    assert f"overfit=true: memorising one batch of {scores['sentences']} pairs" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("experiment", "name", "steps"),
    [
        ("multi30k_transformer", "transformer-multi30k", 4000),
        ("multi30k_best", "transformer-multi30k-best", 7500),
        ("multi30k_birnn", "birnn-multi30k", 3500),
    ],
)
@pytest.mark.parametrize(("src", "tgt"), [("fr", "en"), ("en", "fr")])
def test_a_multi30k_experiment_needs_only_a_folder(experiment: str, name: str, steps: int, src: str, tgt: str) -> None:
    overrides = [f"experiment={experiment}", f"data.src={src}", f"data.tgt={tgt}"]
    config = configuration("train", [*overrides, "data.root=somewhere"])
    assert config["name"] == f"baseline-{name}-{src}-{tgt}-seed1"
    assert (config["data"]["name"], config["data"]["tests"]) == ("multi30k", ["test_2016_flickr"])
    assert (config["model"]["name"], config["trainer"]["max_steps"]) == (name.partition("-")[0], steps)
    assert check_run(config) == []


@pytest.mark.parametrize(
    "choice", [[], ["experiment=multi30k_transformer", "data.root=x"], ["experiment=multi30k_birnn", "data.root=x"]], ids=str
)
def test_debug_wins_over_an_experiment_but_not_over_the_user(choice: list[str]) -> None:
    debug = configuration("train", [*choice, "trainer=debug"])
    assert (debug["trainer"]["max_steps"], debug["trainer"]["limit_batches"], debug["trainer"]["threads"]) == (2, 2, 1)
    asked = configuration("train", [*choice, "trainer.max_steps=5", "trainer=debug"])
    assert asked["trainer"] == {**debug["trainer"], "max_steps": 5}


def test_debug_runs_two_batches_of_everything(base: list[str]) -> None:
    kept = [o for o in base if not o.startswith(("trainer.", "optim."))]
    run = trained(kept, "birnn", "trainer=debug", "data.batch.eval_max_tokens=60", "trainer.accelerator=cpu")
    assert run.name.endswith("-debug")  # a debug run must not take the name of a real run
    assert json.loads((run / "training.json").read_text())["steps"] == 2
    assert 0 < json.loads((run / "metrics.json").read_text())["valid"]["sentences"] < 23


def test_training_without_the_residual_changes_no_other_setting(base: list[str]) -> None:
    one = configuration("train", [*base, *SMALL["transformer"]])
    other = configuration("train", [*base, *SMALL["transformer"], "ablation=no_residual"])
    different = {key for key in one if one[key] != other[key]}
    assert different == {"model", "variant", "name"}
    assert {key for key in one["model"] if one["model"][key] != other["model"][key]} == {"residual"}
    assert other["model"]["residual"] == []


def test_accumulated_batches_make_one_step(base: list[str]) -> None:
    run = trained(base, "transformer", "trainer.accumulate=2")
    assert json.loads((run / "training.json").read_text())["steps"] == 6
    assert (
        torch.load(run / "checkpoints" / "step-6.ckpt", weights_only=True)["loops"]["fit_loop"]["epoch_loop.batch_progress"][
            "total"
        ]["ready"]
        == 12
    )


def test_a_checkpoint_holds_its_run(runs: dict[str, Path]) -> None:
    run = checkpoint.load(str(runs["birnn"]))
    assert run.config["model"]["name"] == "birnn" and run.step in (3, 6)
    assert {"created", "commit", "command", "torch", "python"} <= set(run.provenance)
    assert run.vocabulary.src.decode(run.vocabulary.src.encode("Le garçon")) == "Le garçon"
    assert not run.model.training


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (["model=birnn", "ablation=no_residual"], "model.residual"),
        (["model.norm=middle"], "pre, post, rms, none"),
        (["trainer.accelerator=foo"], "trainer"),
        (["trainer.limit_batches=abc"], "trainer"),
    ],
)
def test_wrong_settings_are_refused_before_a_directory_is_made(base: list[str], overrides: list[str], words: str) -> None:
    config = configuration("train", [*base, *overrides])
    with pytest.raises(InputError, match=words):
        train(config)
    made = [path.name for path in Path(config["output_dir"]).glob("*") if path.name != "cache"]
    assert made == []


def test_each_language_may_have_pieces_of_its_own(base: list[str]) -> None:
    more = ["data.tokenizer.joint=false", "data.tokenizer.type=unigram", "data.tokenizer.vocab_size=300"]
    run = checkpoint.load(str(trained(base, "transformer", *more)))
    assert run.vocabulary.src.model != run.vocabulary.tgt.model
    assert run.model.src_embedding.weight is not run.model.tgt_embedding.weight
    assert run.model.output.weight is run.model.tgt_embedding.weight


def test_all_attention_of_a_checkpoint_becomes_pictures(runs: dict[str, Path], tmp_path: Path) -> None:
    """For each kind of attention, the command draws all heads and, if there are several, a large map of one head or the mean.
    It writes each picture as PNG and as SVG."""
    sentence = ["sentence='Le chat voit le chien.'"]
    for model, names in (("transformer", ["cross", "decoder", "encoder"]), ("birnn", ["alignment"])):
        (folder := tmp_path / f"{model}.maps").mkdir()  # not a picture, in spite of its suffix
        several = [f"{name}-large" for name in names] if model == "transformer" else []
        arguments = [f"checkpoint={runs[model]}", *sentence, f"output={folder}"]
        picture_attention(settings(Attention, arguments))
        [pictures] = folder.iterdir()
        wanted = sorted(f"{name}.{kind}" for name in [*names, *several] for kind in ("png", "svg"))
        assert sorted(path.name for path in pictures.iterdir()) == wanted
        text = (pictures / f"{names[0]}.svg").read_text()
        assert "chien" in text and "<svg" in text
        picture_attention(settings(Attention, [*arguments, "words=true", "target='The bird seeks the horse.'", "head=1"]))
        [again] = {*folder.iterdir()} - {pictures}
        text = (again / f"{names[0]}.svg").read_text()
        assert "given, not translated: The bird" in text and "<!-- seeks -->" in text
    with pytest.raises(InputError, match="kind=cross: this model has alignment; choose one of these"):
        picture_attention(settings(Attention, [*arguments, "kind=cross"]))


@pytest.mark.parametrize("model", ["transformer", "birnn"])
def test_attention_is_measured_against_a_users_own_links(
    model: str, runs: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The command writes the links of the best head to a file, and reports their alignment error rate."""
    for side, text in (("fr", "Le chat voit le chien .\nLe chat suit le garçon .\n"), ("en", "The cat sees .\nThe boy .\n")):
        (tmp_path / side).write_text(text)
    (tmp_path / "gold").write_text("0-0 1-1 2?2 5-3\n0?0 4-1 5-2\n")
    files = [f"src={tmp_path}/fr", f"tgt={tmp_path}/en", f"alignments={tmp_path}/gold"]
    more = ["attention=true", "occlusion=2", f"output={tmp_path}/out"]
    metrics = evaluate_checkpoint(settings(Evaluate, [f"checkpoint={runs[model]}", *files, *more]))
    found = metrics["fr"]["attention"]
    kinds = {"alignment"}
    if model == "transformer":
        kinds = {"encoder self-attention", "decoder masked self-attention", "cross-attention"}
    assert set(found) == {*kinds, "word_alignment", "occlusion"}
    alignment = found["word_alignment"]
    assert alignment["oracle"]["aer"] == 0 and len(alignment["heads"]) == (6 if model == "transformer" else 2)
    assert json.loads((tmp_path / "out/metrics.json").read_text())["fr"]["attention"] == json.loads(json.dumps(found))
    written = (tmp_path / "out/alignments/fr.pharaoh").read_text().splitlines()
    links = [[tuple(map(int, link.split("-"))) for link in line.split()] for line in written]
    texts = [(tmp_path / side).read_text().splitlines() for side in ("fr", "en")]
    again = links_agreement(zip(links, read_pharaoh(tmp_path / "gold", *texts), strict=True))
    assert again.aer == pytest.approx(found["word_alignment"]["best"]["aer"])
    said = " ".join(capsys.readouterr().out.split())
    for words in ("oracle: best choice of one", "near-uniform heads", "these sentences themselves", "same_first"):
        assert words in said, said[-3000:]


def test_every_head_is_measured_at_each_validation(runs: dict[str, Path]) -> None:
    """A Transformer logs a picture of its heads, and the share of near-uniform heads for each kind of attention. A BiRNN logs
    the measures of its only head."""
    shares = {f"near_uniform {kind}" for kind in ("encoder", "decoder", "cross")}
    numbers = {f"{aspect} alignment" for aspect in ("entropy", "end", "punctuation", "diagonal")}
    for model, expected, pictures in (("transformer", shares, ["weights/valid heads"]), ("birnn", numbers, [])):
        events = EventAccumulator(str(runs[model]), size_guidance={"scalars": 0, "images": 0}).Reload()
        tags = [tag for tag in events.Tags()["scalars"] if tag.startswith("weights/")]
        assert set(tags) == {f"weights/valid {name}" for name in expected}
        assert events.Tags()["images"] == pictures
        logged = [*map(events.Scalars, tags), *map(events.Images, pictures)]
        assert all([event.step for event in of] == [3, 6] for of in logged)


def test_few_curves_are_written(runs: dict[str, Path]) -> None:
    tags = [set(EventAccumulator(str(run)).Reload().Tags()["scalars"]) for run in runs.values()]
    assert 20 < len(set.union(*tags)) <= 40


def test_attention_is_shown_next_to_the_effect_of_leaving_words_out(
    runs: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = [
        f"checkpoint=[{','.join(map(str, runs.values()))}]",
        "sentence='Le chat voit le chien.'",
        f"output={tmp_path}/both.svg",
        "occlusion=true",
    ]
    picture_attention(settings(Attention, arguments))
    text = (tmp_path / "both.svg").read_text()
    assert text.count("change when left out") == 2 and "</s>" not in text
    assert capsys.readouterr().out.count("pearson") == 2


def test_the_attention_of_a_sentence_becomes_a_picture(runs: dict[str, Path], tmp_path: Path) -> None:
    sizes = []
    for chosen in ([runs["transformer"]], [runs["transformer"], runs["birnn"]]):
        output = tmp_path / f"{len(chosen)}.png"
        arguments = [f"checkpoint=[{','.join(map(str, chosen))}]", "sentence='Le chat voit le chien.'", f"output={output}"]
        picture_attention(settings(Attention, arguments))
        assert output.read_bytes().startswith(b"\x89PNG")
        sizes.append(image.imread(output).shape[:2])
    assert sizes[0] != sizes[1]
    for wrong in ("layer=2", "head=3"):
        with pytest.raises(InputError, match=f"{wrong}: choose from 1 to"):
            picture_attention(settings(Attention, [*arguments, wrong]))


@pytest.mark.parametrize("precision", ["bf16-mixed", "bf16-true", "64-true"])
def test_every_precision_trains_and_validates(base: list[str], precision: str) -> None:
    run = trained(base, "transformer", f"trainer.precision={precision}")
    assert json.loads((run / "training.json").read_text())["steps"] == 6
