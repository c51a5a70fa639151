"""A model that `entente.load` returns gives the same translations and scores as the search and the evaluation."""

import dataclasses
import json
import pydoc
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from matplotlib.figure import Figure
from torch import Tensor

import entente
from entente import distributed, evaluation
from entente.attention.hook_points import Hook
from entente.attention.interventions import cell, mute, mute_part, no_residual, unmask
from entente.commands.settings import TranslateSettings
from entente.data.corpora import read_corpus
from entente.data.module import TranslationData
from entente.data.tokenizer import EOS
from entente.decoding.search import translation_search
from entente.decoding.translate import translate
from entente.errors import Diverged, InputError
from entente.evaluation import evaluate
from entente.models.seq2seq import Loss
from entente.settings import SearchSettings
from entente.training.train import train
from entente.validation import with_changes
from tiny import QUIET, SMALL, run_settings, write_corpus

SOURCE, TARGET = "Le chat voit le chien.", "The dog sees the cat."


def overrides_in(folder: Path, model: str) -> list[str]:
    steps = ["trainer.max_steps=7", "trainer.validate_every=7"]
    return [*SMALL[model], *write_corpus(folder), f"output_dir={folder}", *steps, *QUIET]


@pytest.fixture(scope="module", params=sorted(SMALL))
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp(request.param)
    return train(run_settings([f"model={request.param}", *overrides_in(folder, request.param)]))


@pytest.fixture
def model(run: Path) -> entente.TrainedModel:
    return entente.load(run, device="cpu")


def data_of(model: entente.TrainedModel) -> TranslationData:
    settings = model.settings.data
    return TranslationData(read_corpus(settings), model.vocabulary, settings.batch)


def test_its_translations_are_those_of_search(model: entente.TrainedModel) -> None:
    settings = model.settings.search.model_copy(update={"beam": 3})
    results = translate(model.model, model.vocabulary, [SOURCE, ""], settings)
    expected = [model.vocabulary.tgt.decode(n_best[0].tokens) for n_best in results]
    assert model.translate([SOURCE, ""], beam=3) == expected
    assert model.translate(SOURCE, beam=3) == expected[0]
    assert model.translate([]) == []
    assert "loss" in vars(model.model), "its fast implementations are attached"


@pytest.mark.parametrize(("own", "usual"), [({"beam": 1}, {"beam": 5}), ({"beam": 2}, {"beam": 2})])
def test_python_and_the_command_translate_as_the_run_does_but_with_a_beam(
    model: entente.TrainedModel, own: dict[str, int], usual: dict[str, int]
) -> None:
    search = model.settings.search.model_copy(update={**own, "length_penalty": -3.0})
    trained = dataclasses.replace(model, settings=model.settings.model_copy(update={"search": search}))
    settings = search.model_copy(update=usual)
    assert with_changes(translation_search(search), TranslateSettings(checkpoint="x").search.model_dump()) == settings
    sentences = [f"Le {noun} voit le chien{'.' * n}" for noun in ("chat", "garçon") for n in range(1, 5)]
    expected = translate(model.model, model.vocabulary, sentences, settings)
    assert trained.translate(sentences) == [model.vocabulary.tgt.decode(n_best[0].tokens) for n_best in expected]


def test_a_score_is_the_log_likelihood_that_evaluation_reports(model: entente.TrainedModel) -> None:
    split = data_of(model).evaluation("test")
    scores = [model.score(source, target) for source, target in zip(split.sources, split.references, strict=True)]
    total = sum(float(score.log_probabilities.double().sum()) for score in scores)
    pieces = sum(len(score.target) for score in scores)
    nll = evaluate(model.model, model.vocabulary, split, model.settings.search).nll
    assert -total / pieces == pytest.approx(nll, rel=1e-5)


