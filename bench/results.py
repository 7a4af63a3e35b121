"""The numbers of all rounds, and the one number that represents them."""

from measure import Metrics


class Results:
    """Every number that was measured, by engine, metric and variant."""

    def __init__(self) -> None:
        self._samples: dict[str, dict[str, dict[str, list[float]]]] = {}

    def add(self, engine: str, metrics: Metrics) -> None:
        """Keep what one process of one round measured."""
        kept = self._samples.setdefault(engine, {})
        for metric, variants in metrics.items():
            for variant, number in variants.items():
                kept.setdefault(metric, {}).setdefault(variant, []).append(number)

    def variants(self, engine: str, metric: str) -> dict[str, float]:
        """Return the minimum over all rounds for each variant of the engine."""
        return {name: min(samples) for name, samples in self._samples.get(engine, {}).get(metric, {}).items()}

    def best(self, engine: str, metric: str) -> float | None:
        """Return the engine's number: its best variant in its best round."""
        return min(self.variants(engine, metric).values(), default=None)

    def ratio(self, engine: str, metric: str, other: str, other_metric: str = "") -> float | None:
        """Return this engine's number divided by the other's."""
        mine = self.best(engine, metric)
        theirs = self.best(other, other_metric or metric)
        return mine / theirs if mine is not None and theirs else None
