"""CTranslate2 translates as torch does, or refuses."""

import csv
import json
import random
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from bad_inputs import run as command
from benchmark import cases
from benchmark.contestants.ours import decode
from benchmark.settings import Benchmark
from benchmark.turns import Contestant, Measured
from entente.checkpoint import RUNTIME, Run, build
from entente.config.schema import defaults, settings_of
from entente.data.tokenizer import BOS, EOS, MAX_PIECES, PAD, Tokenizer, Vocabulary
from entente.decoding.ctranslate2 import ANY_VALUE, CTranslate2, refuse_other_models, write_ctranslate2
from entente.decoding.search import Search
from entente.decoding.translate import translate
from entente.errors import InputError
from entente.models.transformer import LEARNED_POSITIONS, Transformer
from test_variants import BROKEN, change
from tiny import SMALL, VERBS, WORDS, write_corpus

ctranslate2 = pytest.importorskip("ctranslate2")

SIZES = {"d_model": 21, "n_heads": 3, "n_layers": 2, "d_ff": 29}
GREEDY, BEAM = Search(), Search(beam=5)
# The ablations of the Transformer that are one to CTranslate2 too.
COMPUTED = {
    *("baseline", "layers_1", "layers_2", "layers_4", "one_head", "untied", "post_norm", "learned_positions", "no_positions"),
    *("no_dropout", "no_label_smoothing", "no_warmup"),
}
VARIANTS = sorted(variant for name, variant in BROKEN if name == "transformer")


def sentences(count: int, longest: int = 13) -> list[str]:
    """Of 1 to `longest` words, with an empty one among them."""
    generator = random.Random(3)
    words = [*WORDS, *VERBS]
    return ["", *(" ".join(generator.choices(words, k=generator.randint(1, longest))) for _ in range(count - 1))]


SRC, TGT = sentences(23), [*WORDS.values(), *VERBS.values()]
VOCABULARY = Vocabulary(Tokenizer.train([*WORDS, *VERBS] * 3, 307), Tokenizer.train(TGT * 3, 293), joint=False)
JOINT = Vocabulary(VOCABULARY.src, VOCABULARY.src, joint=True)


def loaded(vocabulary: Vocabulary = VOCABULARY, name: str = "transformer", **changes: Any) -> Run:
    """An untrained model as a checkpoint gives it, no bias 0, no gain 1, and the output far from uniform."""
    config = {"name": name, **(SIZES if name == "transformer" else {}), **changes}
    model = build(config, vocabulary, seed=5).eval()
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.2 * torch.randn(parameter.shape, generator=generator)
    return Run(model, vocabulary, {"model": config}, {}, 0)


def assert_equal(run: Run, how: Search, texts: list[str] = SRC) -> None:
    """In tokens and in how they end; in scores, to the accuracy of float32."""
    ours, theirs = translate(run.model, run.vocabulary, texts, how), CTranslate2(run, how)(texts)
    assert [[h.tokens for h in n_best] for n_best in theirs] == [[h.tokens for h in n_best] for n_best in ours]
    assert [[h.ended for h in n_best] for n_best in theirs] == [[h.ended for h in n_best] for n_best in ours]
    scores = [[h.score for n_best in found for h in n_best] for found in (theirs, ours)]
    assert scores[0] == pytest.approx(scores[1], rel=1e-4, abs=1e-4)


@pytest.mark.parametrize(
    "how",
    [
        *(Search(beam=beam, length_factor=factor) for beam in (1, 2, 5) for factor in (2.0, 0.7)),
        *(Search(beam=3, length_penalty=alpha) for alpha in (0.0, 0.6, -1.0)),
        Search(beam=4, length_factor=0, length_offset=1),
    ],
    ids=str,
)
def test_translations_are_those_of_torch(how: Search) -> None:
    assert_equal(loaded(), how)


