"""How well a topic's batches compress, as far as the last batches show."""

from __future__ import annotations

# Java's CompressionRatioEstimator: the estimate rises at once and sinks slowly, so that a batch
# rarely gets larger than estimated.
_RATIO_STEP_UP = 0.05
_RATIO_STEP_DOWN = 0.005


class CompressionRatio:
    """The expected compressed size of a topic's batches, as a fraction of the raw size."""

    __slots__ = ("value",)

    def __init__(self, value: float = 1.0) -> None:
        self.value = value

    def observe(self, ratio: float) -> None:
        if ratio > self.value:
            self.value = max(self.value + _RATIO_STEP_UP, ratio)
        elif ratio < self.value:
            self.value = max(self.value - _RATIO_STEP_DOWN, ratio)
