"""Compares two ways in which the threads of an operation wait for each other:

    python scripts/waiting.py [transformer|birnn|beam] [BUSY PROGRAMS] [ROUNDS] [SECONDS]

In one process they spin (OpenMP's default), in another they sleep (OMP_WAIT_POLICY=PASSIVE). The processes take turns of some
seconds, next to programs that only compute: they train the recipe of `make train`, or translate with a beam of 5. Prints tokens
(for beam: sentences) per second, and the median of the ratios of adjacent turns.
"""

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from itertools import chain, repeat
from typing import Any

WAYS: dict[str, dict[str, str]] = {"spin": {}, "sleep": {"OMP_WAIT_POLICY": "PASSIVE"}}


def work(case: str) -> Callable[[], int]:
    """Returns a function that makes one step of training and returns its number of tokens, or translates some sentences and
    returns their number."""
    import torch

    from entente.cli import compose
    from entente.decoding.translate import translate
    from entente.evaluation import batch_loss
    from entente.process import prepare_process
    from entente.settings import RunSettings, SearchSettings
    from entente.training.optimiser import build_optimiser
    from entente.training.train import prepare
    from entente.validation import validate

    prepare_process(None, log_to_stderr=True)
    overrides = ["model=birnn"] if case == "birnn" else []
    settings = validate(RunSettings, compose("train", overrides).values)
    data, translator = prepare(settings)
    model, optimiser = translator.model.train(), build_optimiser(settings.optim, translator.model, fused=True)
    sentences, batches = data.pairs("valid")[:60]["src"], chain.from_iterable(repeat(data.train_dataloader()))

    def step() -> int:
        if case == "beam":
            return len(translate(model, translator.vocabulary, sentences, SearchSettings(beam=5)))
        loss, tokens = batch_loss(model, next(batches), settings.optim.label_smoothing)
        loss.smoothed.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), settings.trainer.gradient_clip)
        optimiser.step()
        optimiser.zero_grad()
        return tokens

    return step


def serve(case: str) -> None:
    """Answers each number of seconds on standard input with the speed over these seconds."""
    step = work(case)
    step()
    print(0.0, flush=True)
    for line in sys.stdin:
        began, tokens = time.perf_counter(), 0
        while time.perf_counter() < began + float(line):
            tokens += step()
        print(tokens / (time.perf_counter() - began), flush=True)


def compare(case: str, busy: int, rounds: int, seconds: float) -> None:
    speeds: dict[str, list[float]] = {way: [] for way in WAYS}
    processes: dict[str, Any] = {}
    for way, variables in WAYS.items():
        command = [sys.executable, __file__, "serve", case]
        environment = {**os.environ, **variables}
        processes[way] = subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        processes[way].stdout.readline()  # waits until it is ready
    programs: list[Any] = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(busy)]
    try:
        for number in range(rounds):
            for way in [*WAYS][:: 1 if number % 2 else -1]:
                print(seconds, file=processes[way].stdin, flush=True)
                speeds[way].append(float(processes[way].stdout.readline()))
    finally:
        for process in (*programs, *processes.values()):
            process.kill()
    ratios = [sleep / spin for spin, sleep in zip(*speeds.values(), strict=True)]
    medians = ", ".join(f"{way} {statistics.median(values):,.0f}" for way, values in speeds.items())
    print(f"{case}, {busy} busy programs: {medians} per second; sleep / spin {statistics.median(ratios):.2f}")


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["serve", case]:
            serve(case)
        case arguments:
            case, busy, rounds, seconds = [*arguments, *["transformer", "0", "9", "4"][len(arguments) :]]
            compare(case, int(busy), int(rounds), float(seconds))
