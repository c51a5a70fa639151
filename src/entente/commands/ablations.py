"""List the ablations with their models and claims. A claim is what a variant is trained to test.

entente ablations model=birnn
entente ablations model=transformer
entente ablations | grep residual
"""

import re
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from entente.cli import CONFIGS
from entente.commands.settings import AblationsSettings
from entente.errors import InputError
from entente.files import read_yaml
from entente.settings import BiRNNSettings, TransformerSettings
from entente.validation import validate

# The comment at the top of a file, up to a line that starts with a label other than "Claim:", such as "Defined:".
CLAIM = re.compile(r"# @.*\n# (?:Claim: )?(.+(?:\n# (?![A-Z]\w+(?::| \()).+)*)")


def main(settings: AblationsSettings) -> None:
    for path in sorted(CONFIGS.glob("ablation/*.yaml")):
        claim, models = CLAIM.match(path.read_text(encoding="utf-8")), models_of(read_yaml(path) or {})
        if settings.model in (None, *models):
            text = claim[1].replace("\n#", "") if claim else ""
            print(f"{path.stem:22}{', '.join(models):20}{text}".rstrip())


def models_of(ablation: Mapping[str, Any]) -> list[str]:
    """Returns the names of the models in which an ablation changes a setting."""
    changes, names = ablation.get("model", {}), list[str]()
    for kind in (TransformerSettings, BiRNNSettings):
        with suppress(InputError):  # the model has no such setting
            if not changes or validate(kind, changes) != kind():
                names.append(kind().name)
    return names
