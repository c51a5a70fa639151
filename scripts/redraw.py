"""Draws pages of `entente page` again with today's code, from the content and weights that they hold:

python scripts/redraw.py outputs/published/tatoeba/page.html outputs/published/grammar/page.html
"""

import json
import re
import sys
from pathlib import Path

from entente.console import exit_codes, start_log
from entente.errors import InputError
from entente.files import write_text
from entente.page import LIMIT, PATTERNS, render
from entente.settings import RunSettings


def redraw(page: str) -> str:
    """Returns the page with today's scripts and style. Settings that did not exist when it was made have their defaults."""
    [content] = re.findall(r'<script type="application/json" id="content">(.*?)</script>', page, re.DOTALL)
    values = {**json.loads(content), "patterns": PATTERNS, "limit": LIMIT}
    for model in values["models"]:
        model["settings"] = RunSettings(name="page", model=model["settings"]).model.model_dump(mode="json")
    return render(values, re.findall(r'<script type="text/plain" id="weights-\d+">(.*?)</script>', page, re.DOTALL))


if __name__ == "__main__":
    with exit_codes():
        start_log()
        if len(sys.argv) < 2:
            raise InputError("give pages: python scripts/redraw.py PAGE ...")
        for path in map(Path, sys.argv[1:]):
            write_text(path, redraw(path.read_text(encoding="utf-8")))
