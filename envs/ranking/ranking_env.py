"""`parley/ResponseRanking-v1`: edit a reply until a ranker puts it first; `edit_game.py` has the rules."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from gymnasium import spaces

from parley.envs.core.errors import ConfigError, ScenarioError
from parley.envs.core.rendering import TextRenderedEnv
from parley.envs.ranking.edit_game import AlikeWords, EditGame, EditRules, PlainSight, Proposer, RankGoal, Scorer, TermOverlap
from parley.envs.ranking.groups import CandidateGroup

_DRAWS = 1000
"""Most examples that are drawn to find one that can be edited."""


class Sight(Protocol):
    """The features of each action."""

    @property
    def size(self) -> int:
        """Number of features of an action."""

    def __call__(self, game: EditGame, rows: Sequence[int]) -> np.ndarray:
        """Return the features of examples (n, A, size) float32, from -1 to 1.

        Args:
            game: the game of the examples; drafts that it scores are queries.
            rows: rows of the examples; none is over unless no action is left.
        """


class ResponseRankingEnv(TextRenderedEnv[dict[str, Any], np.int64]):
    """Replace words of a candidate reply until a ranker puts it where you want it.

    ## Description
    A ranker scores the candidate replies of a dialogue's context. You edit one reply: to bring the best-ranked wrong one to the
    top, or the right one below it. You may replace a few words, each once, by words proposed for their positions. After each
    edit you see how the ranker's score moved.

    ## Action Space
    `Discrete(num_places * num_proposals + 1)`: action `p * num_proposals + w` puts proposal `w` at position `p` of the reply;
    the last action stops. Actions that the mask forbids change nothing, cost an edit and are counted.

    ## Observation Space
    A `Dict`, the same for every ranker:

    | key | space | meaning |
    |---|---|---|
    | action_mask | `Box` int8 (actions,) in 0..1 | 1 for allowed actions; stopping is always allowed |
    | actions | `Box` float32 (actions, size) in -1..1 | the features of each action, by `sight` |

    ## Starting State
    A random group of the corpus; groups without a reply to edit, and groups whose goal is reached already, are skipped.
    `reset(options={"group": CandidateGroup(...)})` sets the group. One seed gives one example.

    ## Reward
    Half of the gain in progress: the change of the margin between the reply's score and the score to pass, as a share of the
    margin before any edit. Reaching the goal earns a half more, so every path to the goal earns 1 in all. Clipped to -1..1.

    ## Episode End
    Termination: the goal is reached, all edits are made, or you stopped. Truncation: never; the number of edits is a rule of
    the game, and observations show the edits left.

    ## Information
    At every step: `action_mask`, `key` of the group, `place`: the index of the candidate, the current `reply`, `margin`,
    `success`, `queries` (distinct drafts that the ranker scored, those for `sight` included) and `num_illegal`.

    ## Arguments
    * `groups`: contexts and candidates; the validation split of the built-in help desk when not given.
    * `scorer`: calls the ranker; by default a cosine of words, fitted on the contexts of the groups. Pass a ranker of
      `policies` as `partial(scores_of, ranker)`.
    * `proposer`: proposes new words; by default words of the context with the same ending.
    * `sight`: makes the features of actions.
    * `goal`: the wanted rank.
    * `rules`: the numbers of edits, positions and proposals.
    * `render_mode`: `"ansi"` returns text from `render()`; `"human"` writes it to standard error after every move.

    ## References
    * Li, Tao, Peng, Wu, Zhao, Yan (2019). Evaluating and Enhancing the Robustness of Retrieval-based Dialogue Systems with
      Adversarial Examples, section 3.1: words of the context in wrong replies.

    ## Version History
    * v1: first version.
    """

    option = ("group", CandidateGroup)

    def __init__(
        self,
        groups: Sequence[CandidateGroup] | None = None,
        scorer: Scorer | None = None,
        proposer: Proposer | None = None,
        sight: Sight | None = None,
        goal: RankGoal | None = None,
        rules: EditRules | None = None,
        render_mode: str | None = None,
    ) -> None:
        if groups is not None and not len(groups):
            raise ConfigError("there is no group to edit a reply of", where="ResponseRankingEnv", fix="give one at least")
        super().__init__(render_mode)
        self.groups = _built_in() if groups is None else groups
        self.scorer = TermOverlap([group.context for group in self.groups]) if scorer is None else scorer
        self.proposer, self.sight = proposer or AlikeWords(), sight or PlainSight()
        self.goal, self.rules = goal or RankGoal(), rules or EditRules()
        num_actions = self.rules.stop + 1
        self.action_space = spaces.Discrete(num_actions)
        self.observation_space = spaces.Dict(
            {
                "action_mask": spaces.Box(0, 1, (num_actions,), np.int8),
                "actions": spaces.Box(-1.0, 1.0, (num_actions, self.sight.size), np.float32),
            }
        )
        self._game: EditGame | None = None

    def _begin(self, given: CandidateGroup | None) -> tuple[dict[str, Any], dict[str, Any]]:
        for _ in range(1 if given else _DRAWS):
            group = given or self.groups[int(self.np_random.integers(len(self.groups)))]
            seed_of_example = int(self.np_random.integers(2**63))
            game = EditGame([group], [seed_of_example], self.scorer, self.proposer, self.rules, self.goal)
            if not game.replies[0].is_over:
                self._game = game
                return self._seen(game)
        got, fix = game.replies[0].reason, "give other groups, another goal or another ranker"
        raise ConfigError("no group has a reply to edit", where="reset of ResponseRankingEnv", got=got, fix=fix)

    def step(self, action: np.int64) -> tuple[dict[str, Any], float, bool, bool, dict[str, Any]]:
        """Replace a word, or stop.

        Args:
            action: see the class.

        Raises:
            ScenarioError: no example is open, or the action lies outside the action space.
        """
        game = self._game
        if game is None or game.replies[0].is_over:
            raise ScenarioError("no example is going on", where="step of ResponseRankingEnv", fix="call reset() first")
        if not self.action_space.contains(action):
            raise ScenarioError("the action lies outside the action space", got=repr(action), fix="see env.action_space")
        (reward,) = game.act([0], [int(action)])
        observation, info = self._seen(game)
        self._show()
        return observation, float(reward), game.replies[0].is_over, False, info

    def _seen(self, game: EditGame) -> tuple[dict[str, Any], dict[str, Any]]:
        mask, reply = game.replies[0].mask(game.rules), game.replies[0]
        (actions,) = self.sight(game, [0])
        info = {
            "action_mask": mask.copy(),
            "key": reply.group.key,
            "place": reply.index,
            "reply": " ".join(reply.words),
            "margin": reply.margin,
            "success": reply.succeeded,
            "queries": reply.num_queries,
            "num_illegal": reply.num_illegal,
        }
        return {"action_mask": mask, "actions": actions}, info

    def _text(self) -> str:
        assert self._game is not None
        return render_example(self._game, 0)


def render_example(game: EditGame, row: int) -> str:
    """Return an example as text: turns, candidates with scores, the edited reply with marked words."""
    reply = game.replies[row]
    lines = [f"- {' '.join(turn)}" for turn in reply.group.context]
    for i, (words, label) in enumerate(zip(reply.group.candidates, reply.group.labels, strict=True)):
        mark = ">" if i == reply.index else " "
        lines.append(f"{mark} {game.scores[row][i]:8.4f}  {'right' if label else 'wrong'}  {' '.join(words)}")
    reply_text = " ".join(f"[{word}]" if i in reply.edited else word for i, word in enumerate(reply.words))
    lines.append(f"= {reply_text}")
    reached = ", there" if reply.succeeded else ""
    return "\n".join([*lines, f"margin {reply.margin:+.4f}{reached}; edits {reply.num_steps} of {game.rules.edits}"])


def _built_in() -> list[CandidateGroup]:
    # Imported here, because callers with their own groups do not need compiled corpora.
    from parley.envs.ranking.compiled import load_candidates

    return list(load_candidates("helpdesk").splits["val"])
