"""Dialogue acts as actions: `parley/NegotiationActs-v1`, on which ordinary RL algorithms learn.

Word by word is hard for these algorithms: 100 positions with hundreds of words, mostly nonsense. Here an action is a dialogue
act (propose the k-th best deal, accept, walk away, end). The phrases of the game's scripted agents express it, and their parser
reads the partner's words (`DivisionActs` in `scripted/bargainers.py`, `InterviewActs` in `interview/bargainers.py`).
`Domain.acts` gives the acts of a game (`GameActs`); they follow one dialogue from one side.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces

from parley.envs.core.errors import ConfigError, ScenarioError
from parley.envs.core.play import Utterances
from parley.envs.core.registry import nearest
from parley.envs.negotiation.domain import GameActs, Vocabulary
from parley.envs.negotiation.env import ROW, OneSide
from parley.envs.negotiation.game import SELECT, SPEAK, NegotiationGame


class ActsSeat:
    """One side of one dialogue, which reads words and plays acts.

    Args:
        vocabulary: the words that this side reads and says.
        chattiness: 0..1, the amount of words beyond the necessary.

    Attributes:
        acts: the acts of this side.
        num_illegal: illegal acts so far, each replaced by the first legal one.

    Raises:
        ConfigError: the game has no dialogue acts.
        DataError: the vocabulary lacks words of the acts.
    """

    def __init__(self, vocabulary: Vocabulary, chattiness: float = 0.0) -> None:
        self._vocabulary, self._chattiness = vocabulary, chattiness
        self.acts = vocabulary.domain.acts(vocabulary)
        self.num_illegal = 0
        self._num_read = 0

    @property
    def num_actions(self) -> int:
        """Return the number n of acts."""
        return self.acts.num_proposals + len(self.acts.other_acts)

    def begin(self, context: np.ndarray) -> None:
        """Begin a dialogue, given this side's context (2K,)."""
        self.acts.begin(context)
        self.num_illegal = self._num_read = 0

    def read(self, tokens: np.ndarray, num_tokens: int) -> None:
        """Process what is new in a dialogue, given its ids (T,) in this side's view and the number of them said."""
        marks = (self._vocabulary.you_id, self._vocabulary.them_id)
        ids = tokens[self._num_read : num_tokens].tolist()
        starts = [i for i, token in enumerate(ids) if token in marks]
        for start, end in zip(starts, [*starts[1:], len(ids)], strict=False):
            self.acts.hear(ids[start] == marks[0], ids[start + 1 : end])
        self._num_read = int(num_tokens)

    def features(self) -> np.ndarray:
        """Return the features (F,) float32 in 0..1."""
        return np.clip(np.array(self.acts.features(), dtype=np.float32), 0.0, 1.0)

    def flat(self) -> np.ndarray:
        """Return the features and then the mask (F + n,) float32 in 0..1."""
        return np.concatenate([self.features(), self.acts.mask().astype(np.float32)])

    def say(self, action: int, rng: np.random.Generator) -> list[int]:
        """Return an act in words; an illegal act counts, and the first legal one is said for it."""
        mask = self.acts.mask()
        if not mask[action]:
            self.num_illegal += 1
            action = int(mask.argmax())
        return self.acts.say(action, self._chattiness, rng)


FLAT, MASKED = "flat", "masked"


