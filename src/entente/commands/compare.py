"""Compare the variants of a suite, or any finished runs. Shows scores, significance, settings that differ and, for two runs,
errors.

  entente compare outputs/quick
  entente compare outputs/RUN outputs/OTHER
  entente compare outputs/RUN outputs/OTHER output=page samples=10000
"""

from pathlib import Path

from entente.ablation.report import report
from entente.ablation.runs import read_runs, read_suite
from entente.commands.settings import CompareSettings
from entente.console import start_log


def main(settings: CompareSettings) -> None:
    start_log()
    places = [Path(place) for place in ([settings.runs] if isinstance(settings.runs, str) else settings.runs)]
    suite = read_suite(places[0]) if len(places) == 1 else read_runs(places, Path(settings.output_dir))
    report(suite, Path(settings.output) if settings.output else suite.directory, settings.samples)
