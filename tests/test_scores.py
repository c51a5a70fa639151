"""The scores of a corpus equal sacreBLEU's, with its tokenizer for the target language, and each bucket of source lengths gets
the BLEU of its own sentences."""

from pathlib import Path

import pytest
from sacrebleu import corpus_bleu, corpus_chrf, corpus_ter

from bad_inputs import run
from entente.ablation.runs import Run
from entente.errors import Stopped
from entente.evaluation import Evaluation, bleu_tokenizer, scores_table, write_translations
from entente.settings import EvaluationSettings, FilesSettings, RunSettings

SOURCES = ["a b", "a b c d e", "a b c d e f", " ".join("abcdefghijk"), "x " * 60]
REFERENCES = [
    "the cat sat on the mat today",
    "a dog barked at the old man",
    "birds sing",
    "it is late now here",
    "so it goes on",
]
HYPOTHESES = ["the cat sat on a mat today", "a dog barked at the young man", "birds sing", "it is early now", "so on"]


def test_scores_equal_those_of_sacrebleu() -> None:
    ours = Evaluation(SOURCES, REFERENCES, HYPOTHESES, nll=0.0, cut=0).scores("bleu", "chrf", "ter")
    for name, score in (("bleu", corpus_bleu), ("chrf", corpus_chrf), ("ter", corpus_ter)):
        assert ours[name] == score(HYPOTHESES, [REFERENCES]).score
        assert "version:" in ours["signature"][name]


def test_each_length_falls_into_its_bucket_and_each_bucket_has_the_bleu_of_its_sentences() -> None:
    sources = [" ".join("x" * n) for n in range(60)]  # the first source has no words
    references = [f"the {n} cats sat on the mat of {n % 7} dogs" for n in range(60)]
    hypotheses = [" ".join(line.split()[: 5 + n % 4]) for n, line in enumerate(references)]
    rows = Evaluation(sources, references, hypotheses, nll=0.0, cut=0).bleu_by_length()
    assert [row["words"] for row in rows] == ["1-5", "6-10", "11-15", "16-20", "21-30", "31-50", "51+"]
    bounds = [0, 6, 11, 16, 21, 31, 51, 60]
    for row, low, high in zip(rows, bounds, bounds[1:], strict=False):
        assert row["sentences"] == high - low
        assert row["bleu"] == corpus_bleu(hypotheses[low:high], [references[low:high]]).score


CHINESE = ["我们今天喜欢苹果。", "他每天买书。", "你想要茶。"]
LANGUAGES = {"zh": "zh zho_Hans zh-TW cmn", "char": "ja jpn ko th km-KH lo my", "13a": "fr en vi tr"}


@pytest.mark.parametrize("tokenize", LANGUAGES)
def test_bleu_fits_the_target_language(tokenize: str, tmp_path: Path) -> None:
    for language in LANGUAGES[tokenize].split():
        settings = RunSettings(name="r", data=FilesSettings(src="de", tgt=language, train="x"))
        assert bleu_tokenizer(settings, settings.evaluation) == tokenize, language
        assert bleu_tokenizer(settings, EvaluationSettings(tokenize="intl")) == "intl"
    hypotheses = [CHINESE[0].replace("喜欢", "想要"), *CHINESE[1:]]
    evaluation = Evaluation(CHINESE, CHINESE, hypotheses, nll=0.0, cut=0, tokenize=tokenize)
    metrics = evaluation.metrics(["chrf"])
    assert f"|tok:{tokenize}|" in metrics["signature"]["bleu"] and (metrics["bleu"] > 50) == (tokenize != "13a")
    assert [row["words"] for row in metrics["bleu_by_source_length"]] == ["1-5", "6-10"]
    assert scores_table({"test": metrics})[0] == ["split", "sentences", "BLEU", "chrF", "NLL"]
    write_translations(tmp_path, {"test": evaluation})
    trained = Run(tmp_path, {}, {"test": metrics})
    counts, _ = trained.counts("test")
    assert trained.bleu("test")._aggregate_and_compute(counts).score == metrics["bleu"]


def test_translations_are_kept_if_their_scoring_is_stopped(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(*_: object) -> None:
        raise Stopped(2)

    monkeypatch.setattr("entente.evaluation.TER._extract_corpus_statistics", stop)
    evaluate = "evaluate checkpoint=run trust_data=true split=valid output=scores"
    for command, code, place in (("train FILES name=new output_dir=.", 75, "new"), (evaluate, 130, "scores")):
        assert run(command, folder).code == code
        assert len((folder / place / "translations" / "valid.tsv").read_text().splitlines()) == 1 + 23
    assert run(f"{evaluate} evaluation.metrics=[]", folder).code == 0, "TER is not computed"