class NegotiationActsEnv(OneSide[Any, np.int64]):
    """Divide books, hats and balls with a partner by dialogue acts; the phrases of scripted agents express them.

    ## Description
    The game of `parley/Negotiation-v1`, without words to learn. A job interview, or another game with acts, is played by its
    vocabulary. After the talk the deal agreed, or else the one on the table, is chosen for you.

    ## Action Space
    `Discrete(n)`: action k first proposes the k-th best deal for you, in firm words if it repeats your last proposal. The
    others are, in Deal or No Deal (n = 40, 36 allocations): accept, ask, walk away, end the talk; in the job interview
    (n = 111, 108 deals): accept, break off, end the talk. `info["action_mask"]` (n,) int8 has 1 for legal acts in every step,
    `action_masks()` is the method of sb3-contrib. For learners without masks, the first legal act is said for an illegal
    one, and `info["num_illegal_acts"]` counts these.

    ## Observation Space
    Flat: `Box` float32 (F + n,) in 0..1, the features and then the mask. Masked: `Dict` with `observations` (F,) and
    `action_mask` (n,) int8, the form of RLlib's masked modules. The features: own values, both sides' last proposals, the
    deal on the table or agreed, the progress of the talk, flags of proposals, insistence and walking away, and for each
    proposal its worth to you and, estimated from the words, to the partner.
    ## Starting State
    As `parley/Negotiation-v1`.
    ## Reward
    As `parley/Negotiation-v1`.
    ## Episode End
    As `parley/Negotiation-v1`. If the partner ends the talk before your first act, that act only collects the reward.
    ## Information
    `action_mask` and `num_illegal_acts` in every step; at the end also what `parley/Negotiation-v1` tells.

    ## Arguments
    Those of `parley/Negotiation-v1`, by keyword, and:

    * `chattiness`: 0..1, the amount of words beyond the necessary.
    * `observations`: `"flat"` or `"masked"`.
    ## References
    As `parley/Negotiation-v1`.

    ## Version History
    * v1: first version.

    Raises:
        ConfigError: the game has no dialogue acts, or an argument is out of range.
        DataError: the vocabulary lacks words of the acts.
    """

    def __init__(self, chattiness: float = 0.0, observations: str = FLAT, **arguments: Any) -> None:
        if observations not in (FLAT, MASKED):
            what = f"unknown form of observations{nearest(str(observations), (FLAT, MASKED))}"
            raise ConfigError(what, where=type(self).__name__, got=repr(observations), fix=f"{FLAT!r} or {MASKED!r}")
        self._chattiness, self._is_flat = chattiness, observations == FLAT
        super().__init__(**arguments)

    @property
    def acts(self) -> GameActs:
        """Return the acts of this side."""
        return self._seat.acts

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Start a dialogue; arguments as of `NegotiationEnv.reset`."""
        observation, info = super().reset(seed=seed, options=options)
        return observation, self._with_mask(info)

    def step(self, action: np.int64) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Say the act, hear the reply, and choose if the talk is over.

        Raises:
            ScenarioError: no dialogue is open, or there is no such act.
        """
        observation, reward, terminated, truncated, info = super().step(action)
        if self._game is not None and self._game.phase[0] == SELECT:
            observation, reward, terminated, truncated, info = super().step(action)
        return observation, reward, terminated, truncated, self._with_mask(info)

    def action_masks(self) -> np.ndarray:
        """Return the mask of legal acts (n,) bool."""
        return self.acts.mask()

    def name(self, action: int) -> str:
        """Return an act in words."""
        return self.acts.name(action)

    def _spaces(self) -> tuple[spaces.Space[Any], spaces.Discrete]:
        self._seat = ActsSeat(self.vocabulary, self._chattiness)
        self._seated_in: NegotiationGame | None = None
        num_actions, num_features = self._seat.num_actions, self.acts.num_features
        observed: spaces.Space[Any] = spaces.Box(0.0, 1.0, (num_features + num_actions,), np.float32)
        if not self._is_flat:
            mask = spaces.Box(0, 1, (num_actions,), np.int8)
            observed = spaces.Dict({"action_mask": mask, "observations": spaces.Box(0.0, 1.0, (num_features,), np.float32)})
        return observed, spaces.Discrete(num_actions)

    def _seen(self, game: NegotiationGame) -> Any:
        if game is not self._seated_in:
            self._seated_in = game
            self._seat.begin(game.contexts[self.side, 0])
        self._seat.read(game.tokens[self.side, 0], game.num_tokens[0])
        if self._is_flat:
            return self._seat.flat()
        return {"action_mask": self.action_masks().astype(np.int8), "observations": self._seat.features()}

    def _act(self, game: NegotiationGame, action: np.int64) -> None:
        if not self.action_space.contains(action):
            raise ScenarioError("the action lies outside the action space", got=repr(action), fix=f"see {self.action_space}")
        if game.phase[0] == SPEAK:
            rng = game.view(self.side).generator(0)
            game.say(ROW, Utterances.of([self._seat.say(int(action), rng)]))
        else:
            game.choose(self.side, ROW, np.array([self.acts.selection()], dtype=np.int64))

    def _with_mask(self, info: dict[str, Any]) -> dict[str, Any]:
        mask = self.action_masks().astype(np.int8)
        return {**info, "action_mask": mask, "num_illegal_acts": self._seat.num_illegal}