@pytest.mark.parametrize(("beam", "limit"), [(2, 3), (5, 4), (5, 8)])
def test_what_ended_comes_before_a_likelier_loop(beam: int, limit: int) -> None:
    run = loaded(tied=False)
    with torch.no_grad():  # at every step the end is likely, and saying one piece once more is likelier
        constant, weight = run.model.get_submodule("decoder_norm").bias, run.model.output.weight
        constant.copy_(2 * constant.sign())
        weight.copy_(0.5 * (weight - (weight @ constant)[:, None] * constant / (constant @ constant)))
        weight[EOS] += 5 * constant / (constant @ constant)
        weight[5] += 7 * constant / (constant @ constant)
    how = Search(beam, length_factor=0, length_offset=limit)
    assert_equal(run, how)
    assert not any(n_best[0].ended for n_best in translate(run.model, run.vocabulary, SRC[1:], replace(how, beam=1)))
    assert all(n_best[0].ended for n_best in translate(run.model, run.vocabulary, SRC, how))


def test_so_are_those_of_a_shared_vocabulary_and_of_a_head_as_wide_as_it_would_be() -> None:
    assert_equal(loaded(JOINT), GREEDY)
    assert_equal(loaded(JOINT, tied=False), GREEDY)
    assert_equal(loaded(d_k=7), GREEDY)


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_variant_is_translated_alike_or_refused(variant: str) -> None:
    run = loaded(**change(variant))
    if variant in COMPUTED:
        assert_equal(run, GREEDY)
        assert_equal(run, BEAM)
        return
    with pytest.raises(InputError) as refused:
        CTranslate2(run, GREEDY)
    [line] = refused.value.problems
    assert line.endswith(": CTranslate2 does not support this model; use engine=torch")
    assert any(f"model.{key}=" in line for key in change(variant))


def test_what_is_not_known_is_refused() -> None:
    """An argument of a version to come is refused whatever it says; one that is added here, unless it has its default."""
    assert defaults(Transformer).keys() >= ANY_VALUE
    assert set(settings_of(Transformer)) == {*defaults(Transformer), *RUNTIME}
    for name, value in (("gate", None), ("dropout_", 0.1)):
        with pytest.raises(InputError, match=f"model.{name}="):
            refuse_other_models({"name": "transformer", **SIZES, name: value})
    refuse_other_models({"name": "transformer", "residual": ["ff", "self", "cross"]})
    with pytest.raises(
        InputError, match="^engine=ctranslate2: model.name=birnn: CTranslate2 does not support this model; use engine=torch$"
    ):
        CTranslate2(loaded(name="birnn", d_embedding=7, d_hidden=11, d_attention=13), GREEDY)


def test_the_padding_symbol_is_never_produced() -> None:
    run = loaded(tied=False)
    src, start = torch.tensor(VOCABULARY.encode_src(["chat chien voit"])), torch.tensor([[BOS]])
    with torch.no_grad():
        hidden = run.model(src, start)[0, 0]
        run.model.output.weight[PAD] = hidden  # what is most like it scores highest
        assert run.model.output(hidden).argmax() == PAD
    assert_equal(run, GREEDY, ["chat chien voit", *SRC])
    assert_equal(run, BEAM, ["chat chien voit", *SRC])


def test_positions_reach_as_far_as_search_does() -> None:
    """Beyond a learned table too, whose last row the rest share."""
    long = ["chat " * 300]
    assert len(VOCABULARY.encode_src(long)[0]) > LEARNED_POSITIONS
    assert_equal(loaded(positions="learned"), Search(length_factor=0, length_offset=LEARNED_POSITIONS + 11), long)
    assert_equal(loaded(), Search(length_factor=0, length_offset=MAX_PIECES + 101), ["chat"])


