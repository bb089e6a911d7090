"""Options that several subcommands share, and how their values are read and shown."""

import re
from collections.abc import Sequence
from typing import Annotated

import tyro

from rlvr_jax import spec as specs
from rlvr_jax.types import InvalidInput


def _whole(text: list[str]) -> int:
    if re.fullmatch(r"\d{1,9}", text[0]) and int(text[0]) > 0:
        return int(text[0])
    raise ValueError(f"{text[0]!r} is no whole number from 1 to 999,999,999")


#: A whole number that may be left out.
Count = Annotated[
    int | None,
    tyro.constructors.PrimitiveConstructorSpec(
        nargs=1,
        metavar="N",
        instance_from_str=_whole,
        is_instance=lambda x: x is None or isinstance(x, int),
        str_from_instance=lambda x: ["not given" if x is None else str(x)],
    ),
]
Assignments = Annotated[tyro.conf.UseAppendAction[tuple[str, ...]], tyro.conf.arg(metavar="NAME=VALUE")]
SpecName = Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="SPEC")]
Flag = tyro.conf.FlagCreatePairsOff[bool]


def _size(text: list[str]) -> int:
    found = re.fullmatch(r"(\d{1,6}(?:\.\d+)?) *([kMGT]?B)", text[0])
    if found and float(found[1]) > 0:
        return int(float(found[1]) * 1000 ** "BkMGT".index(found[2][0]))
    raise ValueError(f"{text[0]!r} is no size; write for example 4GB or 512MB")


#: Bytes that may be left out.
Size = Annotated[
    int | None,
    tyro.constructors.PrimitiveConstructorSpec(
        nargs=1,
        metavar="SIZE",
        instance_from_str=_size,
        is_instance=lambda x: x is None or isinstance(x, int),
        str_from_instance=lambda x: ["half of what is free" if x is None else str(x)],
    ),
]


def changed(name: str, seeds: int | None, assignments: Sequence[str]) -> specs.Spec:
    """A spec with ``--seeds`` and ``--set`` applied."""
    spec, given = specs.load(name), set()
    if seeds is not None:
        spec, given = spec.with_seeds(seeds), {"seed"}
    for assignment in assignments:
        key, equals, text = (part.strip() for part in assignment.partition("="))
        if not equals or not key:
            raise InvalidInput(f"--set {assignment}: write NAME=VALUE, such as lr=0.1 or 'lr=[0.1, 0.2]'")
        if key in given:
            raise InvalidInput(f"--set {assignment}: {key} is given twice")
        given.add(key)
        try:
            spec = spec.with_value(key, specs.value(text))
        except InvalidInput as error:
            raise InvalidInput(f"--set {assignment}: {error}") from None
    return spec


def counted(number: int, noun: str) -> str:
    """A number with its noun.

    >>> counted(1, "cell"), counted(1234, "cell")
    ('1 cell', '1,234 cells')
    """
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
