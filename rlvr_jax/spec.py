"""Spec files: a grid written in TOML means exactly what the same arguments of `rlvr_jax.sweep` mean.

    world = "bandit"
    steps = 600
    lr = 0.5
    [parameters]
    method = ["rloo", "grpo"]
    seed = { range = [0, 64] }
    [tied.run]
    batch_size = [64, 32]
    group_size = [4, 8]

Keys above the first table are the fixed arguments, ``[parameters]`` holds the axes, and ``[tied.NAME]`` an axis along
which several parameters move together. This module only reads; what the values may be is checked by `rlvr_jax.grid`.
"""

import re
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlvr_jax.grid import Grid, make_grid, nearest
from rlvr_jax.shipped import folder
from rlvr_jax.types import InvalidInput, World, whole

if TYPE_CHECKING:
    import xarray as xr

#: Top-level keys that are no parameter of a world.
KEYS = ("world", "steps", "eval_every", "eval_steps", "keep", "precision", "parameters", "tied")


@dataclass(frozen=True)
class Spec:
    """The arguments of `rlvr_jax.sweep`, and where they came from.

    Attributes:
      name: The file's name without its suffix.
      source: The file as it was named, for messages.
      world: Name of the world.
      parameters: The axes by parameter.
      tied: The axes along which several parameters move together.
      fixed: Every other argument.
    """

    name: str
    source: str
    world: str
    parameters: Mapping[str, Any]
    tied: Mapping[str, Mapping[str, Any]]
    fixed: Mapping[str, Any]

    def grid(self) -> Grid:
        """The validated grid.

        Raises:
          InvalidInput: For what cannot be meant; the sentence begins with the file.
        """
        world = _world(self)
        _check_names(self, world)
        with self.naming():
            grid = make_grid(world, self.parameters, tied=self.tied, **self._arguments(world))
            _ = grid.columns  # where combinations are refused
            return grid

    def sweep(self, progress: bool | None = None) -> "xr.Dataset":
        """Runs it; see `rlvr_jax.sweep`, whose errors begin with the file here."""
        from rlvr_jax.results import sweep

        world = _world(self)
        _check_names(self, world)
        with self.naming():
            return sweep(self.world, self.parameters, tied=self.tied, progress=progress, **self._arguments(world))

    def _arguments(self, world: World) -> dict[str, Any]:
        """The fixed arguments; a path of a data set that stands in the file is meant from the file's folder."""
        folder = Path(self.source).parent
        known = world.parameters
        return {
            name: str(folder / value) if isinstance(value, str) and name in known and known[name].record else value
            for name, value in self.fixed.items()
        }

    @contextmanager
    def naming(self) -> Iterator[None]:
        """Puts the file in front of the sentence of an `InvalidInput`."""
        try:
            yield
        except InvalidInput as error:
            raise InvalidInput(f"{self.source}: {error}") from None

    def with_seeds(self, number: int) -> "Spec":
        """The same with the seeds 0 to ``number`` - 1, whatever it has.

        Raises:
          InvalidInput: If ``number`` is below 1 or seeds move along a tied axis.
        """
        return self.with_value("seed", {"range": [0, whole("seeds", number, 1)]})

    def with_value(self, name: str, value: Any) -> "Spec":
        """The same with another value or axis of ``name``, in place of a value or an axis.

        A list, or a table with ``values``, ``range`` or ``min`` and ``max``, makes a parameter an axis; change points
        of a schedule are one value. An axis keeps its place, a new one comes last. Where ``steps`` shortens the
        training, listed ``eval_steps`` beyond its end are left out.

        Raises:
          InvalidInput: If ``name`` is unknown or moves along a tied axis; values are checked by `grid`.

        >>> spec = load("baselines").with_value("lr", [0.1, 0.2]).with_value("reward_offset", 1.0)
        >>> list(spec.parameters), spec.fixed["reward_offset"]
        (['method', 'seed', 'lr'], 1.0)
        """
        world = _world(self)
        settable = {*world.parameters, *KEYS} - {"world", "parameters", "tied"}
        if name not in settable:
            raise InvalidInput(f"{name!r} cannot be set in {self.source}; {nearest(name, settable)}")
        for dim, members in self.tied.items():
            if name in members:
                others = ", ".join(other for other in members if other != name)
                raise InvalidInput(
                    f"{name} moves along the tied axis {dim!r} of {self.source} together with {others}; "
                    "edit a copy of the file to change it"
                )
        parameters, fixed = dict(self.parameters), dict(self.fixed)
        if name in world.parameters and _is_axis(value):
            fixed.pop(name, None)
            parameters[name] = value
        else:
            parameters.pop(name, None)
            path = isinstance(value, str) and name in world.parameters and world.parameters[name].record
            fixed[name] = str(Path(value).absolute()) if path else value  # given here, not in the file
        listed = fixed.get("eval_steps")
        if name == "steps" and isinstance(value, int) and isinstance(listed, list):
            fixed["eval_steps"] = [step for step in listed if not isinstance(step, int) or step <= value]
        return replace(self, parameters=parameters, fixed=fixed)


