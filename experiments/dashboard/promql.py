"""A small part of PromQL: what the dashboard and the alert rules use, and nothing else.

It stands in for Prometheus, which the tests and the pictures do without. What is not understood is
an error, so that a typing error in a rule fails its test.
"""

from __future__ import annotations

import re
from collections import defaultdict
from math import inf, isnan, nan
from operator import eq, gt, lt, truediv
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Page", "PromqlError", "Query", "Selector", "parse"]

Labels: TypeAlias = frozenset[tuple[str, str]]
Vector: TypeAlias = dict[Labels, float]
Page: TypeAlias = dict[str, Vector]
"""A scrape: values by the name and the labels of their series."""

_Pages: TypeAlias = list[tuple[float, Page]]
_Evaluate: TypeAlias = "Callable[[_Pages], Vector | float]"

_TOKEN = re.compile(
    r"\s*(?:(?P<name>[A-Za-z_:][A-Za-z0-9_:]*)|(?P<number>\d+(?:\.\d+)?)"
    r'|(?P<text>"[^"\\]*")|(?P<range>\[(?:\d+[smh]|\$__rate_interval)\])'
    r"|(?P<sign>=~|!=|==|[-+*/<>(){},=]))"
)
_AGGREGATES: dict[str, Callable[[list[float]], float]] = {"sum": sum, "max": max}
_COMPARISONS: dict[str, Callable[[float, float], bool]] = {"==": eq, ">": gt, "<": lt}
_RANGES = {"s": 1.0, "m": 60.0, "h": 3600.0}
_RATE_INTERVAL_S = 60.0  # Grafana: four times the scrape interval at least


class PromqlError(ValueError):
    """An expression is wrong, or uses more of PromQL than this module knows."""


class Selector(NamedTuple):
    """A metric that an expression reads."""

    metric: str
    labels: frozenset[str]
    """The labels that it matches."""


class Query(NamedTuple):
    """An expression, ready to be evaluated."""

    selectors: list[Selector]
    grouped_by: set[str]
    """The labels by which it aggregates or joins."""
    evaluate: Callable[[_Pages], Vector | float]
    """Called with the scrapes up to the moment of the evaluation, each with its time in seconds."""


