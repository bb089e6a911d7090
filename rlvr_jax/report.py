"""One self-contained HTML page about stored results: claims, tables, curves to explore, figures, specs, provenance.

Text and numbers are in the page itself, figures as SVG, and nothing is loaded from elsewhere.
"""

import json
import math
import os
import re
from collections.abc import Callable, Mapping, Sequence
from html import escape
from pathlib import Path
from string import Template
from typing import Any
from urllib.parse import quote

import numpy as np
import xarray as xr

from rlvr_jax import captions, words
from rlvr_jax.lecture import Findings
from rlvr_jax.lecture_tables import VERDICTS, Table
from rlvr_jax.spec import load, shipped
from rlvr_jax.stats.summaries import printed_mean
from rlvr_jax.table import decimals, labels_along, text_of
from rlvr_jax.types import InvalidInput

#: Bytes that a page may have, so that it can be mailed.
MOST_BYTES = 5_000_000

#: What may stand in a URL as it is; base64 would make figures a third larger.
UNQUOTED = " !'()*+,-./:;=?@[]^_{|}~"

#: Pixels of the page for a point of a figure.
MAGNIFIED = 2.0

#: Metrics that can be explored, and how they are called.
METRICS = {
    "accuracy": "accuracy (fraction correct)",
    "accuracy_by_level": "accuracy by level",
    "calls": "calls per problem",
    "call_prob": "call probability by context",
    "hack_rate": "hack rate (fraction)",
    "hack_rate_seen": "hack rate, trained prompts",
    "hack_rate_unseen": "hack rate, unseen prompts",
    "verifier_reward": "verifier's reward",
    "h": "tendency to hack (logit)",
    "zero_frac": "groups without signal (fraction)",
    "kl": "KL to the reference (nats)",
    "entropy": "entropy (nats)",
    "equal_outcome_frac": "groups of equal outcome (fraction)",
    "push_equal": "push on calling, groups of equal outcome",
    "push_mixed": "push on calling, groups of mixed outcome",
}

AXES = {
    "step": "training step",
    "call_cost": "cost of a call (reward)",
    "method": "method",
    "cold_start": "cold start",
    "reward_offset": "reward offset",
    "lr": "learning rate",
    "kl_coef": "weight of the KL penalty",
    "hack_reward": "verifier",
    "batch_size": "batch size",
    "group_size": "group size",
    "level": "level",
    "context": "context",
}

#: Values of parameters that move together, each in a word.
MEMBERS = {
    "call_cost": "cost {}",
    "reward_offset": "reward offset {}",
    "lr": "learning rate {}",
    "kl_coef": "KL weight {}",
    "batch_size": "batch size {}",
    "group_size": "group size {}",
}

#: What the page says beside the tables and the figures.
HEADINGS = (
    *("Results", "Tables and claims", "Explore", "Figures", "Specs", "Provenance"),
    *("study", "metric", "along", "by", "as", "curves", "map"),
    "Point at the chart, or press the arrow keys in it, to read the values; click a name to hide it.",
    "Values are means over seeds ± half-width of their 95 % t-interval, which bands show.",
)

#: What is known of the results, and how the page calls it.
FACTS = {
    "cells": "cells",
    "seeds": "seeds",
    "spec_sha256": "hash of the spec",
    "versions": "versions",
    "device_kind": "device kind",
    "wall_seconds": "seconds of training",
    "diverged": "diverged",
    "unfinished": "unfinished",
}


