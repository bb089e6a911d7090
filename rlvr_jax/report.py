"""One self-contained HTML page about stored results: claims, tables, curves to explore, figures, specs, provenance.

Text and numbers are in the page itself, figures as SVG, and nothing is loaded from elsewhere.
"""

import base64
import json
import re
from collections.abc import Callable, Mapping, Sequence
from html import escape
from pathlib import Path
from string import Template
from typing import Any

import numpy as np
import xarray as xr

from rlvr_jax import words
from rlvr_jax.lecture import Findings
from rlvr_jax.lecture_tables import VERDICTS, Table
from rlvr_jax.spec import load, shipped
from rlvr_jax.stats.summaries import printed_mean
from rlvr_jax.table import labels_along, text_of
from rlvr_jax.types import InvalidInput

#: Bytes that a page may have, so that it can be mailed.
MOST_BYTES = 5_000_000

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
    "level": "level",
    "context": "context",
    "run": "run",
}

#: What the page says beside the tables and the figures.
HEADINGS = (
    *("Results", "Tables and claims", "Explore", "Figures", "Specs", "Provenance", "study", "metric"),
    "Point at the chart to read the values; click a name to hide its curve.",
    "Bands are 95 % t-intervals of the mean over seeds.",
)


def write(findings: Findings, files: Mapping[str, Sequence[Path]], path: Path, language: str = "en") -> Path:
    """Write the page.

    Args:
        findings: tables and verdicts.
        files: of each figure, as `rlvr_jax.lecture.draw` returns them.
        path: where to.
        language: of what the page says.

    Raises:
        InvalidInput: the page would be larger than `MOST_BYTES`.
    """
    names = {name for results in findings.studies.values() for name in words.names_in(results)}
    say: Callable[[str], str] = words.speaker(language, names) or str
    page = Template((Path(__file__).parent / "report.html").read_text(encoding="utf-8")).substitute(
        language=language,
        title=escape(say("Results")),
        contents="\n".join(
            f"<section><h2>{escape(say(heading))}</h2>\n{body}</section>"
            for heading, body in (
                ("Tables and claims", "\n".join(_table(table, say) for table in findings.tables)),
                ("Explore", '<div id="explore"></div>'),
                ("Figures", "\n".join(_figure(name, paths) for name, paths in files.items())),
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
    drawing = by_kind[".svg"].read_bytes()
    (points,) = re.findall(rb'<svg [^>]*?width="([\d.]+)pt"', drawing)
    image = base64.b64encode(drawing).decode()
    width = float(points) * MAGNIFIED
    return (
        f'<figure id="figure-{escape(name)}"><img style="width: {width:.0f}px" alt="{escape(said)}" '
        f'src="data:image/svg+xml;base64,{image}">'
        f"<figcaption><b>{escape(name)}.</b> {escape(said)}</figcaption></figure>"
    )


def _spec(name: str, results: xr.Dataset) -> str:
    """What was run: the file that comes with the library where it is exactly that, else the canonical spec."""
    file = shipped().get(name)
    same = file is not None and load(file).grid().sha256 == results.attrs["spec_sha256"]
    text = file.read_text(encoding="utf-8") if file and same else json.dumps(json.loads(results.attrs["spec"]))
    return f"<details><summary>{escape(name)}</summary><pre>{escape(text)}</pre></details>"


def _provenance(name: str, results: xr.Dataset, say: Callable[[str], str]) -> str:
    cells = results["diverged_step"].size
    rows = {say("cells"): f"{cells:,}", say("seeds"): f"{results.sizes.get('seed', 1):,}"}
    rows |= {key: str(value) for key, value in results.attrs.items() if key not in ("spec", "world")}
    body = "".join(f"<tr><td>{escape(key)}</td><td>{escape(value)}</td></tr>" for key, value in rows.items())
    return f"<details><summary>{escape(name)}</summary><table>{body}</table></details>"


def _script_json(value: Any) -> str:
    """JSON that may stand inside of a script element."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).replace("</", "<\\/")


def _views(name: str, results: xr.Dataset, say: Callable[[str], str]) -> list[dict[str, Any]]:
    """What can be explored of a study: curves over training, or over the parameter with most values."""
    axes = [str(dim) for dim in results["diverged_step"].dims if dim != "seed"]
    metrics = [metric for metric in METRICS if metric in results]
    if not metrics:
        return []
    steps = results.sizes.get("step", 0)
    numeric = [
        dim for dim in axes if results.sizes[dim] > 2 and dim in results.coords and results[dim].dtype.kind in "fi"
    ]
    x = "step" if steps > 2 or not numeric else max(numeric, key=lambda dim: results.sizes[dim])
    if x == "step" and steps < 2:
        return []
    axes = [dim for dim in axes if dim != x]
    held = results if x == "step" else results.isel(step=-1)
    return [
        {
            "name": name,
            "x": {"label": say(AXES.get(x, x)), "values": np.round(held[x].values.astype(float), 6).tolist()},
            "axes": [{"label": say(AXES.get(dim, dim)), "values": _labels(held, dim, say)} for dim in axes],
            "curves": axes.index("method") if "method" in axes else 0,
            "metrics": [_metric(held, metric, [*axes, x], say) for metric in metrics],
        }
    ]


def _labels(results: xr.Dataset, dim: str, say: Callable[[str], str]) -> list[str]:
    names = labels_along(results, dim)
    columns = [[text_of(value) for value in results[name].values] for name in names if name in results.coords]
    if not columns:
        return [str(i) for i in range(results.sizes[dim])]
    if len(columns) == 1:
        words_of = {"True": say("yes"), "False": say("no")}
        return [words_of.get(text, text) for text in columns[0]]
    return [", ".join(row) for row in zip(*columns, strict=True)]


def _metric(results: xr.Dataset, metric: str, dims: Sequence[str], say: Callable[[str], str]) -> dict[str, Any]:
    values = results[metric]
    more = [str(dim) for dim in values.dims if dim not in (*dims, "seed")]
    found = printed_mean(values).transpose(*dims[:-1], *more, dims[-1])
    numbers = {"estimate": _short(found["estimate"].values, 4), "half_width": _short(found["half_width"].values, 2)}
    extra = [{"label": say(AXES.get(dim, dim)), "values": [say(str(v)) for v in results[dim].values]} for dim in more]
    return {"label": say(METRICS[metric]), "extra": extra, **numbers}


def _short(values: np.ndarray, digits: int) -> list[float | None]:
    return [float(f"{value:.{digits}g}") if np.isfinite(value) else None for value in values.ravel().tolist()]
