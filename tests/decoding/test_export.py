"""Tests that CTranslate2 gives the same translations as torch, and that the models it cannot run are refused."""

import json
import random
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from bad_inputs import run as command
from broken_laws import BROKEN, model_settings
from conftest import SIZES
from entente.checkpoint import TrainedRun, load, sizes_of
from entente.data.tokenizer import BOS, EOS, MAX_PIECES, PAD, Tokenizer, Vocabulary
from entente.decoding.ctranslate2 import CTranslate2, refuse_other_models
from entente.decoding.translate import translate
from entente.errors import InputError
from entente.models.build import build
from entente.models.transformer import LEARNED_POSITIONS
from entente.settings import RunSettings, SearchSettings, TransformerSettings
from tiny import SMALL, VERBS, WORDS, write_corpus

ctranslate2 = pytest.importorskip("ctranslate2")

GREEDY, BEAM = SearchSettings(), SearchSettings(beam=5)
# The Transformer ablations that CTranslate2 can run.
SUPPORTED = {
    *("baseline", "layers_1", "layers_2", "layers_4", "one_head", "untied", "post_norm", "learned_positions", "no_positions"),
    *("no_dropout", "no_label_smoothing", "no_warmup"),
    *("zero_init", "rms_norm", "swiglu", "rotary"),
}
VARIANTS = sorted(variant for name, variant in BROKEN if name == "transformer")


def sentences(count: int, longest: int = 13) -> list[str]:
    """Returns `count` sentences: an empty one, followed by random ones of 1 to `longest` words."""
    generator = random.Random(3)
    words = [*WORDS, *VERBS]
    return ["", *(" ".join(generator.choices(words, k=generator.randint(1, longest))) for _ in range(count - 1))]


SRC, TGT = sentences(13), [*WORDS.values(), *VERBS.values()]
VOCABULARY = Vocabulary(Tokenizer.train([*WORDS, *VERBS] * 3, 307), Tokenizer.train(TGT * 3, 293), joint=False)
JOINT = Vocabulary(VOCABULARY.src, VOCABULARY.src, joint=True)


def loaded(vocabulary: Vocabulary = VOCABULARY, name: str = "transformer", **changes: Any) -> TrainedRun:
    """Returns a run with an untrained model, as if it were loaded from a checkpoint. Noise is added to every parameter, so that
    no bias is 0, no gain is 1 and the output is not uniform."""
    settings = RunSettings(name="run", model={"name": name, **SIZES[name], **changes})
    model = build(settings.model, sizes_of(vocabulary, seed=5)).eval()
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.2 * torch.randn(parameter.shape, generator=generator)
    return TrainedRun(model, vocabulary, settings, {}, 0, frozenset())


def assert_equal(run: TrainedRun, settings: SearchSettings, texts: list[str] = SRC) -> None:
    """Asserts that torch and CTranslate2 give the same tokens, the same `ended` flags, and scores equal up to rounding."""
    ours, theirs = translate(run.model, run.vocabulary, texts, settings), CTranslate2(run, settings)(texts)
    assert [[h[::2] for h in n_best] for n_best in theirs] == [[h[::2] for h in n_best] for n_best in ours]
    scores = [[h.score for n_best in results for h in n_best] for results in (theirs, ours)]
    assert scores[0] == pytest.approx(scores[1], rel=1e-4, abs=1e-4)


@pytest.mark.parametrize(
    "settings",
    [
        *(SearchSettings(beam=beam, length_factor=factor) for beam in (1, 2, 5) for factor in (2.0, 0.7)),
        *(SearchSettings(beam=3, length_penalty=alpha) for alpha in (0.0, 0.6, -1.0)),
        SearchSettings(beam=4, length_factor=0, length_offset=1),
    ],
    ids=str,
)
def test_translations_are_those_of_torch(settings: SearchSettings) -> None:
    assert_equal(loaded(), settings)


