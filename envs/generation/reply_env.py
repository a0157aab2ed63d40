"""`parley/Reply-v1`: reply to a recorded context so that a judge takes the reply for a person's. `game.py` has the rules.

Spaces and observations are module functions, because the two-sided environment of `engine/core/rllib` uses them too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from gymnasium import spaces

from parley.envs.core.errors import ConfigError, ScenarioError
from parley.envs.core.rendering import TextRenderedEnv
from parley.envs.corpora.pairs.turns import Example, format_turns, turn_words
from parley.envs.corpora.pairs.vocabulary import PAD_ID, PairVocabulary
from parley.envs.generation.game import RecordedOverlap, ReplyGame, ReplyJudge, ReplyRules


def speaker_space(vocabulary: PairVocabulary, rules: ReplyRules) -> spaces.Dict:
    """Return the observation space of a speaker; `ReplyEnv` explains the keys."""
    return spaces.Dict(
        {
            "context": spaces.Box(0, len(vocabulary) - 1, (rules.turns, rules.max_context), np.int64),
            "lengths": spaces.Box(0, rules.max_context, (rules.turns,), np.int64),
        }
    )


def reply_space(vocabulary: PairVocabulary, rules: ReplyRules) -> spaces.MultiDiscrete:
    """Return the action space of a speaker: one complete reply."""
    return spaces.MultiDiscrete(np.full(rules.max_words, len(vocabulary), dtype=np.int64))


def speaker_sees(game: ReplyGame) -> dict[str, Any]:
    """Return the observation of the first example, as copies."""
    return {"context": game.context_BKN[0].copy(), "lengths": game.lengths_BK[0].copy()}


def reply_action(vocabulary: PairVocabulary, rules: ReplyRules, words: Sequence[str]) -> np.ndarray:
    """Return the action that says a reply.

    Args:
        vocabulary: of the environment.
        rules: of the environment.
        words: `<eou>` separates utterances; a final `</s>` is optional, because the end of the action ends the reply too.

    Raises:
        ScenarioError: there are more words than `rules.max_words`.
    """
    if len(words) > rules.max_words:
        raise ScenarioError("the reply is too long", got=f"{len(words)} words", fix=f"say at most {rules.max_words}")
    action = np.full(rules.max_words, PAD_ID, dtype=np.int64)
    action[: len(words)] = vocabulary.encode(words)
    return action


def require_examples(owner: str, examples: Sequence[Example] | None) -> None:
    """Raise a `ConfigError` for an empty list of examples; `owner` is the class."""
    if examples is not None and not len(examples):
        raise ConfigError("there is no context to reply to", where=owner, fix="give one example at least")


class ReplyEnv(TextRenderedEnv[dict[str, Any], np.ndarray]):
    """Reply to recorded contexts; a judge says how human each reply is.

    ## Description
    You are shown the last turns of a recorded dialogue and say one whole reply. A judge, which may be a model that tells
    people from machines, says how human it finds the reply.

    ## Action Space
    `MultiDiscrete` (max_words,): word ids of the reply, up to the first `</s>` or the end of the action, padded with `<pad>`.
    `reply_action` of this module writes such actions. `<pad>` and `<s>` between words are dropped and counted.

    ## Observation Space
    A `Dict`:

    | key | space | meaning |
    |---|---|---|
    | context | `Box` int64 (turns, max_context) | word ids of the last turns, the newest last, padded with `<pad>` |
    | lengths | `Box` int64 (turns,) in 0..max_context | words of each; 0 for a turn that is not there |

    ## Starting State
    One of the examples at random. `reset(options={"example": Example(...)})` sets it. One seed gives one example.

    ## Reward
    What the judge finds of the reply, from 0 (a machine's) to 1 (a person's). A reply without a word earns 0.

    ## Episode End
    Termination: after the one reply. Truncation: never.

    ## Information
    `key` of the example. After the reply also `reply` as it was understood, the `recorded` reply, and `num_illegal` (dropped
    ids).

    ## Arguments
    * `examples`: contexts and recorded replies; the validation split of the built-in help desk when not given.
    * `judge`: a `ReplyJudge`; the overlap of words with the recorded reply, a stand-in, when not given.
    * `vocabulary`: the words; all words of the examples when not given.
    * `rules`: how much is seen, and how long a reply may be.
    * `render_mode`: `"ansi"` returns text from `render()`; `"human"` writes it to standard error after every move.

    ## References
    * Li, Monroe, Shi, Jean, Ritter, Jurafsky (2017). Adversarial Learning for Neural Dialogue Generation, section 3.1.

    ## Version History
    * v1: first version.
    """

    option = ("example", Example)

    def __init__(
        self,
        examples: Sequence[Example] | None = None,
        judge: ReplyJudge | None = None,
        vocabulary: PairVocabulary | None = None,
        rules: ReplyRules | None = None,
        render_mode: str | None = None,
    ) -> None:
        require_examples("ReplyEnv", examples)
        super().__init__(render_mode)
        self.rules = rules or ReplyRules()
        self.examples = built_in_examples(self.rules.turns) if examples is None else examples
        self.judge = judge or RecordedOverlap()
        self.vocabulary = vocabulary or words_of(self.examples)
        self.action_space = reply_space(self.vocabulary, self.rules)
        self.observation_space = speaker_space(self.vocabulary, self.rules)
        self._game: ReplyGame | None = None
        self._reward = 0.0

    def _begin(self, given: Example | None) -> tuple[dict[str, Any], dict[str, Any]]:
        example = given or self.examples[int(self.np_random.integers(len(self.examples)))]
        self._game = ReplyGame([example], [0], self.vocabulary, self.rules)
        return speaker_sees(self._game), {"key": example.key}

    def step(self, action: np.ndarray) -> tuple[dict[str, Any], float, bool, bool, dict[str, Any]]:
        """Reply, which ends the episode.

        Args:
            action: see the class.

        Raises:
            ScenarioError: no context waits for a reply, or the action lies outside the action space.
        """
        game = self._game
        if game is None or game.replies:
            raise ScenarioError("no context waits for a reply", where="step of ReplyEnv", fix="call reset() first")
        if not self.action_space.contains(action):
            raise ScenarioError("the action lies outside the action space", got=repr(action), fix="see env.action_space")
        game.say(np.asarray(action, dtype=np.int64)[None])
        self._reward = float(game.judged(self.judge)[0])
        self._show()
        (example,), (reply,) = game.examples, game.replies
        info = {
            "key": example.key,
            "reply": " ".join(turn_words(reply)),
            "recorded": " ".join(turn_words(example.reply)),
            "num_illegal": int(game.num_illegal_B[0]),
        }
        return speaker_sees(game), self._reward, True, False, info

    def _text(self) -> str:
        game = self._game
        assert game is not None
        (example,) = game.examples
        lines = [f"- {format_turns((turn,))}" for turn in example.context[-self.rules.turns :]]
        if game.replies:
            reply_text, recorded = (" ".join(turn_words(reply)) for reply in (game.replies[0], example.reply))
            lines += [f"> {reply_text}", f"recorded: {recorded}", f"reward {self._reward:.4f}"]
        return "\n".join(lines)


def words_of(examples: Sequence[Example]) -> PairVocabulary:
    """Return a vocabulary of all words of contexts and replies; `<eou>` is a special token, and `<eot>` is not needed."""
    turns = [turn for example in examples for turn in (*example.context, example.reply)]
    return PairVocabulary.build(map(turn_words, turns), None)


def built_in_examples(turns: int) -> Sequence[Example]:
    """Return the validation split of the help desk."""
    # Imported here, because callers with their own examples do not need compiled corpora.
    from parley.envs.corpora.pairs.compiled import load_pairs
    from parley.envs.corpora.pairs.contexts import examples

    return list(examples(load_pairs("helpdesk", every_word=True), "val", turns))
