"""An exported model translates without Entente as it does with it, and a model that a format cannot hold is refused by name."""

import random
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from string import Template
from typing import Any

import pytest
import torch

from bad_inputs import run as command
from broken_laws import BROKEN, model_settings
from conftest import SIZES, small_settings
from entente.checkpoint import TrainedRun, sizes_of
from entente.commands.export import WRITERS
from entente.data.tokenizer import BOS, EOS, PAD, Tokenizer, Vocabulary
from entente.decoding.translate import translate
from entente.errors import InputError
from entente.export import formats
from entente.export.formats import refuse_other_models, write_ctranslate2, write_huggingface
from entente.models.build import build
from entente.models.transformer import LEARNED_POSITIONS
from entente.settings import RunSettings, SearchSettings, TransformerSettings
from tiny import SMALL, VERBS, WORDS, write_corpus

package = pytest.importorskip("ctranslate2")

# The ablations that each format holds.
TRAINING = {"baseline", "equal_heads", "layers_1", "layers_2", "layers_4", "one_head", "no_dropout", "no_label_smoothing"}
TRAINING |= {"no_warmup", "zero_init"}
CTRANSLATE2 = TRAINING | {"untied", "post_norm", "learned_positions", "no_positions", "rms_norm", "swiglu", "rotary"}
VARIANTS = sorted(variant for name, variant in BROKEN if name == "transformer")
LIMIT = 13


GENERATOR = random.Random(3)
SRC = [" ".join(GENERATOR.choices([*WORDS, *VERBS], k=GENERATOR.randint(1, 13))) for _ in range(11)]
TGT = [*WORDS.values(), *VERBS.values()]
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


def assert_equal(run: TrainedRun, folder: Path, texts: list[str] = SRC, limit: int = LIMIT) -> None:
    """Asserts that CTranslate2 gives the tokens of our search, and scores equal up to rounding."""
    search = SearchSettings(length_factor=0, length_offset=limit, length_penalty=0)
    ours = [n_best[0] for n_best in translate(run.model, run.vocabulary, texts, search)]
    write_ctranslate2(run, folder, positions=1100)
    translator = package.Translator(str(folder), intra_threads=1)
    pieces = [run.vocabulary.src.pieces(ids) for ids in run.vocabulary.encode_src(texts)]
    options = {"beam_size": 1, "length_penalty": 0, "max_decoding_length": limit, "return_scores": True}
    theirs = translator.translate_batch(pieces, return_end_token=True, max_input_length=0, **options)
    for hypothesis, result in zip(ours, theirs, strict=True):
        tokens = run.vocabulary.tgt.pieces([*hypothesis.tokens, *([EOS] if hypothesis.ended else [])])
        assert result.hypotheses[0] == tokens and result.scores[0] == pytest.approx(hypothesis.score, rel=1e-3)


def test_ctranslate2_translates_as_we_do_on_either_vocabulary(tmp_path: Path) -> None:
    alike = [loaded(), loaded(JOINT), loaded(JOINT, tied=False), loaded(d_k=7)]
    for i, run in enumerate(alike):
        assert_equal(run, tmp_path / str(i))


@pytest.mark.slow
@pytest.mark.parametrize("variant", VARIANTS)
def test_a_variant_is_translated_alike_or_refused(variant: str, tmp_path: Path) -> None:
    run = loaded(**model_settings(variant))
    if variant in CTRANSLATE2:
        assert_equal(run, tmp_path)
        return
    with pytest.raises(InputError, match="^format=ctranslate2: .*: this format cannot hold such a model; ") as refused:
        refuse_other_models("ctranslate2", run.settings.model)
    assert any(f"model.{key}=" in str(refused.value) for key in model_settings(variant))


def test_other_models_are_refused_and_the_order_of_sublayers_does_not_matter() -> None:
    refuse_other_models("ctranslate2", TransformerSettings(residual=["ff", "self", "cross"]))
    with pytest.raises(InputError, match="model.score=cosine: this format"):
        refuse_other_models("ctranslate2", TransformerSettings(score="cosine"))
    for format in WRITERS:
        with pytest.raises(InputError, match=f"^format={format}: model.name=birnn: this format cannot hold such a model; "):
            refuse_other_models(format, loaded(name="birnn").settings.model)


def test_the_padding_symbol_is_never_produced(tmp_path: Path) -> None:
    run = loaded(tied=False)
    src, start = torch.tensor(VOCABULARY.encode_src(["chat chien voit"])), torch.tensor([[BOS]])
    with torch.no_grad():
        hidden = run.model(src, start)[0, 0]
        run.model.output.weight[PAD] = hidden  # now padding has the highest score of all tokens
        assert run.model.output(hidden).argmax() == PAD
    assert_equal(run, tmp_path, texts=["chat chien voit", *SRC])


@pytest.mark.slow
def test_positions_reach_as_far_as_a_search_can(tmp_path: Path) -> None:
    """CTranslate2 and torch agree on long texts. Beyond the table of learned positions, both use its last row."""
    long = ["chat " * 300]
    assert len(VOCABULARY.encode_src(long)[0]) > LEARNED_POSITIONS
    assert_equal(loaded(positions="learned", n_layers=1), tmp_path / "1", texts=long, limit=LEARNED_POSITIONS + 11)
    assert_equal(loaded(n_layers=1), tmp_path / "2", texts=["chat"], limit=1000)


