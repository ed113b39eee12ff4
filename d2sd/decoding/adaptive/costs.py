"""Stage costs of a machine, corrected online by measured times."""

from __future__ import annotations

from functools import cache
from math import exp, log

from d2sd.costs.machines import Machine

MACHINE_RATE, STAGE_RATE = 0.05, 0.01  # share of a surprising time that is believed: of the machine, of the stage alone
OUTLIER, KEPT = 1.0, 0.999  # most that a single time counts, as a logarithm; what is left of an overhead after a step


class RunningCosts:
    """Stage times of a machine, corrected while running: seconds = slowdown · (table + overhead of the stage).

    A machine that slows down slows every stage. Overheads do not grow with rows; plain decoding's pass has its own.
    """

    def __init__(self, table: Machine):
        self.table, self.slowdown = table, 1.0
        self._node = cache(table.verify.next_row)
        self.cheapest = min(self._node(rows) for rows, _ in table.verify.points)  # of any further node
        self._read = cache(lambda stage, rows: getattr(table, stage).seconds(rows))
        self._overhead: dict[tuple[str, bool], float] = {}  # by stage and whether it is plain decoding's
        self.other = {True: table.other, False: table.other}  # of a step besides its stages, by whether it is plain

    def seconds(self, stage: str, rows: int) -> float:
        """Returns the expected seconds of a stage with this many rows; 0 for no rows."""
        if rows <= 0:
            return 0.0
        return self.slowdown * (self._read(stage, rows) + self._overhead.get((stage, rows == 1), 0.0))

    def node(self, nodes: int) -> float:
        """Returns the marginal seconds of one more tree node."""
        return self.slowdown * self._node(nodes)

    def plain(self) -> float:
        """Returns the expected seconds of a plain decoding step."""
        return self.seconds("verify", 1) + self.other[True]

    def observe(self, stage: str, rows: int, seconds: float) -> None:
        """Update with the measured seconds of a stage with this many rows."""
        expected, key = self.seconds(stage, rows), (stage, rows == 1)
        if min(expected, seconds) > 0:
            surprise = max(-OUTLIER, min(OUTLIER, log(seconds / expected)))
            overhead = KEPT * self._overhead.get(key, 0.0)
            self._overhead[key] = overhead + STAGE_RATE * surprise * expected / self.slowdown
            self.slowdown *= exp(MACHINE_RATE * surprise)

    def observe_other(self, plain: bool, seconds: float) -> None:
        """Update with the measured seconds of a step outside its stages."""
        most = 2 * self.other[plain] + 0.1 * self.plain()
        self.other[plain] += MACHINE_RATE * (max(0.0, min(seconds, most)) - self.other[plain])
