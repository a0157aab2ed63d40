"""What a worker of a universal search does: inputs in, rows of `parley.engine.triggers.verbs.rows.UNIVERSAL` out.

An item is an input: one that is searched for behind all searched prompts at once, a random one, or none. Whichever it is, it is
then typed behind every prompt, the held-out ones too, and what the model replies is judged.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from parley.engine.core.ray.record import Counts, Rows
from parley.engine.core.runs.schemas import ok_row
from parley.engine.core.stats.rows import finished
from parley.engine.core.verbs.sharded import Sharded, Tally
from parley.engine.triggers.metrics.universal import EMPTY, FOUND, RANDOM, VERIFIED
from parley.engine.triggers.targets import Target, target_seed
from parley.engine.triggers.verbs.config import TriggerConfig
from parley.engine.triggers.verbs.models import HuggingFaceFolder, Models
from parley.engine.triggers.verbs.turns import SearchTurns
from parley.engine.triggers.verbs.verification import verifier
from parley.engine.triggers.verbs.worker import AT_HAND, AT_MOST, composer
from parley.envs.core.seeds import derive_seed

if TYPE_CHECKING:
    from parley.engine.triggers.search.batch import Outcome, Task
    from parley.engine.triggers.search.side_by_side import SideBySide
    from parley.policies.hugging_face.victims import HuggingFaceCausal


@dataclass(frozen=True)
class UniversalInput:
    """An input that is tried behind all prompts.

    Args:
        key: names it.
        kind: found, random or empty.
    """

    key: str
    kind: str


def universal_inputs(num_searches: int, num_random: int) -> dict[str, UniversalInput]:
    """The items of a run, by key: so many searches, so many random inputs, and the empty one."""
    names = [*((FOUND, number) for number in range(num_searches)), *((RANDOM, number) for number in range(num_random))]
    items = [UniversalInput(f"{kind}-{number:04d}", kind) for kind, number in names]
    return {item.key: item for item in [*items, UniversalInput(EMPTY, EMPTY)]}


@dataclass(frozen=True)
class SearchingUniversal(Sharded[UniversalInput]):
    """A search for one input of many pairs.

    Args:
        config: the search.
        models: what is searched.
        searched: the pairs that searches see.
        held_out: those that none sees.
        labels: what the models are called.
        answers: folder in which answers of a chat model that judges are kept.
    """

    unit = "inputs"
    event = "searched"

    config: TriggerConfig
    models: Models
    searched: tuple[Target, ...]
    held_out: tuple[Target, ...]
    labels: tuple[str, ...]
    answers: str

    def seed(self, key: str) -> int:
        return target_seed(self.config.seed, key)

    def worker(self) -> UniversalWorker:
        return UniversalWorker(self)

    def shared(self) -> SearchingUniversal:
        return replace(self, models=self.models.shared())

    def shard_size(self, num_items: int, num_workers: int) -> int:
        return 1

    def room(self, shard_size: int) -> int:
        return -(-(self.config.engine.batch_size + AT_HAND) // shard_size)

    def digest(self, rows: Rows) -> Counts:
        """Inputs, candidates, and pairs that found inputs work behind."""
        ended = finished(rows)
        found = [row for row in ended if row["kind"] == FOUND]
        said = sum(bool(pair[VERIFIED]) for row in found for pair in row["pairs"])
        tried = sum(row["candidates"] for row in found)
        return Counter({self.unit: len(ended), "searches": len(found), "candidates": tried, "successes": said})

    def describe(self, tally: Tally) -> str:
        """Such as "31 candidates/s, pairs with a success: 12"."""
        pace = tally.session["candidates"] / tally.seconds if tally.seconds else 0.0
        early = f", {AT_MOST}" if self.config.search.stop_on_hit and not tally.session["searches"] else ""
        return f"{pace:,.2g} candidates/s, pairs with a success: {tally.total['successes']}{early}"


@dataclass(frozen=True)
class _Asked:
    """A pair of a model.

    Args:
        label: the model's.
        pair: request and target.
        searched: whether searches see it.
        victim: the model behind the request.
    """

    label: str
    pair: Target
    searched: bool
    victim: HuggingFaceCausal

    @property
    def target(self) -> str:
        """What the model is to say."""
        return " ".join(self.pair.words)


def _with_words_of_the_first(models: Sequence[HuggingFaceCausal]) -> list[HuggingFaceCausal]:
    """The models; those with other tokens than the first are given inputs as texts."""
    from parley.policies.hugging_face.by_text import HuggingFaceByText

    words = models[0].tokenizer.get_vocab()
    return [model if model.tokenizer.get_vocab() == words else HuggingFaceByText(model, models[0]) for model in models]


class UniversalWorker(SearchTurns[UniversalInput]):
    """Holds the model behind every prompt.

    Args:
        searching: what is searched for.
    """

    def __init__(self, searching: SearchingUniversal) -> None:
        from parley.engine.triggers.hits import HitType
        from parley.engine.triggers.search.universal import UniversalVictim

        # The first model stands where one is asked for.
        config, models = replace(searching.config, model=searching.config.model.split(",")[0].strip()), searching.models
        self.config, self.thresholds, self.wanted = config, models.thresholds, HitType.parse(config.hit)
        folders = cast("list[HuggingFaceFolder]", [models.victim, *models.others])
        causal = _with_words_of_the_first([cast("HuggingFaceCausal", folder.load(config.device)) for folder in folders])
        self.pairs = [
            _Asked(label, pair, pair in searching.searched, model.behind(str(pair.prompt)))
            for label, model in zip(searching.labels, causal, strict=True)
            for pair in (*searching.searched, *searching.held_out)
        ]

        def victim(pairs: Sequence[_Asked]) -> UniversalVictim:
            return UniversalVictim([each.victim for each in pairs], [each.victim.target(each.target) for each in pairs])

        compose = composer(config, models, causal[0])
        self.victim = victim([each for each in self.pairs if each.searched])
        self.search = compose(self.victim)
        # Measures behind all prompts what was searched for behind some of them.
        self._everywhere = compose(victim(self.pairs)).method.scorer
        self._verifier = verifier(config, causal[0], searching.answers)
        self.drop()

    def searches(self) -> SideBySide:
        return self.search.method.side_by_side(self.search.finder)

    def tasks(self, item: UniversalInput) -> list[Task]:
        from parley.engine.triggers.search.batch import tasks_of

        if item.kind != FOUND:
            return []
        return list(tasks_of({item.key: self.victim.target_ids}, 1, self.config.seed))

    def row(self, item: UniversalInput, outcomes: Sequence[Outcome]) -> dict[str, Any]:
        words = self._words(item, outcomes)
        first = self.pairs[0].victim
        outcome = outcomes[0] if outcomes else None
        return ok_row(item.key, target_seed(self.config.seed, item.key)) | {
            "kind": item.kind,
            "trigger": None if words is None else first.text(words),
            "typed": None if words is None else first.slot_texts(words),
            "trigger_ids": None if words is None else list(words),
            "loss": outcome and outcome.loss,
            "loss_by_sweep": outcome and list(outcome.loss_by_sweep),
            "visits": outcome and outcome.visits,
            "candidates": outcome and outcome.candidates,
            "refused": outcome and outcome.refused,
            "stopped": outcome and outcome.stopped,
            "pairs": self._pairs(item, words),
        }

    def _words(self, item: UniversalInput, outcomes: Sequence[Outcome]) -> tuple[int, ...] | None:
        """The ids of an input; None of the empty one."""
        from parley.engine.triggers.search.typed import allowed_inputs

        if item.kind == FOUND:
            return outcomes[0].words
        if item.kind == EMPTY:
            return None
        draw = allowed_inputs(self.victim, from_start=False)
        return tuple(draw([derive_seed(self.config.seed, "random input", item.key)])[0].tolist())

    def _pairs(self, item: UniversalInput, words: tuple[int, ...] | None) -> list[dict[str, Any]]:
        """What the model makes of an input behind every prompt."""
        import torch

        from parley.policies.hugging_face.judges import reply_nats

        measured: Sequence[Any] = [None] * len(self.pairs)
        if words is not None:
            ids_1N = torch.tensor([words], device=self.victim.searchable_V.device)
            (incumbent,) = self._everywhere.measure([self.victim.target_ids], ids_1N)
            measured = incumbent.cache
        found = []
        for each, at in zip(self.pairs, measured, strict=True):
            pair, victim, target = each.pair, each.victim, each.target
            seed = derive_seed(target_seed(self.config.seed, item.key), "pair", pair.key)
            assert self._verifier is not None, "only Hugging Face models have prompts"
            if words is None:
                read = victim.read_text("")
                assert read, "prompts that are too long are skipped"
                asked = {"retokenised": True} | self._verifier.asked(victim, read, target, pair.prompt, seed)
                nats, hit = reply_nats(victim, "", target), None
            else:
                asked = self._verifier.verify(victim, words, target, pair.prompt, seed)
                nats = [-each for each in at.reading.word_log_probability]
                hit = self.wanted.is_hit(at.reading, self.thresholds)
            about = {"model": each.label, "key": pair.key, "prompt": pair.prompt, "target": target, "searched": each.searched}
            kept = {name: value for name, value in asked.items() if name != "typed"}
            found.append(about | {"nats": float(np.mean(nats)), "hit": hit} | kept)
        return found
