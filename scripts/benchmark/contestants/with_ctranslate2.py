# mypy: ignore-errors
"""Runs CTranslate2, which makes its own batches, on a converted model. The settings give the numbers of workers and threads."""

import time

import ctranslate2

from benchmark.wire import Wire


def main():
    wire = Wire()
    spec = wire.settings
    translator = ctranslate2.Translator(spec["folder"], device=spec["device"], **spec["options"])
    options = {"max_batch_size": spec["batch"], "batch_type": "examples", "beam_size": spec["beam"]}
    if spec["length"]:
        options |= {"min_decoding_length": spec["length"], "max_decoding_length": spec["length"]}

    def burst(request):
        started = time.perf_counter()
        results = translator.translate_batch(spec["sources"], **options)
        answer = {"seconds": time.perf_counter() - started, "sentences": len(results)}
        outputs = [result.hypotheses[0] for result in results]
        assert not spec["length"] or {*map(len, outputs)} == {spec["length"]}
        return {**answer, "outputs": outputs} if request.get("outputs") else answer

    wire.serve(burst, version=ctranslate2.__version__, compute_type=translator.compute_type)


if __name__ == "__main__":
    main()
