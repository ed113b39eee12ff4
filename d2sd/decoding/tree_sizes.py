"""How many nodes of a tree are worth their time, and how far one is grown to find out."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate
from math import exp, inf, log

from d2sd.decoding.costs import CHOICES, RunningCosts
from d2sd.decoding.gains import Ranks

OWN = 0.25  # weight of a step's own probabilities beside the usual ones
SURVEY = 4  # steps from one tree that is grown beyond what is verified to the next
CHANCE = 0.25  # share of a node's price that its own probability has to reach among the usual number of nodes …
MORE = 1.25  # … and up to so many times as many
LATER = 1.3  # of its price that a node has to be worth where no survey is: those that come with it are less likely


class TreeSizes:
    """Sizes of one generation's trees, at the rate, in tokens a second, that a second of time is worth.

    usual: of trees that are grown node by node, of many paths that may each be the accepted one. A chain is cut where it gets
    unsure, but paths spread over by a step's own chances are fewest where the text is hard, which is where one more saves most.
    """

    def __init__(self, costs: RunningCosts, usual: Ranks | None):
        self._costs, self._usual = costs, usual
        self._until_survey = 0
        self._needs: list[float] = []  # what ``_needed`` said at the last survey
        self._floors: list[float] = []  # the same as drafted log probabilities

    def best(self, reach: Sequence[float], rate: float) -> int:
        """How many nodes of these probabilities pay, taken in their order: all, or as many as make one of ``CHOICES``."""
        times, price = self._costs.by_nodes, rate * self._costs.slowdown
        gains = list(accumulate(reach, initial=0.0))
        sizes = (*CHOICES[: bisect_left(CHOICES, len(gains))], len(gains))
        return max(sizes, key=lambda nodes: gains[nodes - 1] - price * times[nodes]) - 1

    def least(self, most: int, rate: float, exponent: float) -> list[float]:
        """The drafted log probability below which a node is not worth its time, by the nodes that are there already, the
        anchor included; for 0 to ``most`` of them. Among as many as usual ``CHANCE`` of its price is enough.

        One tree in ``SURVEY`` is grown further, to see whether that pays; the next ones end where by that one no more does.
        exponent: κ, with which a drafted probability counts.
        """
        if self._until_survey:
            return self._floors
        price, joining, chance = log(rate * self._costs.slowdown), self._costs.joining, log(CHANCE)
        usual = MORE * (1 + self.best(self._usual.reach[:most], rate)) if self._usual is not None else 0.0
        floors = [-inf] * (most + 1)
        for nodes in CHOICES[: bisect_left(CHOICES, most + 1)]:  # to any other number a tree grows on
            floors[nodes] = min(0.0, price + joining[nodes] + (chance if nodes < usual else 0.0)) / exponent
        return floors

    def count(self, reach: Sequence[float], most: int, rate: float, exponent: float) -> int:
        """How many nodes of these probabilities, descending, to verify, at most ``most``."""
        reach = reach[:most]
        if self._usual is None:
            return self.best(reach, rate)
        if self._until_survey:
            self._until_survey -= 1
            grown = CHOICES[: bisect_left(CHOICES, 1 + len(reach))]
            return next((nodes - 1 for nodes in grown if reach[nodes - 1] < self._needs[nodes]), len(reach))
        count = self.best(self._usual.beside(reach, OWN), rate)
        self._usual.observe(reach)
        self._needs = self._needed(most, rate)
        self._floors = [log(need) / exponent if need > 0 else -inf for need in self._needs]
        self._until_survey = SURVEY - 1
        return count

    def _needed(self, most: int, rate: float) -> list[float]:
        """The probability that the next node of a tree needs, beside the usual one, to be worth its time; by the nodes that are
        there already, the anchor included; for 0 to ``most`` of them."""
        assert self._usual is not None
        usual, joining, needs = self._usual.reach, self._costs.joining, [0.0] * (most + 1)
        price = LATER * rate * self._costs.slowdown
        for nodes in CHOICES[: bisect_left(CHOICES, most + 1)]:
            mean = usual[nodes - 1] if nodes <= len(usual) else 0.0
            needs[nodes] = min(1.0, (price * exp(joining[nodes]) - (1 - OWN) * mean) / OWN)
        return needs