def test_the_model_written_is_one_that_the_library_loads(tmp_path: Path) -> None:
    """And writing in 8 bits leaves ours as it was."""
    run = loaded()
    before = {name: value.clone() for name, value in run.model.state_dict().items()}
    for quantization, kind in ((None, "float32"), ("int8", "int8_float32")):
        write_ctranslate2(run, tmp_path / kind, quantization, positions=50)
        model = ctranslate2.Translator(str(tmp_path / kind))
        assert model.compute_type == kind
    assert all(torch.equal(value, before[name]) for name, value in run.model.state_dict().items())
    sizes = [(tmp_path / kind / "model.bin").stat().st_size for kind in ("float32", "int8_float32")]
    assert sizes[1] < 0.6 * sizes[0]


def test_a_beam_too_wide_for_the_vocabulary_is_refused() -> None:
    most = len(VOCABULARY.tgt) // 2
    assert_equal(loaded(), Search(beam=most, length_factor=0, length_offset=2), SRC[:3])
    with pytest.raises(InputError, match=f"search.beam={most + 1}: engine=ctranslate2 takes at most {most}, "):
        CTranslate2(loaded(), Search(beam=most + 1))


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with `run`, a model that has learnt its eleven words, and `in.txt`."""
    folder = tmp_path_factory.mktemp("engine")
    settings = [*write_corpus(folder), *SMALL["transformer"], "optim.lr=5e-3", "optim.warmup=20", "views.attention=false"]
    settings += ["trainer.max_steps=200", "trainer.validate_every=200", "trainer.accelerator=cpu", "trainer.threads=1"]
    ended = command(f"train name=run output_dir=. {' '.join(settings)}", folder)
    assert ended.code == 0, ended
    known = (folder / "test.fr").read_text(encoding="utf-8").splitlines()
    (folder / "in.txt").write_text("\n".join([*known, "", *sentences(71)]) + "\n", encoding="utf-8")
    return folder


def translated(folder: Path, more: str) -> list[str]:
    ended = command(f"translate checkpoint=run accelerator=cpu input=in.txt output=out.txt {more}", folder)
    assert (ended.code, ended.err) == (0, ""), ended
    return (folder / "out.txt").read_text(encoding="utf-8").splitlines()


def test_the_benchmark_measures_what_the_commands_use(trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(trained)
    found: dict[str, Any] = {}

    def translate_once(contestants: Sequence[Contestant], *_: object) -> dict[str, Measured]:
        for one in contestants:
            if one.command == cases.script("ours"):
                about, burst = decode(dict(one.settings))
                found[one.name] = about | burst({"outputs": True})
        return {"ours": Measured(bursts=[found["ours"]])}

    monkeypatch.setattr(cases, "in_turn", translate_once)
    settings = Benchmark(cases=["beam_trained"], birnn={}, checkpoint="run", trust_data=True, sentences=17)
    config = {"trainer": {"threads": 1, "accelerator": "cpu"}}
    cases.decoding(cases.Bench(config, settings, tmp_path, lambda name: None), "beam_trained")
    ours, float32, int8 = (found[name] for name in ("ours", "engine=ctranslate2, float32", "engine=ctranslate2, int8"))
    assert ours["outputs"] == float32["outputs"] and len(ours["outputs"]) == 17 and "engine" not in ours
    assert float32["engine"].endswith(", float32") and int8["engine"].endswith(", int8_float32")


@pytest.mark.parametrize("beam", [1, 5])
def test_the_translate_command_writes_what_it_writes_with_torch(trained: Path, beam: int) -> None:
    lines = translated(trained, f"search.beam={beam}")
    assert len(lines) == 101 and lines[29] == lines[30] == "" != lines[31]
    assert translated(trained, f"search.beam={beam} engine=ctranslate2") == lines


def test_of_n_best_translations_the_first_is_that_of_torch_and_most_others_are(trained: Path) -> None:
    tables = [
        [(int(number), float(score), text) for number, score, text in csv.reader(lines, delimiter="\t", quoting=csv.QUOTE_NONE)]
        for lines in (translated(trained, f"search.n_best=3 engine={engine}") for engine in ("torch", "ctranslate2"))
    ]
    ours, theirs = tables
    assert [row[0] for row in ours] == [row[0] for row in theirs]
    assert {row[0]: row for row in reversed(theirs)} == {
        row[0]: (row[0], pytest.approx(row[1], abs=2e-4), row[2]) for row in reversed(ours)
    }
    assert sum(row[2] == other[2] for row, other in zip(theirs, ours, strict=True)) >= 0.9 * len(ours)


def test_int8_translates_what_was_learnt_alike_and_scores_it_otherwise(trained: Path) -> None:
    tables = [
        [line.split("\t") for line in translated(trained, f"search.n_best=2 engine=ctranslate2 quantization={kind}")]
        for kind in ("null", "int8")
    ]
    best = [{row[0]: row for row in reversed(rows)} for rows in tables]
    learnt = [str(number) for number in range(1, 30)]  # the test sentences; the others are such as it never saw
    assert sum(best[0][number][2] == best[1][number][2] for number in learnt) >= 0.9 * len(learnt)
    # A score has four decimals, so some are equal: how many depends on how sure this machine's training made the model.
    assert sum(best[0][number][1] != best[1][number][1] for number in learnt) > len(learnt) / 2


def test_the_evaluate_command_gives_the_same_table_and_says_its_engine(trained: Path) -> None:
    metrics = {}
    for name, more in {
        "torch": "",
        "ctranslate2": "engine=ctranslate2",
        "int8": "engine=ctranslate2 quantization=int8",
    }.items():
        ended = command(
            f"evaluate checkpoint=run trust_data=true accelerator=cpu search.beam=5 split=all output={name} {more}", trained
        )
        assert (ended.code, ended.err) == (0, ""), ended
        metrics[name] = json.loads((trained / name / "metrics.json").read_text(encoding="utf-8"))
    assert metrics["torch"]["test"]["bleu"] > 50
    engine = f"ctranslate2 {ctranslate2.__version__}, float32"
    assert metrics["ctranslate2"] == {split: {**m, "engine": engine} for split, m in metrics["torch"].items()}
    texts = [(trained / name / "translations" / "test.tsv").read_text(encoding="utf-8") for name in ("torch", "ctranslate2")]
    assert texts[0] == texts[1]
    assert metrics["int8"]["test"]["engine"].endswith(", int8_float32")
    assert metrics["int8"]["test"]["nll"] == metrics["torch"]["test"]["nll"]


@pytest.mark.parametrize("name", ["translate", "evaluate"])
def test_bad_engines_get_one_line(trained: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    begin = {"translate": "translate checkpoint=run input=in.txt output=new", "evaluate": "evaluate checkpoint=run output=new"}
    cases = {
        "engine=onnx": "engine=onnx: choose one of torch, ctranslate2",
        "quantization=int8": "quantization=int8 needs engine=ctranslate2; add it, or leave quantization out",
        "engine=ctranslate2 quantization=int4": "quantization=int4: ",
        "engine=ctranslate2": "pip install 'entente[engines]', or use engine=torch",
    }
    monkeypatch.setitem(sys.modules, "ctranslate2", None)  # as if it were not installed
    for more, words in cases.items():
        ended = command(f"{begin[name]} {more}", trained)
        assert ended.code == 2 and words in ended.err and ended.err.count("\n") == 1, ended
        assert not (trained / "new").exists()


def test_each_translation_is_in_its_place_whoever_stands_beside_it() -> None:
    engine = CTranslate2(loaded(), BEAM)
    whole = [n_best[0].tokens for n_best in engine(SRC)]
    assert [n_best[0].tokens for n_best in engine(SRC[::-1])] == whole[::-1]
    assert [engine([text])[0][0].tokens for text in SRC] == whole
    assert len({tuple(tokens) for tokens in whole}) > len(SRC) / 2  # or nothing is tested
    assert engine([]) == []
