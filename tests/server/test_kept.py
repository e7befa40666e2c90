"""All state that peers can make grow is accounted for: growing attributes are found in the code and must be listed."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.growth import GROWTH, NOT_BY_PEERS, PASSING, as_table

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src/penstock"
ROOMS = ("core", "journal", "server", "wire")
GROWING = {"Counter", "Ordered", "OrderedDict", "array", "bytearray", "defaultdict", "deque", "dict", "list", "set"}


def makes_a_container(value: ast.expr | None) -> bool:
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Name):
        return value.func.id in GROWING
    return isinstance(value, ast.Dict | ast.DictComp | ast.List | ast.ListComp | ast.Set | ast.SetComp)


def says_container(annotation: ast.expr | None) -> bool:
    if isinstance(annotation, ast.Constant):
        annotation = ast.parse(str(annotation.value), mode="eval").body
    return annotation is not None and any(
        isinstance(node, ast.Name) and node.id in GROWING for node in ast.walk(annotation)
    )


def growing_attributes(tree: ast.Module) -> Iterator[str]:
    """Attributes created or declared with a type that can grow, as Class.attribute."""
    for scope in (node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)):
        for node in ast.walk(scope):
            if isinstance(node, ast.AnnAssign):
                grows = says_container(node.annotation) or makes_a_container(node.value)
                targets: list[ast.expr] = [node.target]
            elif isinstance(node, ast.Assign):
                grows, targets = makes_a_container(node.value), node.targets
            else:
                continue
            for target in targets if grows else ():
                if isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name):
                    if target.value.id == "self":
                        yield f"{scope.name}.{target.attr}"
                elif isinstance(target, ast.Name) and isinstance(node, ast.AnnAssign) and node in scope.body:
                    yield f"{scope.name}.{target.id}"


def in_the_code() -> set[str]:
    names = set()
    for room in ROOMS:
        for path in (SOURCE / room).rglob("*.py"):
            module = path.relative_to(SOURCE).with_suffix("").as_posix()
            names |= {f"{module}:{name}" for name in growing_attributes(ast.parse(path.read_text()))}
    return names


def is_passing(place: str) -> bool:
    return place.partition(":")[0] in PASSING or place.partition(".")[0] in PASSING


def test_everything_that_can_grow_is_listed() -> None:
    listed = {place for kept in GROWTH for place in kept.places} | NOT_BY_PEERS.keys()
    missing = {place for place in in_the_code() - listed if not is_passing(place)}
    assert not missing, "what bounds these? Add them to tests/support/growth.py and docs/limits.md"


def test_listed_attributes_exist_and_are_unique() -> None:
    places = [place for kept in GROWTH for place in kept.places] + list(NOT_BY_PEERS)
    assert set(places) <= in_the_code()
    assert [place for place, times in Counter(places).items() if times > 1] == []
    known = {place.partition(":")[0] for place in in_the_code()}
    assert {module.partition(":")[0] for module in PASSING} <= known


def test_the_page_shows_the_list() -> None:
    assert as_table() in (ROOT / "docs/limits.md").read_text()


@pytest.mark.parametrize(
    "line", ["self.things = {}", "self.things: list[int] = []", "self.things = deque()", "self.things: 'set[int]' = x"]
)
def test_a_new_one_is_found(line: str) -> None:
    tree = ast.parse(f"class Session:\n    def __init__(self):\n        {line}\n")
    assert list(growing_attributes(tree)) == ["Session.things"]