def load(path: str | Path) -> Spec:
    """Reads a spec file.

    Args:
      path: A path, or the bare name of a spec that comes with the library.

    Raises:
      InvalidInput: If there is no such file, it is no TOML, or its tables are not those of a spec.

    >>> load("baselines").fixed["steps"]
    600
    """
    file = _find(path)
    try:
        content = tomllib.loads(file.read_bytes().decode())
    except OSError as error:
        raise InvalidInput(f"{file} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise InvalidInput(f"{file} is no text in UTF-8, which TOML must be") from None
    except RecursionError:
        raise InvalidInput(f"{file} is no valid TOML: its lists are nested too deeply") from None
    except tomllib.TOMLDecodeError as error:
        raise InvalidInput(f"{file} is no valid TOML: {_placed(error, file)}") from None
    except ValueError:
        raise InvalidInput(f"{file} is no valid TOML: a number in it has thousands of digits") from None
    for key in ("parameters", "tied"):
        if not isinstance(content.get(key, {}), dict):
            raise InvalidInput(f"{file}: {key} is {content[key]!r}; it must be a table, [{key}]")
    for dim, members in content.get("tied", {}).items():
        if not isinstance(members, dict):
            raise InvalidInput(f"{file}: tied has {dim} = {members!r}; a tied axis is a table of its own, [tied.NAME]")
    if "world" not in content:
        similar = [key for key in content if key not in KEYS and nearest(key, ["world"]).startswith("did")]
        hint = f"; {similar[0]!r} is perhaps meant" if similar else ""
        raise InvalidInput(f'{file}: world is missing; write for example world = "bandit"{hint}')
    fixed = {key: value for key, value in content.items() if key not in ("world", "parameters", "tied")}
    return Spec(file.stem, str(file), content["world"], content.get("parameters", {}), content.get("tied", {}), fixed)


def value(text: str) -> Any:
    """A TOML value from a command line; a bare word is text, as a shell takes its quotes away.

    >>> value("0.1"), value("[1, 2]"), value("{ range = [0, 4] }"), value("grpo")
    (0.1, [1, 2], {'range': [0, 4]}, 'grpo')

    Raises:
      InvalidInput: If it is neither.
    """
    try:
        content = tomllib.loads(f"value = {text}")
    except (ValueError, RecursionError):
        content = {}
    if set(content) == {"value"}:
        return content["value"]
    if re.fullmatch(r"[A-Za-z_][A-Za-z0-9_.-]*", text):
        return text
    raise InvalidInput(f'{text!r} is no TOML value; write 0.1, [0.1, 0.2], "text" or {{ range = [0, 8] }}')


def shipped() -> dict[str, Path]:
    """The specs that come with the library, by name."""
    return {file.stem: file for file in sorted(folder("sweeps").glob("*.toml"))}


def about(file: Path) -> str:
    """The first line of a spec file, which says what it shows."""
    with file.open(encoding="utf-8") as lines:
        return lines.readline().lstrip("# ").strip()


def _placed(error: ValueError, file: Path) -> str:
    """The parser's sentence, with line and column also where it only says that the file ended too early."""
    lines = file.read_text(encoding="utf-8").split("\n")
    return str(error).replace("end of document", f"line {len(lines)}, column {len(lines[-1]) + 1}, the end of the file")


def _find(path: str | Path) -> Path:
    file, specs = Path(path), shipped()
    if file.is_file():
        return file
    if str(path) in specs:
        return specs[str(path)]
    if file.is_dir():
        raise InvalidInput(f"{path} is a folder; give a spec file or the name of a shipped spec")
    hint = nearest(file.stem, specs)
    raise InvalidInput(f"there is no spec file {str(path)!r}, and none of that name is shipped; {hint}")


def _world(spec: Spec) -> World:
    from rlvr_jax.worlds import world  # here: worlds import JAX

    with spec.naming():
        return world(spec.world)


def _check_names(spec: Spec, world: World) -> None:
    """Refuses unknown keys with their place and value, before a misspelt ``steps`` is called missing."""
    for key, given in spec.fixed.items():
        if key not in KEYS and key not in world.parameters:
            hint = nearest(key, {*KEYS, *world.parameters})
            raise InvalidInput(f"{spec.source}: {key} = {given!r} is no argument of the world {world.name!r}; {hint}")
    tables = {"parameters": spec.parameters} | {f"tied.{dim}": members for dim, members in spec.tied.items()}
    for table, members in tables.items():
        for key, given in members.items():
            # a list of steps is a wish that the grid answers
            if key in KEYS and not (key == "steps" and isinstance(given, list | dict)):
                place = f"{key} = {given!r} is in [{table}]"
                raise InvalidInput(f"{spec.source}: {place}; it belongs above the first table")
            if key not in KEYS and key not in world.parameters:
                hint = nearest(key, world.parameters)
                raise InvalidInput(
                    f"{spec.source}: [{table}] has {key} = {given!r}, no parameter of the world {world.name!r}; {hint}"
                )


def _is_axis(value: Any) -> bool:
    if isinstance(value, dict):
        return set(value) != {"name", "schedule"}
    return isinstance(value, list) and not (value and all(isinstance(entry, list) for entry in value))
