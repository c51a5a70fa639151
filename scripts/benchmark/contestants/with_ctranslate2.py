# mypy: ignore-errors
"""Runs CTranslate2, which makes its own batches, on a converted model. The settings give the numbers of workers and threads."""

import importlib
import json
import sys
import time
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2]))

from benchmark.wire import Wire

ctranslate2 = importlib.import_module("ctranslate2")


def main():
    wire = Wire()
    spec = wire.settings
    translator = ctranslate2.Translator(
        spec["folder"],
        device=spec["device"],
        compute_type=spec["compute_type"],
        inter_threads=spec["workers"],
        intra_threads=spec["threads"],
    )
    sentences = json.loads(Path(spec["pieces"]).read_text(encoding="utf-8"))
    length = {"min_decoding_length": spec["length"], "max_decoding_length": spec["length"]} if spec["length"] else {}

    def burst(request):
        started = time.perf_counter()
        found = translator.translate_batch(
            sentences, max_batch_size=spec["batch"], batch_type="examples", beam_size=spec["beam"], **length
        )
        seconds = time.perf_counter() - started
        outputs = [result.hypotheses[0] for result in found]
        assert not spec["length"] or {len(output) for output in outputs} == {spec["length"]}
        answer = {"seconds": seconds, "sentences": len(found)}
        return {**answer, "outputs": outputs} if request.get("outputs") else answer

    wire.answer(version=ctranslate2.__version__, compute_type=translator.compute_type)
    wire.serve(burst)


if __name__ == "__main__":
    main()