@pytest.fixture(scope="module")
def pegasus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[TrainedRun, Any]]:
    run, folder = loaded(JOINT), tmp_path_factory.mktemp("pegasus")
    transformers = pytest.importorskip("transformers")
    write_huggingface(run, folder, positions=101)
    yield run, transformers.PegasusForConditionalGeneration.from_pretrained(folder).eval()


def test_pegasus_computes_our_logits_and_attention_weights(pegasus: tuple[TrainedRun, Any]) -> None:
    run, theirs = pegasus
    src = torch.tensor(JOINT.encode_src(["chat chien voit", "chien chat suit"]))
    tgt = torch.tensor([[BOS, 5, 6, 7, 8], [BOS, 8, 7, 6, 5]])
    with torch.no_grad():
        logits = theirs(input_ids=src, decoder_input_ids=tgt).logits
        ours = run.model.output(run.model(src, tgt))
    assert logits[..., PAD].isneginf().all()
    torch.testing.assert_close(logits[..., PAD + 1 :], ours[..., PAD + 1 :], rtol=1e-4, atol=1e-4)


def test_pegasus_translates_as_we_do(pegasus: tuple[TrainedRun, Any]) -> None:
    run, theirs = pegasus
    search = SearchSettings(length_factor=0, length_offset=LIMIT)
    for text in SRC:
        [output] = theirs.generate(torch.tensor(JOINT.encode_src([text])), max_new_tokens=LIMIT, do_sample=False, num_beams=1)
        [[hypothesis]] = translate(run.model, run.vocabulary, [text], search)
        assert output.tolist() == [BOS, *hypothesis.tokens, *([EOS] if hypothesis.ended else [])]


@pytest.mark.parametrize("variant", sorted({*VARIANTS} - TRAINING))
def test_pegasus_refuses_all_other_variants(variant: str) -> None:
    with pytest.raises(InputError, match="^format=huggingface: .*: this format cannot hold such a model; "):
        refuse_other_models("huggingface", small_settings("transformer", **model_settings(variant)))


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a trained run (`run`), which reads punctuation as people type it, and a text to translate (`in.txt`)."""
    folder = tmp_path_factory.mktemp("export")
    settings = [*write_corpus(folder), *SMALL["transformer"], "optim.lr=5e-3", "optim.warmup=20", "views.attention=false"]
    settings += ["trainer.max_steps=120", "trainer.validate_every=120", "data.tokenizer.plain_source=true"]
    ended = command(f"train name=run output_dir=. {' '.join(settings)}", folder)
    assert ended.code == 0, ended
    lines = (folder / "test.fr").read_text(encoding="utf-8").splitlines()
    (folder / "in.txt").write_text(
        "\n".join(
            [*lines, "", "\ufeffLe chat\u00a0voit  l\u2019a\u00admi\u00a0!", "LE CHAT SUIT L\u2019AMI.", " ".join(lines[:23])]
        )
        + "\n",
        encoding="utf-8",
    )
    return folder


@pytest.mark.parametrize("format", ["ctranslate2", pytest.param("huggingface", marks=pytest.mark.slow)])
def test_the_folder_translates_by_itself(format: str, trained: Path, tmp_path: Path) -> None:
    ended = command(f"export checkpoint=run format={format} output={tmp_path / 'new'}", trained)
    assert ended.code == 0 and "20 of 20 sentences are translated exactly as Entente translates them" in ended.out, ended
    assert sorted(path.suffix for path in (tmp_path / "new").iterdir() if path.suffix in (".md", ".py", ".spm")) == [
        *(".md", ".py", ".py", ".spm", ".spm")
    ]
    assert command("translate checkpoint=run input=in.txt output=out.txt", trained).code == 0
    code = "import sys, runpy; sys.modules['entente'] = None; runpy.run_path('translate.py', run_name='__main__')"
    program = [sys.executable, "-c", code]
    done = subprocess.run(program, input=(trained / "in.txt").read_bytes(), capture_output=True, cwd=tmp_path / "new")
    assert done.stdout == (trained / "out.txt").read_bytes(), done.stderr.decode()


def test_nothing_but_numbers_comes_from_the_model_into_a_script() -> None:
    for file in ("ctranslate2.py.txt", "huggingface.py.txt"):
        names = Template((Path(formats.__file__).parent / file).read_text(encoding="utf-8")).get_identifiers()
        assert {*names} == {"beam", "plain", "factor", "offset", "penalty"}


def test_int8_is_smaller_and_says_how_many_translations_are_equal(trained: Path, tmp_path: Path) -> None:
    sizes = []
    for quantization in ("null", "int8"):
        output = tmp_path / quantization
        ended = command(
            f"export checkpoint=run format=ctranslate2 quantization={quantization} output={output} input=in.txt", trained
        )
        assert ended.code == 0 and "of 20 sentences are translated exactly" in ended.out, ended
        sizes.append((output / "model.bin").stat().st_size)
    assert sizes[1] < 0.9 * sizes[0]


def test_a_package_that_is_not_installed_is_named(trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ctranslate2", None)  # importing ctranslate2 fails, as if it were not installed
    ended = command(f"export checkpoint={trained / 'run'} format=ctranslate2 output=new", tmp_path)
    line = "error: format=ctranslate2: the package ctranslate2 cannot be loaded .+; run pip install ctranslate2\n"
    assert ended.code == 2 and re.fullmatch(line, ended.err) and [*tmp_path.iterdir()] == []