def write(findings: Findings, files: Mapping[str, Sequence[Path]], path: Path, language: str = "en") -> Path:
    """Write the page; figures with which it would be too large are links in it, the largest first.

    Args:
        findings: tables and verdicts.
        files: of each figure, as `rlvr_jax.lecture.draw` returns them.
        path: where to.
        language: of what the page says.

    Raises:
        InvalidInput: the page would be larger than `MOST_BYTES` without any figure.
    """
    names = {name for results in findings.studies.values() for name in words.names_in(results)}
    say: Callable[[str], str] = words.speaker(language, names) or str
    figures = {name: _figure(name, paths) for name, paths in files.items()}
    page = Template((Path(__file__).parent / "report.html").read_text(encoding="utf-8")).substitute(
        language=language,
        title=escape(say("Results")),
        contents="\n".join(
            f"<section><h2>{escape(say(heading))}</h2>\n{body}</section>"
            for heading, body in (
                ("Tables and claims", "\n".join(_table(table, say) for table in findings.tables)),
                ("Explore", '<div id="explore"></div>'),
                ("Figures", "\n".join(figures.values())),
                ("Specs", "\n".join(_spec(name, results) for name, results in findings.studies.items())),
                (
                    "Provenance",
                    "\n".join(_provenance(name, results, say) for name, results in findings.studies.items()),
                ),
            )
            if body
        ),
        data=_script_json(
            {
                "views": [view for name, results in findings.studies.items() for view in _views(name, results, say)],
                "words": {text: say(text) for text in HEADINGS},
            }
        ),
    )
    by_size = sorted(figures, key=lambda name: len(figures[name]))
    while len(page.encode()) > MOST_BYTES and by_size:
        largest = by_size.pop()
        beside = Path(os.path.relpath(next(iter(files[largest])), path.parent)).as_posix()
        page = page.replace(
            figures[largest], f'<p>{escape(largest)}: <a href="{escape(beside)}">{escape(beside)}</a></p>'
        )
    size = len(page.encode())
    if size > MOST_BYTES:
        raise InvalidInput(f"{path} would have {size / 1e6:.1f} MB; at most {MOST_BYTES / 1e6:.0f} are written")
    path.write_text(page, encoding="utf-8")
    return path


def _table(table: Table, say: Callable[[str], str]) -> str:
    good, bad = say(VERDICTS[True]), say(VERDICTS[False])
    marks = {good: ' class="good"', bad: ' class="bad"'}
    head = "".join(f"<th>{escape(text)}</th>" for text in table.heads)
    rows = [
        "".join(
            f"<td{' class=num' if i >= table.left else marks.get(text, '')}>{escape(text)}</td>"
            for i, text in enumerate(row)
        )
        for row in table.rows
    ]
    body = "\n".join(f"<tr>{row}</tr>" for row in rows)
    notes = "".join(f"<p class=note>{escape(note)}</p>" for note in table.notes)
    return f"<h3>{escape(table.title)}</h3>\n<div class=wide><table><tr>{head}</tr>\n{body}</table></div>{notes}"


def _figure(name: str, paths: Sequence[Path]) -> str:
    by_kind = {path.suffix: path for path in paths}
    facts = json.loads(by_kind[".json"].read_text(encoding="utf-8"))
    said = " ".join(facts[key] for key in ("what", "interval", "diverged", "unfinished") if key in facts)
    drawing = by_kind[".svg"].read_text(encoding="utf-8")
    (points,) = re.findall(r'<svg [^>]*?width="([\d.]+)pt"', drawing)
    image = quote(" ".join(drawing.split("\n")), safe=UNQUOTED)
    width = float(points) * MAGNIFIED
    return (
        f'<figure id="figure-{escape(name)}"><img style="width: {width:.0f}px" alt="{escape(said)}" '
        f'src="data:image/svg+xml,{image}">'
        f"<figcaption><b>{escape(name)}.</b> {escape(said)}</figcaption></figure>"
    )


def _spec(name: str, results: xr.Dataset) -> str:
    """What was run: the file that comes with the library where it is exactly that, else the canonical spec."""
    file = shipped().get(name)
    same = file is not None and load(file).grid().sha256 == results.attrs["spec_sha256"]
    text = file.read_text(encoding="utf-8") if file and same else json.dumps(json.loads(results.attrs["spec"]))
    return f"<details><summary>{escape(name)}</summary><pre>{escape(text)}</pre></details>"


def _provenance(name: str, results: xr.Dataset, say: Callable[[str], str]) -> str:
    facts = {"cells": f"{results['diverged_step'].size:,}", "seeds": f"{results.sizes.get('seed', 1):,}"}
    facts |= {key: str(value) for key, value in results.attrs.items() if key not in ("spec", "world")}
    rows = ((say(FACTS[key]), value) for key, value in facts.items())
    body = "".join(f"<tr><td>{escape(key)}</td><td>{escape(value)}</td></tr>" for key, value in rows)
    return f"<details><summary>{escape(name)}</summary><table>{body}</table></details>"


