"""Chinese for what tables, claims and figures say: one table from English, with ``#`` for each number.

A text is looked up as it stands; then with ``#`` in place of its numbers, which are filled in again in their order;
then part by part, at line breaks, colons, commas and slashes. What names things, such as a method, stays as it is.
"""

import re
from collections.abc import Iterable
from typing import Any

from rlvr_jax.types import InvalidInput

LANGUAGES = ("en", "zh")

NUMBER = re.compile(r"(?<![A-Za-z_\d.])[-−]?\d[\d,]*(?:\.\d+)?(?:e[-+]?\d+)?")

#: Where a text falls into parts, and what joins them in Chinese.
JOINTS = (("\n", "\n"), ("; ", "；"), (": ", "："), (", ", "，"), (" / ", " / "), (" × ", " × "))


class Speaker:
    """Says texts in Chinese.

    Attributes:
        missing: Texts that were asked for, are not in the table, and so stayed English.
    """

    def __init__(self, names: Iterable[str] = ()):
        self.names, self.missing = set(names), set[str]()

    def __call__(self, text: str) -> str:
        """The text in Chinese.

        >>> Speaker()("cost 0.02: accuracy")
        '代价 0.02：准确率'
        """
        said = self._said(text)
        if said is None:
            self.missing.add(text)
            return text
        return said

    def _said(self, text: str) -> str | None:
        bare = re.sub(r"\$[^$]*\$", "", text)  # a formula speaks for itself
        if text in CHINESE:
            return CHINESE[text]
        if text in self.names or not re.search(r"[A-Za-z]{2}", bare) or re.search(r"[一-鿿]", text):
            return text
        numbers = NUMBER.findall(text)
        pattern = NUMBER.sub("#", text)
        if numbers and pattern in CHINESE:
            given = iter(numbers)
            return re.sub("#", lambda _: next(given), CHINESE[pattern])
        for joint, joined in JOINTS:
            if joint in text:
                parts = [self._said(part) for part in text.split(joint)]
                if all(part is not None for part in parts):
                    return joined.join(part for part in parts if part is not None)
        return None


def speaker(language: str, results: Any = None) -> Speaker | None:
    """What says texts in a language; None for English, in which they are written.

    Args:
        language: One of `LANGUAGES`.
        results: A Dataset whose methods keep their names.

    Raises:
        InvalidInput: If the language is unknown.
    """
    if language not in LANGUAGES:
        raise InvalidInput(f"language is {language!r}; it must be one of {', '.join(LANGUAGES)}")
    if language == "en":
        return None
    held = results is not None and "method" in results.coords
    return Speaker(results["method"].values.ravel().tolist() if held else ())


CHINESE: dict[str, str] = {
    "accuracy": "准确率",
    "cost #": "代价 #",
}
