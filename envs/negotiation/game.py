"""The negotiation game: the state machine of the Gymnasium environments, RLlib training and evaluation, and its rendering.

It holds a batch of B dialogues as arrays; a single environment is the case B = 1. In a dialogue, the sides speak in turn until
an utterance is exactly `<selection>`; then both choose and get points (Lewis et al. 2017, section 2).

Shapes: B dialogues, T = `Rules.max_tokens`, n = number of rows passed, L = width of an utterance array, K items and H tokens
of a selection (`domain.py`).

Rules and their sources:
  * An utterance ends at its first `<eos>` or `<selection>`, or after `max_words` tokens (the game adds an `<eos>`).
  * `<selection>` after other words ends the utterance, not the dialogue (released code of Lewis et al.).
  * `<pad>`, `YOU:` and `THEM:` inside an utterance are dropped and counted: they would let a speaker forge the
    transcript. An utterance with no tokens left is a bare `<eos>`. `<unk>` is kept (people use unknown words).
  * After `max_turns` utterances, or when less than `max_words` + 4 tokens of room remain, the game says `<selection>`
    for the side to move. Forced words have no author. # Paper: at most 10 turns. Ours: 20 utterances, as the released code.
  * `complementary`: only side 1 chooses and side 0 gets the complement (Cheng et al. 2019, section 4).
    # Paper: agreement prints as 100 %. Ours: a refusal by side 1 counts as no agreement, because nobody earns anything.

Each side reads and speaks in ids of its own vocabulary (`SpokenWords` in `domain.py`). Sides that share a vocabulary, and say
no other word, read and write the same arrays.

`render_dialogue` gives the text of a dialogue for environments, reports and the command line.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from parley.envs.core.config import Configuration, PositiveInt, check
from parley.envs.core.errors import ConfigError
from parley.envs.core.play import Player, Utterances, play_sessions
from parley.envs.core.seeds import derive_seed, stream
from parley.envs.negotiation.domain import (
    EOS_ID,
    PAD_ID,
    SELECTION_ID,
    Domain,
    Scenario,
    SpokenWords,
    Vocabulary,
    is_pareto_optimal,
    points,
    split_text,
)

SPEAK, SELECT, OVER = range(3)
NOBODY = -1


@dataclass(frozen=True, kw_only=True)
class Rules(Configuration):
    """Limits and options of the game."""

    max_turns: PositiveInt = 20
    """Utterances after which `<selection>` is forced."""
    max_words: PositiveInt = 100
    """Tokens of one utterance, `<eos>` included."""
    max_tokens: int = 512
    """Tokens of one dialogue, speaker markers included; must leave room for two utterances."""
    complementary: bool = False
    """Side 1 alone chooses; side 0 is given the complement of its selection."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check(self, "max_tokens", self.max_tokens >= 2 * (self.max_words + 4), "at least 2 * (max_words + 4)")


class Agent(Player["SideView"], Protocol):
    """Anything that can negotiate: a trained model, a script, a person."""

    @property
    def vocabulary(self) -> Vocabulary:
        """The words whose ids it reads and speaks."""