def _script_json(value: Any) -> str:
    """JSON that may stand inside of a script element."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).replace("</", "<\\/")


def _views(name: str, results: xr.Dataset, say: Callable[[str], str]) -> list[dict[str, Any]]:
    """What can be explored of a study: its means along any axis of numbers, by any other axis.

    At first along the axis with most values, and by method.
    """
    axes = [str(dim) for dim in results["diverged_step"].dims if dim != "seed"]
    axes += ["step"] if results.sizes.get("step", 0) > 1 else []
    held = results if "step" in axes or "step" not in results.dims else results.isel(step=-1)
    metrics = [metric for metric in METRICS if metric in held]
    numbers = {dim: at for dim in axes if (at := _numbers(held, dim)) is not None}
    if not metrics or not numbers:
        return []
    x = max(numbers, key=lambda dim: len(numbers[dim]))
    by = "method" if "method" in axes else next((dim for dim in axes if dim != x), x)
    return [
        {
            "name": name,
            "axes": [{**_axis(held, dim, say), "at": numbers.get(dim)} for dim in axes],
            "x": axes.index(x),
            "by": axes.index(by),
            "first": [held.sizes[dim] - 1 if dim == "step" else 0 for dim in axes],
            "metrics": [_metric(held, metric, axes, say) for metric in metrics],
        }
    ]


def _numbers(results: xr.Dataset, dim: str) -> list[float] | None:
    """Rising numbers that tell the entries along a dimension apart, if it has several and there are such."""
    for name in labels_along(results, dim):
        values = results[name].values if name in results.coords else np.array([])
        if len(values) > 1 and values.dtype.kind in "fiu" and (np.diff(values) > 0).all():
            return np.round(values.astype(float), 6).tolist()
    return None


def _axis(results: xr.Dataset, dim: str, say: Callable[[str], str]) -> dict[str, Any]:
    """What a dimension is called, and its entries."""
    names = [name for name in labels_along(results, dim) if name in results.coords]
    columns = [[_entry(name, value) for value in results[name].values] for name in names]
    if not columns:
        return {"label": dim, "values": [str(i) for i in range(results.sizes[dim])]}
    if len(columns) == 1:
        values = [say(text) for text in columns[0]]
    else:
        rows = zip(*columns, strict=True)
        values = [say(", ".join(map(_member, names, row))) for row in rows]
    return {"label": say(", ".join(AXES.get(name, name) for name in names)), "values": values}


def _entry(name: str, value: Any) -> str:
    if name == "hack_reward":
        return captions.verifier(value)
    return {"True": "yes", "False": "no"}.get(text_of(value), text_of(value))


def _member(name: str, text: str) -> str:
    return text if name in ("method", "hack_reward") else MEMBERS.get(name, f"{name} {{}}").format(text)


def _metric(results: xr.Dataset, metric: str, dims: Sequence[str], say: Callable[[str], str]) -> dict[str, Any]:
    """Means and half-widths, along ``dims`` and what the metric has besides; a mean has the digits that it can."""
    values = results[metric]
    more = [str(dim) for dim in values.dims if dim not in (*dims, "seed")]
    found = printed_mean(values).transpose(*dims, *more)
    means, halves = (found[name].values.ravel().tolist() for name in ("estimate", "half_width"))
    return {
        "label": say(METRICS[metric]),
        "extra": [
            {"label": say(AXES.get(dim, dim)), "values": [say(str(v)) for v in results[dim].values]} for dim in more
        ],
        "estimate": [_short(mean, decimals(half) if half > 0 else 4) for mean, half in zip(means, halves, strict=True)],
        "half_width": [_short(half, decimals(half) if half > 0 else 0) for half in halves],
    }


def _short(value: float, places: int) -> float | None:
    return round(value, places) if math.isfinite(value) else None