@pytest.mark.parametrize(("beam", "limit"), [(2, 3), (5, 4), (5, 8)])
def test_an_ended_translation_comes_before_a_likelier_loop(beam: int, limit: int) -> None:
    run = loaded(tied=False)
    with torch.no_grad():  # make the end symbol likely at every step, but piece 5 even more likely
        constant, weight = run.model.get_submodule("decoder_norm").bias, run.model.output.weight
        constant.copy_(2 * constant.sign())
        weight.copy_(0.5 * (weight - (weight @ constant)[:, None] * constant / (constant @ constant)))
        weight[EOS] += 5 * constant / (constant @ constant)
        weight[5] += 7 * constant / (constant @ constant)
    settings = SearchSettings(beam=beam, length_factor=0, length_offset=limit)
    assert_equal(run, settings)
    assert not any(
        n_best[0].ended for n_best in translate(run.model, run.vocabulary, SRC[1:], settings.model_copy(update={"beam": 1}))
    )
    assert all(n_best[0].ended for n_best in translate(run.model, run.vocabulary, SRC, settings))


def test_a_shared_vocabulary_and_an_explicit_default_of_d_k_are_translated_alike() -> None:
    assert_equal(loaded(JOINT), GREEDY)
    assert_equal(loaded(JOINT, tied=False), GREEDY)
    assert_equal(loaded(d_k=7), GREEDY)


@pytest.mark.slow
@pytest.mark.parametrize("variant", VARIANTS)
def test_a_variant_is_translated_alike_or_refused(variant: str) -> None:
    run = loaded(**model_settings(variant))
    if variant in SUPPORTED:
        assert_equal(run, GREEDY)
        assert_equal(run, BEAM, SRC[:5])
        return
    with pytest.raises(InputError, match=": CTranslate2 does not support this model; use engine=torch$") as refused:
        CTranslate2(run, GREEDY)
    assert any(f"model.{key}=" in str(refused.value) for key in model_settings(variant))


def test_other_models_are_refused_and_the_order_of_sublayers_does_not_matter() -> None:
    refuse_other_models(TransformerSettings(residual=["ff", "self", "cross"]))
    with pytest.raises(InputError, match="^engine=ctranslate2: model.name=birnn: CTranslate2 does not support this model; "):
        CTranslate2(loaded(name="birnn"), GREEDY)


def test_the_padding_symbol_is_never_produced() -> None:
    run = loaded(tied=False)
    src, start = torch.tensor(VOCABULARY.encode_src(["chat chien voit"])), torch.tensor([[BOS]])
    with torch.no_grad():
        hidden = run.model(src, start)[0, 0]
        run.model.output.weight[PAD] = hidden  # now padding has the highest score of all tokens
        assert run.model.output(hidden).argmax() == PAD
    assert_equal(run, GREEDY, ["chat chien voit", *SRC])
    assert_equal(run, BEAM, ["chat chien voit", *SRC])


@pytest.mark.slow
def test_positions_reach_as_far_as_a_search_can() -> None:
    """CTranslate2 and torch agree on long texts. Beyond the table of learned positions, both use its last row."""
    long = ["chat " * 300]
    assert len(VOCABULARY.encode_src(long)[0]) > LEARNED_POSITIONS
    assert_equal(
        loaded(positions="learned", n_layers=1), SearchSettings(length_factor=0, length_offset=LEARNED_POSITIONS + 11), long
    )
    assert_equal(loaded(n_layers=1), SearchSettings(length_factor=0, length_offset=MAX_PIECES + 101), ["chat"])