class NegotiationGame:
    """B negotiation dialogues.

    Args:
        scenarios: one scenario per dialogue.
        seeds: one 63-bit seed per dialogue, for the first speaker and all random draws.
        vocabulary: of both sides, or a pair for side 0 and side 1.
        rules: limits and options.
        first_speakers: (B,) side 0 or 1 per dialogue; None for a fair coin from the dialogue's seed.

    Raises:
        ConfigError: a scenario is of another game than the vocabulary.
    """

    def __init__(
        self,
        scenarios: Sequence[Scenario],
        seeds: Sequence[int],
        vocabulary: Vocabulary | tuple[Vocabulary, Vocabulary],
        rules: Rules | None = None,
        first_speakers: Sequence[int] | None = None,
    ) -> None:
        self.scenarios = list(scenarios)
        # Keys of seed streams depend on the type, so numpy integers become int.
        self.seeds = [int(seed) for seed in seeds]
        self.vocabularies = vocabulary if isinstance(vocabulary, tuple) else (vocabulary, vocabulary)
        self.vocabulary = self.vocabularies[0]
        """The vocabulary of side 0; the game's ids begin with it."""
        self.domain: Domain = self.vocabulary.domain
        """The game that is played."""
        for words in self.vocabularies:
            require_game(words.game, self.scenarios)
        self.rules = rules or Rules()
        size, width = len(self.scenarios), self.rules.max_tokens
        assert len(self.seeds) == size, "one seed per dialogue"
        self.uniforms = np.empty((size, width), dtype=np.float64)
        coins = np.empty(size, dtype=np.int64)
        for row, seed in enumerate(self.seeds):
            generator = stream(seed, "dialogue")
            coins[row] = generator.integers(2)
            generator.random(out=self.uniforms[row])
        self.first_speakers = coins if first_speakers is None else np.array(first_speakers, dtype=np.int64)
        self.contexts = np.array([[s.context(0), s.context(1)] for s in self.scenarios], dtype=np.int64).transpose(1, 0, 2)
        self.tokens = np.full((2, size, width), PAD_ID, dtype=np.int64)
        """Each side's view of the dialogue (2, B, T) in its own ids: the same words, with `YOU:` and `THEM:` exchanged."""
        self._spoken: SpokenWords | None = None
        """The game's words; None while both sides use only the words of one shared vocabulary."""
        self._game_tokens = self.tokens[0]
        """Side 0's view in the game's ids (B, T), once `_spoken` is set."""
        if self.vocabularies[0].digest != self.vocabularies[1].digest:
            self._open()
        self.authors = np.full((size, width), NOBODY, dtype=np.int8)
        """The author of each token (B, T): side 0, side 1, or nobody (markers, forced words, an added `<eos>`)."""
        self.num_tokens = np.zeros(size, dtype=np.int64)
        self.num_turns = np.zeros(size, dtype=np.int64)
        self.phase = np.full(size, SPEAK, dtype=np.int8)
        self.to_move = self.first_speakers.copy()
        """The side to speak next (B,); after `SPEAK`, the side that ended the dialogue."""
        self.forced = np.zeros(size, dtype=bool)
        """Dialogues (B,) in which a limit forced the `<selection>`."""
        self.selections = np.full((size, 2), -1, dtype=np.int64)
        self.num_illegal = np.zeros((size, 2), dtype=np.int64)
        """Tokens dropped as illegal, by side (B, 2)."""
        self.illegal_selections = np.zeros((size, 2), dtype=bool)
        """True if a side chose out of range (B, 2), which counts as no agreement."""
        self.agreed = np.zeros(size, dtype=bool)
        self.points = np.zeros((size, 2), dtype=np.int64)

    def __len__(self) -> int:
        return len(self.scenarios)

    def rows_to_speak(self, side: int) -> np.ndarray:
        """Return the dialogues in which that side speaks next."""
        return np.flatnonzero((self.phase == SPEAK) & (self.to_move == side))

    def rows_to_choose(self, side: int) -> np.ndarray:
        """Return the dialogues in which that side has to choose."""
        if side == 0 and self.rules.complementary:
            return np.empty(0, dtype=np.int64)
        return np.flatnonzero((self.phase == SELECT) & (self.selections[:, side] < 0))

    def view(self, side: int) -> SideView:
        """Return the view of a side."""
        return SideView(self, side)

    def say(self, rows: np.ndarray, utterances: Utterances) -> None:
        """Add the utterances of the sides to move in the dialogues `rows` (distinct, all in phase `SPEAK`)."""
        assert (self.phase[rows] == SPEAK).all(), "only open dialogues take utterances"
        if self._spoken is not None:
            utterances = self._in_game_ids(self._spoken, self.to_move[rows], utterances)
        tokens, lengths, closed = self._legal(rows, utterances)
        speakers = self.to_move[rows]
        self._append(rows, speakers, tokens, lengths, speakers)
        self.authors[rows[closed], self.num_tokens[rows[closed]] - 1] = NOBODY
        self.num_turns[rows] += 1
        ended = (lengths == 1) & (tokens[:, 0] == SELECTION_ID)
        self.phase[rows[ended]] = SELECT
        going = rows[~ended]
        self.to_move[going] = 1 - self.to_move[going]
        room = self.rules.max_tokens - self.num_tokens[going]
        cut = going[(self.num_turns[going] >= self.rules.max_turns) | (room < self.rules.max_words + 4)]
        if cut.size:
            forced = np.full((cut.size, 1), SELECTION_ID, dtype=np.int64)
            nobody = np.full(cut.size, NOBODY)
            self._append(cut, self.to_move[cut], forced, np.ones(cut.size, dtype=np.int64), nobody)
            self.num_turns[cut] += 1
            self.forced[cut] = True
            self.phase[cut] = SELECT

    def choose(self, side: int, rows: np.ndarray, selections: np.ndarray) -> None:
        """Record the selections of a side; after the last one, end the dialogue and set the points.

        Args:
            side: 0 or 1; side 0 never chooses under the complementary rule.
            rows: dialogues (n,) in phase `SELECT`.
            selections: index (n,) into the scenario's legal selections; an index out of range counts as no agreement.
        """
        assert (self.phase[rows] == SELECT).all(), "only ended dialogues take selections"
        for row, selection in zip(rows.tolist(), selections.tolist(), strict=True):
            choosable = self.scenarios[row].selections
            illegal = not 0 <= selection < len(choosable)
            self.illegal_selections[row, side] = illegal
            legal = choosable.no_agreement if illegal else selection
            self.selections[row, side] = legal
            if self.rules.complementary:
                self.selections[row, 0] = choosable.fits[legal]
            if (self.selections[row] >= 0).all():
                first, second = self.selections[row].tolist()
                self.agreed[row], self.points[row] = points(self.scenarios[row], (first, second))
                self.phase[row] = OVER

    def is_pareto(self, row: int) -> bool:
        """Return True if a dialogue's outcome is agreed and Pareto optimal."""
        first, second = self.points[row].tolist()
        return bool(self.agreed[row]) and is_pareto_optimal(self.scenarios[row], (first, second))

    def transcript(self, row: int) -> list[tuple[int, list[str]]]:
        """Return the dialogue as (side, words) turns, without `<eos>`."""
        tokens = self.tokens[0] if self._spoken is None else self._game_tokens
        ids = tokens[row, : self.num_tokens[row]].tolist()
        words: Sequence[str] = self.vocabulary.words if self._spoken is None else self._spoken.words
        turns: list[tuple[int, list[str]]] = []
        for i in ids:
            if i in (self.vocabulary.you_id, self.vocabulary.them_id):
                turns.append((0 if i == self.vocabulary.you_id else 1, []))
            elif i != EOS_ID:
                turns[-1][1].append(words[i])
        return turns

    def tokens_in(self, vocabulary: Vocabulary, side: int) -> np.ndarray:
        """Return a side's view of the dialogues (B, T) in ids of any vocabulary, such as a judge's."""
        if vocabulary.digest == self.vocabularies[side].digest:
            return self.tokens[side]
        you, them = vocabulary.you_id, vocabulary.them_id
        read = vocabulary.encode(self._open().words)[self._game_tokens]
        return read if side == 0 else np.where(read == you, them, np.where(read == them, you, read))

    def utterance(self, side: int, words: Sequence[str]) -> list[int]:
        """Return a side's own ids of words, closed by `<eos>` unless they end the dialogue."""
        vocabulary = self.vocabularies[side]
        ids = vocabulary.encode(words).tolist()
        if any(word not in vocabulary.index for word in words):
            beyond = self._open().ids(words) + len(vocabulary)
            ids = [vocabulary.index.get(word, new) for word, new in zip(words, beyond.tolist(), strict=True)]
        return ids if ids == [SELECTION_ID] else [*ids, EOS_ID]

    def written(self, side: int, ids: Sequence[int]) -> list[str]:
        """Return the words of an utterance in a side's own ids, without `<eos>`."""
        words = self.vocabularies[side].words
        beyond = self._open().words if any(i >= len(words) for i in ids) else ()
        return [words[i] if i < len(words) else beyond[i - len(words)] for i in ids if i != EOS_ID]

    def _open(self) -> SpokenWords:
        if self._spoken is None:
            self._spoken = SpokenWords(self.vocabularies)
            self._game_tokens = self.tokens[0].copy()
        return self._spoken

    def _in_game_ids(self, spoken: SpokenWords, speakers: np.ndarray, utterances: Utterances) -> Utterances:
        tokens, lengths = utterances.tokens, utterances.lengths
        tokens = np.where(np.arange(tokens.shape[1]) < lengths[:, None], tokens, PAD_ID)
        for side in (0, 1):
            tokens[speakers == side] = spoken.to_game_ids(side, tokens[speakers == side])
        return Utterances(tokens, lengths)

    def _legal(self, rows: np.ndarray, utterances: Utterances) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return utterances without illegal tokens and with one end, and a mask (n,) of those that the game closed.

        The common case without illegal tokens is vectorised.
        """
        tokens, lengths = utterances.tokens[:, : self.rules.max_words], np.minimum(utterances.lengths, self.rules.max_words)
        columns = np.arange(tokens.shape[1])
        spoken = columns < lengths[:, None]
        is_end = (tokens == EOS_ID) | (tokens == SELECTION_ID)
        forbidden = spoken & np.isin(tokens, (PAD_ID, self.vocabulary.you_id, self.vocabulary.them_id))
        clean = (lengths > 0) & (spoken & is_end).sum(1).__eq__(1) & ~forbidden.any(1)
        clean &= is_end[np.arange(len(tokens)), np.maximum(lengths - 1, 0)]
        closed = np.zeros(len(tokens), dtype=bool)
        if clean.all():
            return tokens, lengths, closed
        tokens = np.concatenate([tokens, np.full((len(tokens), 1), PAD_ID, dtype=np.int64)], axis=1)
        lengths = lengths.copy()
        for i in np.flatnonzero(~clean).tolist():
            words = tokens[i, : lengths[i]].tolist()
            end = next((k for k, word in enumerate(words) if word in (EOS_ID, SELECTION_ID)), None)
            spoken_words = words[: len(words) if end is None else end + 1]
            legal_words = [
                word for word in spoken_words if word not in (PAD_ID, self.vocabulary.you_id, self.vocabulary.them_id)
            ]
            self.num_illegal[rows[i], self.to_move[rows[i]]] += len(spoken_words) - len(legal_words)
            closed[i] = end is None
            if end is None:
                legal_words = [*legal_words[: self.rules.max_words], EOS_ID]
            tokens[i] = PAD_ID
            tokens[i, : len(legal_words)] = legal_words
            lengths[i] = len(legal_words)
        return tokens, lengths, closed

    def _append(
        self, rows: np.ndarray, speakers: np.ndarray, tokens: np.ndarray, lengths: np.ndarray, authors: np.ndarray
    ) -> None:
        start = self.num_tokens[rows]
        columns = np.arange(tokens.shape[1])
        at_n, at_l = np.nonzero(columns < lengths[:, None])
        positions = start[at_n] + 1 + at_l
        values = tokens[at_n, at_l]
        for side in (0, 1):
            markers = np.where(speakers == side, self.vocabulary.you_id, self.vocabulary.them_id)
            side_values, side_markers = values, markers
            if self._spoken is not None:
                side_values, side_markers = self._spoken.to_side_ids(side, values), self._spoken.to_side_ids(side, markers)
                if side == 0:
                    self._game_tokens[rows, start], self._game_tokens[rows[at_n], positions] = markers, values
            self.tokens[side, rows, start] = side_markers
            self.tokens[side, rows[at_n], positions] = side_values
        self.authors[rows[at_n], positions] = authors[at_n]
        self.num_tokens[rows] = start + 1 + lengths


class SideView:
    """The view of one side on a batch of dialogues: own context, dialogue so far, random draws.

    Args:
        game: the dialogues.
        side: 0 or 1.
    """

    def __init__(self, game: NegotiationGame, side: int) -> None:
        self._game, self.side = game, side
        self.vocabulary, self.rules, self.domain = game.vocabularies[side], game.rules, game.domain
        self.contexts = game.contexts[side]
        """(B, 2K) int64: count and own value of each item, interleaved."""
        self.tokens = game.tokens[side]
        """(B, T) int64: the dialogue so far in ids of `vocabulary`, own turns marked `YOU:`; unknown words are `<unk>`."""
        self.num_tokens = game.num_tokens
        """(B,) int64: number of `tokens` said so far."""
        self.num_turns = game.num_turns
        """(B,) int64: number of utterances so far."""
        self.uniforms = game.uniforms
        """(B, T) float64 in [0, 1): the random draw for the token at each position."""

    def __len__(self) -> int:
        return len(self._game)

    def turns(self, row: int) -> list[tuple[bool, str]]:
        """Return the turns of one dialogue so far: True for this side's turns, and the words."""
        return [(side == self.side, " ".join(words)) for side, words in self._game.transcript(row)]

    def encode(self, text: str) -> list[int]:
        """Return a text as an utterance in this side's own ids, with its end; any word can be said."""
        return self._game.utterance(self.side, split_text(text, self.vocabulary))

    def written(self, ids: Sequence[int]) -> list[str]:
        """Return the words of an utterance in this side's own ids, without its end."""
        return self._game.written(self.side, ids)

    def generator(self, row: int) -> np.random.Generator:
        """Return the random generator of this side's next move, for agents that need several draws per token."""
        return stream(derive_seed(self._game.seeds[row], "side", self.side), int(self.num_tokens[row]))

    def opponent(self) -> SideView:
        """Return the other side's view, for white-box attackers, who read their target's networks."""
        return SideView(self._game, 1 - self.side)

    def selections(self, row: int) -> np.ndarray:
        """Return the legal selections (m, H) of one dialogue as tokens of the domain."""
        return self._game.scenarios[row].selections.table


