"""Edits of replies in `parley/ResponseRanking-v1`, which a policy learns to choose against a frozen ranker.

Shapes: N examples, M steps in all.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from parley.engine.core.rllib.reproducible import STEP, ActionRunner, ChooserModule
from parley.envs.core.seeds import derive_seed, stream
from parley.envs.ranking.edit_game import EditGame
from parley.envs.ranking.ranking_env import ResponseRankingEnv
from parley.policies.ranking.editor import Editor, load_editor


class EditorModule(ChooserModule):
    """An RLModule around an `Editor`; model config: `checkpoint`, the folder that it starts from."""

    def load(self, folder: Path) -> Editor:
        return load_editor(folder)


class EditorRunner(ActionRunner):
    """A runner that edits the replies of examples."""

    env: ResponseRankingEnv

    def make_env(self) -> None:
        """Make the environment; `play` plays its game on many examples at once."""
        super().make_env()
        self._orders: dict[int, np.ndarray] = {}

    def play(self, indices: Sequence[int]) -> dict[str, np.ndarray]:
        """See `ActionRunner`; `success` and `queries` (N,) are the figures.

        Raises:
            RankerError: the ranker gave no scores.
        """
        env, seed = self.env, self.config.master_seed
        groups = [env.groups[self._row(index)] for index in indices]
        seeds = [derive_seed(seed, "edited example", index) for index in indices]
        game = EditGame(groups, seeds, env.scorer, env.proposer, env.rules, env.goal)
        draws = [stream(example_seed, "edits") for example_seed in seeds]
        steps: dict[str, list[np.ndarray]] = {name: [] for name in STEP}
        tried = np.array([not reply.is_over for reply in game.replies])
        for number in range(env.rules.edits):
            rows = game.active()
            if not rows:
                break
            masks, seen = np.stack([game.replies[row].mask(env.rules) for row in rows]), env.sight(game, rows)
            taken = self.drawn(seen, masks, np.array([draws[row].random() for row in rows]))
            rewards = game.act(rows, taken.tolist())
            columns = (seen, masks, taken, rewards.astype(np.float32), np.full(len(rows), number), np.array(rows))
            for column, values in zip(steps.values(), columns, strict=True):
                column.append(values)
        return {
            **{name: np.concatenate(values) for name, values in steps.items() if values},
            "tried": tried,
            "success": np.array([reply.succeeded for reply in game.replies]),
            "queries": np.array([reply.num_queries for reply in game.replies]),
        }

    def _row(self, index: int) -> int:
        """Return the group of an example: endless passes over all groups, each in a new order."""
        turn, position = divmod(index, len(self.env.groups))
        if turn not in self._orders:
            self._orders = {turn: stream(self.config.master_seed, "order of groups", turn).permutation(len(self.env.groups))}
        return int(self._orders[turn][position])