def test_a_beam_too_wide_for_the_vocabulary_is_refused() -> None:
    widest = len(VOCABULARY.tgt) // 2
    assert_equal(loaded(), SearchSettings(beam=widest, length_factor=0, length_offset=2), SRC[:3])
    with pytest.raises(InputError, match=f"search.beam={widest + 1}: engine=ctranslate2 takes at most {widest}, "):
        CTranslate2(loaded(), SearchSettings(beam=widest + 1))


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns a folder with a trained run (`run`) and a text to translate (`in.txt`)."""
    folder = tmp_path_factory.mktemp("engine")
    settings = [*write_corpus(folder), *SMALL["transformer"], "optim.lr=5e-3", "optim.warmup=20", "views.attention=false"]
    settings += ["trainer.max_steps=120", "trainer.validate_every=120", "trainer.accelerator=cpu", "trainer.threads=1"]
    ended = command(f"train name=run output_dir=. {' '.join(settings)}", folder)
    assert ended.code == 0, ended
    lines = (folder / "test.fr").read_text(encoding="utf-8").splitlines()
    (folder / "in.txt").write_text("\n".join([*lines, "", *sentences(31)]) + "\n", encoding="utf-8")
    return folder


def translated(folder: Path, overrides: str) -> list[str]:
    ended = command(f"translate checkpoint=run accelerator=cpu input=in.txt output=out.txt {overrides}", folder)
    assert (ended.code, ended.problems) == (0, ""), ended
    return (folder / "out.txt").read_text(encoding="utf-8").splitlines()


@pytest.mark.parametrize("beam", [1, 5])
def test_the_translate_command_writes_the_same_as_with_torch(trained: Path, beam: int) -> None:
    lines = translated(trained, f"search.beam={beam}")
    assert len(lines) == 61 and lines[29] == lines[30] == "" != lines[31]
    assert translated(trained, f"search.beam={beam} engine=ctranslate2") == lines


def test_the_best_of_n_translations_equals_that_of_torch_and_most_others_do_too(trained: Path) -> None:
    tables = (translated(trained, f"search.n_best=3 engine={engine}") for engine in ("torch", "ctranslate2"))
    ours, theirs = ([line.split("\t") for line in lines] for lines in tables)
    assert [row[0] for row in ours] == [row[0] for row in theirs]
    firsts = ({row[0]: row for row in reversed(rows)}.values() for rows in (ours, theirs))
    for (_, score, text), (_, other_score, other_text) in zip(*firsts, strict=True):
        assert text == other_text and float(score) == pytest.approx(float(other_score), abs=2e-4)
    assert sum(row[2] == other[2] for row, other in zip(theirs, ours, strict=True)) >= 0.9 * len(ours)


def test_int8_gives_the_same_translations_with_other_scores_and_leaves_the_weights_as_they_are(trained: Path) -> None:
    run, lines = load(str(trained / "run")), (trained / "test.fr").read_text(encoding="utf-8").splitlines()
    weights = {name: value.clone() for name, value in run.model.state_dict().items()}
    float32, int8 = ([n_best[0] for n_best in CTranslate2(run, GREEDY, kind)(lines)] for kind in (None, "int8"))
    pairs = list(zip(float32, int8, strict=True))
    assert sum(plain.tokens == rounded.tokens for plain, rounded in pairs) >= 0.9 * len(lines)
    assert sum(plain.score != rounded.score for plain, rounded in pairs) >= 0.9 * len(lines)
    assert all(torch.equal(value, weights[name]) for name, value in run.model.state_dict().items())


def test_the_evaluate_command_gives_the_same_table_and_names_its_engine(trained: Path) -> None:
    metrics = {}
    engines = {"torch": "", "ctranslate2": "engine=ctranslate2", "int8": "engine=ctranslate2 quantization=int8"}
    for name, engine in engines.items():
        options = f"checkpoint=run trust_data=true accelerator=cpu search.beam=5 split=all output={name} {engine}"
        ended = command(f"evaluate {options}", trained)
        assert (ended.code, ended.err) == (0, ""), ended
        metrics[name] = json.loads((trained / name / "metrics.json").read_text(encoding="utf-8"))
    assert metrics["torch"]["test"]["bleu"] > 50
    engine = f"ctranslate2 {ctranslate2.__version__}, float32"
    assert metrics["ctranslate2"] == {split: {**m, "engine": engine} for split, m in metrics["torch"].items()}
    texts = [(trained / name / "translations" / "test.tsv").read_text(encoding="utf-8") for name in ("torch", "ctranslate2")]
    assert texts[0] == texts[1]
    assert metrics["int8"]["test"]["engine"].endswith(", int8_float32")
    assert metrics["int8"]["test"]["nll"] == metrics["torch"]["test"]["nll"]


def test_an_engine_that_is_not_installed_gets_one_line(trained: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ctranslate2", None)  # importing ctranslate2 fails, as if it were not installed
    for begin in ("translate checkpoint=run input=in.txt output=new", "evaluate checkpoint=run output=new"):
        ended = command(f"{begin} engine=ctranslate2", trained)
        assert ended.code == 2 and "pip install 'entente[engines]', or use engine=torch" in ended.err
        assert ended.err.count("\n") == 1 and not (trained / "new").exists()


def test_a_translation_depends_on_neither_the_order_nor_the_other_sentences() -> None:
    engine = CTranslate2(loaded(), BEAM)
    batch = [n_best[0].tokens for n_best in engine(SRC)]
    assert [n_best[0].tokens for n_best in engine(SRC[::-1])] == batch[::-1]
    assert [engine([text])[0][0].tokens for text in SRC] == batch
    assert len({tuple(tokens) for tokens in batch}) > len(SRC) / 2  # equal translations would hide a wrong order
    assert engine([]) == []