@pytest.mark.parametrize("part", ["batch_loss", "search"])
def test_a_batch_that_diverges_is_the_same_error_in_every_process(
    part: str, model: entente.TrainedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    split = data_of(model).evaluation("test@alone")
    parts: dict[int, Any] = {}

    def evaluate_as(rank: int) -> None:
        monkeypatch.setattr(distributed, "rank", lambda: rank)
        evaluate(model.model, model.vocabulary, split, SearchSettings(length_factor=0.5))

    def diverge(*_: object) -> Any:
        if part == "search":
            raise Diverged("NaN")
        return Loss(torch.tensor(torch.nan), torch.tensor(torch.nan)), 1

    monkeypatch.setattr(distributed, "world_size", lambda: 2)
    monkeypatch.setattr(distributed, "gather", lambda value: [parts.setdefault(distributed.rank(), value)])
    evaluate_as(1)  # only the batches of process 0 diverge
    monkeypatch.setattr(evaluation, part, diverge)
    with pytest.raises(Diverged):
        evaluate_as(0)
    monkeypatch.setattr(distributed, "gather", lambda _: [parts[0], parts[1]])
    errors = []
    for rank in (0, 1):
        with pytest.raises(Diverged) as error:
            evaluate_as(rank)
        errors.append(str(error.value))
    assert errors[0] == errors[1]


def test_attention_is_named_and_its_rows_sum_to_one(model: entente.TrainedModel) -> None:
    attention = model.attention(SOURCE, TARGET)
    s, t = len(attention.source), len(attention.target)
    kinds = {"encoder": (s, s), "decoder": (t, t), "cross": (t, s)} if "encoder" in attention.weights else {"alignment": (t, s)}
    assert {name: tuple(weights.shape[-2:]) for name, weights in attention.weights.items()} == kinds
    assert attention.source[-1] == attention.target[-1] == "</s>" and attention.read == ["<s>", *attention.target[:-1]]
    assert "".join(attention.target[:-1]).replace("\u2581", " ").strip() == TARGET
    settings = model.settings.search.model_copy(update={"beam": 1})
    [[best]] = translate(model.model, model.vocabulary, [SOURCE], settings)
    assert model.attention(SOURCE).target == model.vocabulary.tgt.pieces([*best.tokens, EOS]), "its greedy translation"


def test_a_translation_begins_with_its_prefix(model: entente.TrainedModel) -> None:
    begun = model.translate([SOURCE, SOURCE], beam=3, prefix=["The horse", "The bird hears"])
    assert begun[0].startswith("The horse") and begun[1].startswith("The bird hears")
    assert model.translate(SOURCE, beam=3, prefix="The horse") == begun[0]
    assert model.translate([SOURCE, SOURCE], beam=3, prefix="The horse") == [begun[0]] * 2
    for prefixes in (["The"], []):
        with pytest.raises(InputError, match=f"prefix: {len(prefixes)} for 2 sentences"):
            model.translate([SOURCE, SOURCE], prefix=prefixes)


def test_interventions_hold_for_every_method_and_end(model: entente.TrainedModel) -> None:
    def results() -> tuple[str, list[float], Tensor]:
        of_source = [*model.attention(SOURCE, TARGET).weights.values()][-1]
        return model.translate(SOURCE, prefix="The"), model.score(SOURCE, TARGET).log_probabilities.tolist(), of_source

    kind = [*model.attention(SOURCE, TARGET).weights][-1]
    text, scores, attention = results()
    with model.intervene(mute(kind, to="uniform")):
        _, changed, uniform = results()
        assert changed != scores
    with model.intervene(no_residual() if kind == "cross" else mute_part("state")):
        assert results()[0] != text and model.translate(SOURCE) == model.translate([SOURCE])[0]
        assert torch.allclose(uniform, torch.full_like(uniform, 1 / uniform.size(-1)))
    again = results()
    assert (text, scores) == again[:2] and torch.equal(attention, again[2])
    if kind == "cross":
        numbers = model.mean_output(kind, 1, 2, [(SOURCE, TARGET)])
        with model.intervene(mute(kind, layer=1, head=2, to=numbers)):
            assert results()[1] != scores
        with model.intervene(unmask("future")):
            assert model.score(SOURCE, TARGET).log_probabilities.tolist() != scores
            assert model.attention(SOURCE, TARGET).weights["decoder"][0, 0, 0, 1] > 0
            unchanged = model.translate(SOURCE)  # a step of a search has no later pieces
        assert model.translate(SOURCE) == unchanged


def test_activations_have_the_names_and_shapes_that_are_listed_and_fit_together(model: entente.TrainedModel) -> None:
    shapes, (log_probabilities, cache) = model.hook_names(), model.run_with_cache(SOURCE, TARGET)
    score = model.score(SOURCE, TARGET)
    sizes = {"B": 1, "S": len(model.attention(SOURCE, TARGET).source), "T": len(score.target)}
    assert cache.keys() == shapes.keys()
    for name, shape in shapes.items():
        assert list(cache[name].shape) == [sizes.get(part) or int(part) for part in shape.strip("()").split(", ")], name
    produced = torch.tensor([[*model.vocabulary.tgt.encode(TARGET), EOS]]).T
    assert torch.equal(log_probabilities.gather(1, produced).squeeze(1), score.log_probabilities)
    for name in shapes:
        place, _, last = name.rpartition(".")
        if last == "hook_z":
            values = cache[f"{place}.hook_v"].transpose(1, 2)
            torch.testing.assert_close(cache[name].transpose(1, 2), cache[f"{place}.hook_pattern"] @ values)
        if last == "hook_mlp_out":
            middle = f"{place}.hook_resid_mid{'_cross' if 'decoder' in place else ''}"
            torch.testing.assert_close(cache[f"{place}.hook_resid_post"], cache[middle] + cache[name])
            network = model.model.get_submodule(f"{place}.ff")
            torch.testing.assert_close(cache[f"{place}.mlp.hook_post"], network[1](cache[f"{place}.mlp.hook_pre"]))  # type: ignore[index]
            torch.testing.assert_close(cache[name], network[2](cache[f"{place}.mlp.hook_post"]))  # type: ignore[index]
    part = model.run_with_cache(SOURCE, TARGET, names="*hook_pattern")[1]
    assert part.keys() == {name for name in shapes if name.endswith("pattern")}
    attention = [*model.attention(SOURCE, TARGET).weights.values()][-1]
    torch.testing.assert_close([*part.values()][-1].reshape(attention.shape[1:]), attention[-1])


def test_hooks_see_and_replace_activations(model: entente.TrainedModel) -> None:
    expected, names = model.score(SOURCE, TARGET).log_probabilities, list[str]()

    def look(value: Tensor, hook: Hook) -> None:
        names.append(hook.name)

    with model.hooks([("*", look)]):
        assert torch.equal(model.score(SOURCE, TARGET).log_probabilities, expected)
    assert {*names} == {*model.hook_names()}
    for name in model.hook_names():
        with model.hooks([(name, lambda value, hook: torch.randn_like(value))]):
            assert not torch.equal(model.score(SOURCE, TARGET).log_probabilities, expected), name
    assert torch.equal(model.score(SOURCE, TARGET).log_probabilities, expected)
    for wrong in (lambda value, hook: value[:, :1], lambda value, hook: value.transpose(0, 1)):
        with model.hooks([("*hook_out" if model.settings.model.name == "birnn" else "*hook_resid_post", wrong)]):
            with pytest.raises(InputError, match=r"hook_\w+: the function returned \("):
                model.score(SOURCE, TARGET)
    with model.hooks([("*", lambda value, hook: 0.5)]), pytest.raises(InputError, match="returned a float; return a tensor"):  # type: ignore[arg-type,return-value]
        model.score(SOURCE, TARGET)
    with pytest.raises(InputError, match="^decoder.9: no activation has such a name"), model.hooks([("decoder.9", look)]):
        pass


def test_hooks_are_called_in_the_thread_of_the_caller_one_at_a_time(model: entente.TrainedModel) -> None:
    """So that they may call the model, for which another thread would wait."""
    seen, threads = set[int](), torch.get_num_threads()

    def look(value: Tensor, hook: Hook) -> None:
        seen.add(threading.get_ident())

    torch.set_num_threads(2)
    try:
        with model.hooks([("*hook_pattern", look)]):
            model.translate([SOURCE, TARGET] * 150)
        assert seen == {threading.get_ident()} and torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(threads)


def test_activations_have_gradients(model: entente.TrainedModel) -> None:
    model.model.double()
    src, tgt = (torch.tensor(ids) for ids in (model.vocabulary.encode_src([SOURCE]), model.vocabulary.encode_tgt([TARGET])))
    for name in model.hook_names():
        values = list[Tensor]()

        def keep(value: Tensor, hook: Hook, values: list[Tensor] = values) -> None:
            value.retain_grad()
            values.append(value)

        def total() -> Tensor:
            return model.model.output(model.model(src, tgt[:, :-1])).log_softmax(-1)[0, :, 5].sum()

        with model.hooks([(name, keep)]):
            total().backward()
        directions = [torch.randn_like(value) for value in values]
        sums = []
        for size in (1e-6, -1e-6):
            steps = iter(directions)
            with torch.no_grad(), model.hooks([(name, lambda value, hook: value + size * next(steps))]):  # noqa: B023
                sums.append(total())
        assert all(value.grad is not None for value in values), name
        slope = sum((value.grad * way).sum() for value, way in zip(values, directions, strict=True))  # type: ignore[operator]
        torch.testing.assert_close((sums[0] - sums[1]) / 2e-6, slope, rtol=1e-4, atol=1e-7, msg=lambda text: f"{name}: {text}")  # noqa: B023


def test_numbers_of_an_intervention_may_be_those_of_numpy_and_torch(model: entente.TrainedModel) -> None:
    kind = [*model.attention(SOURCE, TARGET).weights][-1]
    assert mute(kind, np.argmax([0, 3]), torch.tensor(2)) == mute(kind, 1, 2)  # type: ignore[arg-type]
    with model.intervene(cell(kind, np.int64(0), torch.tensor(1), np.float32(0.5))):  # type: ignore[arg-type]
        model.score(SOURCE, TARGET)


def test_bad_arguments_are_refused(model: entente.TrainedModel, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such checkpoint"):
        entente.load(tmp_path)
    with pytest.raises(InputError, match="sentence is empty"):
        model.attention(" ")
    with pytest.raises(InputError, match="pieces"):
        model.score(SOURCE, "cat " * 9000)
    with pytest.raises(InputError, match="beam"):
        model.translate(SOURCE, beam=0)


def test_attention_prints_in_a_line_and_is_drawn(model: entente.TrainedModel) -> None:
    attention = model.attention(SOURCE, TARGET)
    assert len(repr(attention)) < 200 and SOURCE in repr(attention) and "\n" not in repr(attention)
    kinds = [*attention.weights]
    for figure, panels in ((attention.plot(), 2 if "cross" in kinds else 1), (attention.plot(kinds[0], layer=1, head=1), 1)):
        texts = [text.get_text() for text in figure.axes[0].texts]
        assert isinstance(figure, Figure) and texts.count("</s>") == 1 + panels  # the label of a row, and of a column per panel
        assert figure._repr_png_().startswith(b"\x89PNG")
    for wrong in ({"kind": "self"}, {"layer": 2}, {"head": 0}):
        with pytest.raises(InputError, match="choose"):
            attention.plot(**wrong)


def test_the_package_shows_its_names_without_importing_torch_even_next_to_its_clone(tmp_path: Path) -> None:
    (tmp_path / "entente" / "src").mkdir(parents=True)  # a clone, which Python would take for a package without __init__.py
    program = "import sys, entente; sys.exit('torch' in sys.modules or not {*entente.__all__} < {*dir(entente)})"
    subprocess.run([sys.executable, "-c", program], cwd=tmp_path, check=True)
    text = pydoc.plain(pydoc.render_doc(entente))
    assert all(f"    {name}(" in text for name in ("load", "train")) and "class InputError(" in text


@pytest.mark.parametrize("run", ["birnn"], indirect=True)
def test_python_trains_twice(run: Path, tmp_path: Path) -> None:
    name = entente.load(run).settings.model.name
    overrides = [f"model={name}", *overrides_in(tmp_path, name), "name=x"]
    models = [entente.train(overrides), entente.train(overrides)]
    (tmp_path / "two").mkdir()
    config = (tmp_path / "x" / "config.yaml").read_text()
    (tmp_path / "two" / "config.yaml").write_text(config.replace("devices: 1", "devices: 2"))
    with pytest.raises(entente.InputError, match="devices"):
        entente.train([f"resume={tmp_path / 'two'}"])
    for mistake in (["modle=birnn"], "seed=2", ["trainer.devices=2"], ["seed=1,2"], ["-m"], ["data.train=x"]):
        with pytest.raises(entente.InputError):
            entente.train(mistake)
    assert sorted(path.name for path in tmp_path.glob("x*")) == ["x", "x-2"]
    expected = entente.load(run, device="cpu")
    for model in models:
        assert model.metrics == expected.metrics == json.loads((run / "metrics.json").read_text())
        assert model.translate(SOURCE) == expected.translate(SOURCE)
    assert entente.load(run / "checkpoints/best.ckpt").metrics == {}


def test_threads_that_share_a_model_get_their_own_results(model: entente.TrainedModel) -> None:
    sentences = [f"Le {noun} voit le chien." for noun in ("chat", "garçon", "cheval", "ami")]

    def results(sentence: str) -> tuple[str, list[float], list[str], bool]:
        attention = model.attention(sentence)
        rows = all(torch.allclose(weights.sum(-1), torch.ones(()), atol=1e-5) for weights in attention.weights.values())
        return model.translate(sentence), model.score(sentence, TARGET).log_probabilities.tolist(), attention.source, rows

    expected = [*map(results, sentences)] * 2
    with ThreadPoolExecutor(4) as pool:
        assert [*pool.map(results, sentences * 2)] == expected