def require_game(game: str, scenarios: Sequence[Scenario], who: str = "an agent", where: str | None = None) -> None:
    """Raise unless all scenarios are of one game.

    Args:
        game: the required game.
        scenarios: of one game or several.
        who: the player, for messages.
        where: the name of that agent, for messages.

    Raises:
        ConfigError: a scenario is of another game.
    """
    for other in {scenario.game for scenario in scenarios} - {game}:
        raise ConfigError(
            f"{who} plays another game than the scenarios are of",
            where=where,
            got=f"{game!r}, and scenarios of {other!r}",
            fix=f"name an agent that was trained on a corpus of {other!r}, or scenarios of {game!r} (parley list)",
        )


def play(game: NegotiationGame, agents: tuple[Agent, Agent]) -> NegotiationGame:
    """Play every dialogue of a game to its end.

    Args:
        game: fresh or half-played dialogues.
        agents: of side 0 and side 1.

    Returns:
        The same game, finished.
    """
    return play_sessions(game, [agent.join(game.view(side)) for side, agent in enumerate(agents)])


_HIDDEN = "?"


def render_dialogue(game: NegotiationGame, row: int, perspective: int | None = None) -> str:
    """Return one dialogue as text for people.

    Args:
        game: any state of the game.
        row: index of the dialogue.
        perspective: the side (0 or 1) that reads: it is "you", and until the dialogue is over the partner's values and both
            selections are hidden. None names the sides "side 0" and "side 1" and hides nothing.

    Returns:
        Lines of text without a final newline; a table of items first, then the turns, then the outcome if there is one.
    """
    over = game.phase[row] == OVER
    sides = (0, 1) if perspective is None else (perspective, 1 - perspective)
    names = ["side 0", "side 1"] if perspective is None else ["you", "you"]
    if perspective is not None:
        names[1 - perspective] = "partner"
    are_values_visible = [perspective in (None, side) or bool(over) for side in (0, 1)]
    lines = [_table(game, row, sides, names, are_values_visible), ""]
    lines += [f"{names[side]}: {' '.join(words) or '(says nothing)'}" for side, words in game.transcript(row)]
    if game.forced[row]:
        lines[-1] += " (forced by a limit of the game)"
    counts = game.scenarios[row].counts
    chosen = [side for side in sides if game.selections[row, side] >= 0 and (perspective is None or over)]
    if chosen:
        lines.append("")
    lines += [f"{names[side]} chose {game.domain.selection_text(counts, int(game.selections[row, side]))}" for side in chosen]
    if over:
        earned = ", ".join(f"{names[side]} {game.points[row, side]}" for side in sides)
        lines.append(f"{'agreed' if game.agreed[row] else 'not agreed'}, points: {earned}")
    return "\n".join(lines)


def _table(game: NegotiationGame, row: int, sides: tuple[int, int], names: list[str], are_values_visible: list[bool]) -> str:
    scenario = game.scenarios[row]
    cells = [["item", "count", *(f"value to {names[side]}" for side in sides)]]
    for item, name in enumerate(game.domain.items):
        values = [str(scenario.values[side][item]) if are_values_visible[side] else _HIDDEN for side in sides]
        cells.append([name, str(scenario.counts[item]), *values])
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return "\n".join(
        "  ".join([first.ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(rest, widths[1:], strict=True))])
        for first, *rest in cells
    )