def parse(text: str) -> Query:
    """Raises PromqlError."""
    return _Parser(text).query()


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens: list[tuple[str, str]] = []
        place = 0
        while text[place:].strip():
            found = _TOKEN.match(text, place)
            if found is None or found.lastgroup is None:
                raise PromqlError(f"{text!r}: unexpected {text[place : place + 20]!r}")
            self._tokens.append((found.lastgroup, found[found.lastgroup]))
            place = found.end()
        self._place = 0
        self._selectors: list[Selector] = []
        self._grouped_by: set[str] = set()

    def query(self) -> Query:
        evaluate = self._conjunction()
        if self._place < len(self._tokens):
            raise self._unexpected()
        return Query(self._selectors, self._grouped_by, evaluate)

    # --- tokens -------------------------------------------------------------------------------

    def _peek(self) -> str:
        return self._tokens[self._place][1] if self._place < len(self._tokens) else ""

    def _kind(self) -> str:
        return self._tokens[self._place][0] if self._place < len(self._tokens) else "end"

    def _take(self, kind: str) -> str:
        if self._kind() != kind:
            raise self._unexpected(kind)
        self._place += 1
        return self._tokens[self._place - 1][1]

    def _expect(self, token: str) -> None:
        if self._peek() != token:
            raise self._unexpected(token)
        self._place += 1

    def _accept(self, token: str) -> bool:
        found = self._peek() == token
        self._place += found
        return found

    def _unexpected(self, wanted: str = "the end") -> PromqlError:
        return PromqlError(f"{self._text!r}: expected {wanted}, found {self._peek()!r}")

    # --- grammar ------------------------------------------------------------------------------

    def _conjunction(self) -> _Evaluate:
        left = self._comparison()
        if not self._accept("and"):
            return left
        right = self._conjunction()
        return lambda pages: {
            labels: value
            for labels, value in _vector(left(pages)).items()
            if labels in _vector(right(pages))
        }

    def _comparison(self) -> _Evaluate:
        left = self._difference()
        sign = self._peek()
        if sign not in _COMPARISONS:
            return left
        self._place += 1
        limit, holds = float(self._take("number")), _COMPARISONS[sign]
        return lambda pages: {
            labels: value for labels, value in _vector(left(pages)).items() if holds(value, limit)
        }

    def _difference(self) -> _Evaluate:
        left = self._quotient()
        if not self._accept("-"):
            return left
        right = self._quotient()
        return lambda pages: _joined(left(pages), right(pages), lambda one, two: one - two, None)

    def _quotient(self) -> _Evaluate:
        left = self._term()
        if not self._accept("/"):
            return left
        on = None
        if self._accept("on"):
            on = self._names()
            self._expect("group_left")
            self._names()
        right = self._term()
        return lambda pages: _joined(left(pages), right(pages), truediv, on)

    def _term(self) -> _Evaluate:
        if self._kind() == "number":
            number = float(self._take("number"))
            return lambda _pages: number
        if self._accept("("):
            inner = self._comparison()
            self._expect(")")
            return inner
        name = self._take("name")
        if name in _AGGREGATES:
            return self._aggregate(_AGGREGATES[name])
        if name in ("rate", "increase"):
            return self._rate(per_second=name == "rate")
        if name in ("histogram_quantile", "topk"):
            self._expect("(")
            number = float(self._take("number"))
            self._expect(",")
            inner = self._comparison()
            self._expect(")")
            of = _quantiles if name == "histogram_quantile" else _largest
            return lambda pages: of(number, _vector(inner(pages)))
        if self._peek() == "(":
            raise PromqlError(f"{self._text!r}: no function {name!r} here")
        return self._selector(name)

    def _aggregate(self, aggregate: Callable[[list[float]], float]) -> _Evaluate:
        self._expect("by")
        by = self._names()
        self._expect("(")
        inner = self._comparison()
        self._expect(")")

        def evaluate(pages: _Pages) -> Vector:
            groups: defaultdict[Labels, list[float]] = defaultdict(list)
            for labels, value in _vector(inner(pages)).items():
                groups[_only(labels, by)].append(value)
            return {labels: aggregate(values) for labels, values in groups.items()}

        return evaluate

    def _rate(self, *, per_second: bool) -> _Evaluate:
        self._expect("(")
        select = self._selector(self._take("name"))
        words = self._take("range")[1:-1]
        span = _RATE_INTERVAL_S if words[0] == "$" else float(words[:-1]) * _RANGES[words[-1]]
        self._expect(")")

        def evaluate(pages: _Pages) -> Vector:
            end = pages[-1][0]
            within = [page for page in pages if page[0] >= end - span]
            first, last = _vector(select(within[:1])), _vector(select(within))
            seconds = end - within[0][0]
            if not seconds:
                return {}
            return {
                labels: max(value - first.get(labels, 0.0), 0.0)
                * (1 / seconds if per_second else span / seconds)
                for labels, value in last.items()
            }

        return evaluate

    def _selector(self, metric: str) -> _Evaluate:
        wanted: dict[str, re.Pattern[str]] = {}
        if self._accept("{"):
            while not self._accept("}"):
                label = self._take("name")
                exact = self._accept("=")
                if not exact:
                    self._expect("=~")
                pattern = self._take("text")[1:-1]
                pattern = ".*" if pattern.startswith("$") else pattern  # Grafana's variables: all
                wanted[label] = re.compile(re.escape(pattern) if exact else pattern)
                if self._peek() != "}":
                    self._expect(",")
        self._selectors.append(Selector(metric, frozenset(wanted)))

        def evaluate(pages: _Pages) -> Vector:
            return {
                labels: value
                for labels, value in pages[-1][1].get(metric, {}).items()
                if all(each.fullmatch(dict(labels).get(n, "")) for n, each in wanted.items())
            }

        return evaluate

    def _names(self) -> frozenset[str]:
        self._expect("(")
        names = []
        while not self._accept(")"):
            names.append(self._take("name"))
            if self._peek() != ")":
                self._expect(",")
        self._grouped_by.update(names)
        return frozenset(names)


def _vector(value: Vector | float) -> Vector:
    if isinstance(value, float):
        raise PromqlError(f"expected series, found the number {value}")
    return value


def _only(labels: Labels, names: frozenset[str]) -> Labels:
    return frozenset(label for label in labels if label[0] in names)


def _joined(
    left: Vector | float,
    right: Vector | float,
    operation: Callable[[float, float], float],
    on: frozenset[str] | None,
) -> Vector:
    by_label = _vector(right)

    def partner(labels: Labels) -> Labels:
        return labels if on is None else _only(labels, on)

    if isinstance(left, float):
        return {labels: operation(left, value) for labels, value in by_label.items()}
    return {
        labels: operation(value, by_label[partner(labels)]) if by_label[partner(labels)] else nan
        for labels, value in left.items()
        if partner(labels) in by_label
    }


def _largest(number: float, series: Vector) -> Vector:
    ranked = sorted(series.items(), key=lambda each: each[1], reverse=True)
    return dict(ranked[: int(number)])


def _quantiles(part: float, series: Vector) -> Vector:
    """As Prometheus does: interpolated within the bucket."""
    histograms: defaultdict[Labels, dict[float, float]] = defaultdict(dict)
    for labels, value in series.items():
        others = frozenset(label for label in labels if label[0] != "le")
        histograms[others][float(dict(labels)["le"])] = value
    found = {labels: _quantile(part, below) for labels, below in histograms.items()}
    return {labels: value for labels, value in found.items() if not isnan(value)}


def _quantile(part: float, below: dict[float, float]) -> float:
    total = below.get(inf, 0.0)
    if not total:
        return nan
    lower, count = 0.0, 0.0
    for bound in sorted(below):
        if below[bound] >= part * total:
            if bound == inf:
                return lower
            return lower + (bound - lower) * (part * total - count) / (below[bound] - count)
        lower, count = bound, below[bound]
    return lower
