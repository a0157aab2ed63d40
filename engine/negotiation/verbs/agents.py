"""Agents that settings name: their vocabularies, the checks of learners and judges, and a person at the terminal.

All verbs find the judge of fluency by one rule if none is named. Reinforcement moves a model's words away from those of
people. So a reinforced agent does not measure how people speak, but the model from which its training started does. A
checkpoint names that model by its path at the time. The path is tried beside the checkpoint's run, then from the working
directory.

A person reads the other side's words, types words and chooses items. Output goes to standard error and input comes from
standard input, so a file of lines can play too; its lines are then shown. Words are written as in the corpora: lower case,
with blanks around punctuation. /quit, or the end of the input, has the effect of Ctrl-C.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import wraps
from pathlib import Path
from typing import Any

import numpy as np

from parley.engine.core.cli.screen import StandardTerminal, Terminal
from parley.engine.core.verbs.checkpoints import _instead, absolute_name, checkpoint_folder, name_beside, require_checkpoint
from parley.envs.core.errors import CheckpointError, ConfigError, StorageError
from parley.envs.core.play import HUMAN, Utterances
from parley.envs.core.registry import nearest
from parley.envs.negotiation.agents import agents, is_chat_model
from parley.envs.negotiation.agents import make_agent as agent_of
from parley.envs.negotiation.domain import DEAL_OR_NO_DEAL, SELECTION, SELECTION_ID, Vocabulary, domain_of, split_text
from parley.envs.negotiation.game import Agent, NegotiationGame, SideView, render_dialogue
from parley.policies.chat.addresses import is_chat_address, is_local
from parley.policies.core.responder import read_header, read_words
from parley.policies.negotiator.settings import KIND

ANY_AGENT = "parley selfplay, play, attack rl, transfer and tactic, train adversary, evaluate exploitability and minmax"
"""The verbs that take an agent of any kind."""


def split_names(names: str) -> list[str]:
    """Return the names in a comma-separated setting, without blanks."""
    return [name.strip() for name in names.split(",") if name.strip()]


def vocabulary_of(spec: str) -> Vocabulary | None:
    """Return the vocabulary of a checkpoint; None for an agent of another kind, which takes any.

    Raises:
        CheckpointError: the checkpoint lacks a part, is damaged or of another kind.
    """
    folder = checkpoint_folder(spec)
    return None if folder is None else read_words(folder, KIND, Vocabulary)


def words_of(specs: Iterable[str], game: str = DEAL_OR_NO_DEAL) -> Vocabulary:
    """Return the first vocabulary that one of some agents has; that of the game's scripted agents if none has one.

    Raises:
        CheckpointError: a checkpoint lacks a part, is damaged or of another kind.
    """
    vocabularies = [vocabulary for spec in specs if spec and (vocabulary := vocabulary_of(spec)) is not None]
    return vocabularies[0] if vocabularies else domain_of(game).vocabulary()


def require_one_game(specs: Mapping[str, str]) -> None:
    """Raise an error if two agents play different games; agents without a vocabulary play any.

    Args:
        specs: agents by the option that names them; empty for none.

    Raises:
        CheckpointError: two play different games, or a checkpoint lacks a part, is damaged or of another kind.
    """
    vocabularies = {
        option: vocabulary for option, spec in specs.items() if spec and (vocabulary := vocabulary_of(spec)) is not None
    }
    for option, vocabulary in vocabularies.items():
        first_option, first = next(iter(vocabularies.items()))
        if vocabulary.game != first.game:
            raise CheckpointError(
                f"{first_option} and {option} play different games",
                where=f"{specs[first_option]} and {specs[option]}",
                got=f"{first.game!r} and {vocabulary.game!r}",
                fix=f"name agents that were trained on corpora of one game, such as of {first.game!r}",
            )


def shared_vocabulary(specs: Mapping[str, str]) -> Vocabulary:
    """Return the one vocabulary of agents, and raise an error if two checkpoints have different ones.

    Args:
        specs: agents by the option that names them.

    Raises:
        CheckpointError: two checkpoints have different vocabularies, or one lacks a part, is damaged or of another kind.
    """
    require_one_game(specs)
    vocabularies = {option: vocabulary for option, spec in specs.items() if (vocabulary := vocabulary_of(spec)) is not None}
    for option, vocabulary in vocabularies.items():
        first_option, first = next(iter(vocabularies.items()))
        if vocabulary.digest != first.digest:
            raise CheckpointError(
                f"{first_option} and {option} speak different vocabularies",
                where=f"{specs[first_option]} and {specs[option]}",
                got=f"{len(first)} words ({first.digest}) and {len(vocabulary)} words ({vocabulary.digest})",
                fix="use agents trained on the same corpus",
            )
    return words_of(specs.values())


def require_learner(start: str, option: str, judge: str) -> Vocabulary:
    """Return the vocabulary of the checkpoint that a learner starts from, and check the judge.

    Args:
        start: the checkpoint.
        option: the option that names it.
        judge: the checkpoint that judges fluency; empty for none.

    Raises:
        CheckpointError: one of them is missing or damaged.
    """
    if judge:
        require_judge(judge)
        words_of([judge])
    require_negotiator(start, option)
    return words_of([start])


def require_negotiator(spec: str, option: str) -> Path:
    """Return the folder of a negotiator's checkpoint that Parley trained.

    Args:
        spec: a run or checkpoint folder.
        option: the option that names it.

    Raises:
        CheckpointError: there is none; for an agent of another kind the fix names the verbs that take it.
    """
    if is_weightless(spec):
        custom = "an agent of your own"
        searched = "parley attack trigger searches words that break such a chat model; " if is_local(spec) else ""
        raise CheckpointError(
            f"{option} needs a checkpoint of a negotiator that Parley trained: here its weights are read, or learned from",
            where=spec,
            got="a chat model" if is_chat_address(spec) else custom if ".py:" in spec else "an agent without weights",
            fix=f"{searched}parley train negotiator makes one; any agent can be met in {ANY_AGENT}",
        )
    return require_checkpoint(spec, option)


def require_judge(spec: str) -> Path | str:
    """Return the folder of the judge's checkpoint, or the address of a chat model that gives likelihoods.

    Raises:
        CheckpointError: there is neither.
        ConfigError: it is a server or a user's own model that gives no likelihoods of texts.
    """
    if not is_chat_model(spec):
        return require_negotiator(spec, "--judge")
    from parley.policies.chat.seat import require_chat_judge

    require_chat_judge(spec, ", or a negotiator that parley train negotiator makes")
    return spec


def is_weightless(spec: str) -> bool:
    """Return True if the name is an agent without a checkpoint: scripted, a user's own, or a chat model."""
    return ".py:" in spec or spec in agents or is_chat_address(spec)


def weightless_name(spec: str) -> str:
    """Return the name of an agent without a checkpoint that is valid in other working directories."""
    return absolute_name(spec) if ".py:" in spec or is_chat_address(spec) else spec


def require_partner(spec: str, option: str) -> None:
    """Raise an error if a learner cannot play with the named agent.

    Args:
        spec: any agent.
        option: the option that names it.

    Raises:
        CheckpointError: there is none, or it is damaged.
        ConfigError: it is a person, or a user's own file makes no agent.
    """
    if spec == HUMAN:
        what, fix = "a person cannot be met in thousands of dialogues", "name a run, scripted, hf:FOLDER, or path/file.py:Name"
        raise ConfigError(what, where=option, got=spec, fix=fix)
    if is_weightless(spec):
        make_agent(spec, words_of([]))
    elif checkpoint_folder(spec) is None and (hint := nearest(spec, agents)):
        fix = f"name a run, one of {', '.join(agents)}, or path/file.py:Name"
        raise ConfigError(f"no agent is called {spec!r}{hint}", where=option, fix=fix)
    else:
        vocabulary_of(str(require_checkpoint(spec, option)))


def start_of(named: str, target: str, option: str) -> str:
    """Return the checkpoint that a learner starts from: the named one, or its target's own.

    Args:
        named: the checkpoint that the option names; empty for the target's.
        target: the agent that the learner plays with.
        option: the option that names a checkpoint.

    Raises:
        CheckpointError: none is named, and the target has no weights to start from.
    """
    if not named and is_weightless(target):
        raise CheckpointError(
            "the learner cannot start from its target, which has no weights",
            where=target,
            fix=f"name the checkpoint that it starts from with {option}; parley train negotiator makes one",
        )
    return named or target


@wraps(agent_of)
def make_agent(spec: str, *how: Any, **named: Any) -> Agent:
    """Make the agent of a name by `parley.envs.negotiation.agents.make_agent`; the error names a checkpoint nearby, if any.

    Raises:
        ConfigError: no agent has that name, or a user's own file makes no agent.
        CheckpointError: the checkpoint is damaged or of another kind, or the named folder holds none.
    """
    if not is_weightless(spec) and checkpoint_folder(spec) is None and (hint := _instead(spec)):
        got, fix = hint
        raise CheckpointError("there is no checkpoint to make an agent of", where=spec, got=got, fix=fix)
    return agent_of(spec, *how, **named)


NO_JUDGE = "neither side is a model, so fluency has no judge; --judge names one"
_BEGAN_WITH = {"rl": "learner", "adversary": "learner", "target": "target"}
"""The entry of a checkpoint that names the model from which its training started, by the role of the checkpoint."""


def judge_of(named: str, sides: Sequence[str]) -> str:
    """Return the checkpoint that judges fluency.

    Args:
        named: the user's judge; empty for none.
        sides: the agents of the match, the target first. The first model judges, or that model's ancestor before any
            reinforcement if its checkpoint still exists.

    Returns:
        A run or checkpoint folder; empty if no judge is named and no side is a model.
    """
    if named:
        return named
    model = next((side for side in sides if side and checkpoint_folder(side) is not None), "")
    return model and _before_reinforcement(model)


def who_judges(judge: str) -> str:
    """Return the end of a sentence that names the judge, which `judge_of` returned."""
    return f"fluency as {judge} finds it" if judge else NO_JUDGE


def _before_reinforcement(model: str) -> str:
    """Return a model's ancestor before any reinforcement; the model itself if its origin is unknown, gone or of other words."""
    ancestor, met = model, {model}
    while (start := _start(ancestor)) is not None:
        if start in met or _provenance(start) is None:
            return model
        met.add(start)
        ancestor = start
    return ancestor if ancestor == model or _same_words(model, ancestor) else model


def _start(model: str) -> str | None:
    """Return the model from which the training of a model started; None if no reinforcement made it."""
    origin = _provenance(model) or {}
    key = _BEGAN_WITH.get(origin.get("role", ""))
    if key is None:
        return None
    # The result of a campaign descends from the target that the campaign was given.
    return name_beside(checkpoint_folder(model), str(origin.get("campaign_from") or origin.get(key, "")))


def _provenance(model: str) -> Mapping[str, Any] | None:
    """Return the provenance of a checkpoint; None if it cannot be read."""
    try:
        folder = checkpoint_folder(model) if model else None
        return None if folder is None else read_header(folder, KIND).get("provenance", {})
    except (CheckpointError, StorageError):
        return None


def _same_words(model: str, other: str) -> bool:
    try:
        words, other_words = vocabulary_of(model), vocabulary_of(other)
    except CheckpointError:
        return False
    return words is not None and other_words is not None and words.digest == other_words.digest


HELP = f"""Type what you say. Commands:
  /deal   end the dialogue and choose items (also {SELECTION})
  /help   this list
  /quit   leave"""
NO_DEAL = "none"


class Person:
    """A person as an `Agent`.

    Args:
        vocabulary: the words of the game.
        terminal: the terminal of the person.
    """

    name = "human"

    def __init__(self, vocabulary: Vocabulary, terminal: Terminal | None = None) -> None:
        self.vocabulary = vocabulary
        self.terminal = terminal or StandardTerminal()

    def join(self, view: SideView) -> PersonSession:
        """Take one side of a batch of dialogues; the person plays one dialogue's utterance at a time."""
        return PersonSession(view, self.terminal)


class PersonSession:
    """A person's part in a batch of dialogues.

    Args:
        view: the view of the side.
        terminal: the terminal of the person.
    """

    def __init__(self, view: SideView, terminal: Terminal) -> None:
        self._view, self._terminal = view, terminal
        self._num_shown = np.zeros(len(view), dtype=np.int64)
        self._last_row = -1

    def speak(self, rows: np.ndarray) -> Utterances:
        """Ask the person for an utterance in each of the dialogues `rows` (n,), in turn."""
        return Utterances.of([self._words(row) for row in rows.tolist()])

    def choose(self, rows: np.ndarray) -> np.ndarray:
        """Ask the person for a selection in each of the dialogues `rows`; return indices (n,) into the legal selections."""
        return np.array([self._selection(row) for row in rows.tolist()], dtype=np.int64)

    def _words(self, row: int) -> list[int]:
        self._catch_up(row)
        while True:
            line = self._terminal.ask("you: ")
            if line in ("/deal", SELECTION):
                # The screen shows the command, but not the word for it.
                self._num_shown[row] += line == SELECTION
                return [SELECTION_ID]
            if line == "/quit":
                raise KeyboardInterrupt
            if line == "/help":
                self._terminal.show(HELP)
            elif line.startswith("/"):
                self._terminal.show(f"there is no command {line.split()[0]}; /help lists them")
            elif words := split_text(line, self._view.vocabulary):
                unknown = [word for word in words if word not in self._view.vocabulary.index]
                if unknown:
                    self._terminal.show(f"  (a trained model does not know, and hears as <unk>: {', '.join(unknown)})")
                return self._view.encode(line)

    def _selection(self, row: int) -> int:
        self._catch_up(row)
        counts, domain = tuple(self._view.contexts[row, ::2].tolist()), self._view.domain
        while True:
            line = self._terminal.ask(f"you take ({domain.question(counts)}; or {NO_DEAL}): ")
            if line == "/quit":
                raise KeyboardInterrupt
            if line == NO_DEAL:
                return len(self._view.selections(row)) - 2
            chosen = domain.read_selection(counts, line)
            if chosen is not None:
                return chosen
            self._terminal.show(f"give {domain.answer_form(counts)}; or {NO_DEAL}")

    def _catch_up(self, row: int) -> None:
        """Show the new turns of a dialogue, and its scenario first if the person was last asked about another dialogue."""
        view, anew = self._view, row != self._last_row
        if anew:
            self._last_row, self._num_shown[row] = row, 0
            self._terminal.show(_scenario(view, row))
        new = view.turns(row)[self._num_shown[row] :]
        self._num_shown[row] += len(new)
        for mine, words in new:
            # The screen already shows typed words, but not the end that a limit of the game forces.
            if anew or not mine or words == SELECTION:
                self._terminal.show(f"{'you' if mine else 'partner'}: {words or '(says nothing)'}")


def tell_outcome(game: NegotiationGame, people: Sequence[int], terminal: Terminal | None = None) -> None:
    """Show how dialogues ended: the turns, both selections and the points.

    Args:
        game: finished dialogues.
        people: the sides that a person plays; two people read the same screen.
        terminal: their terminal.
    """
    screen = terminal or StandardTerminal()
    perspective = people[0] if len(people) == 1 else None
    for row in range(len(game.scenarios)):
        screen.show(f"\n{render_dialogue(game, row, perspective)}\n")


def _scenario(view: SideView, row: int) -> str:
    counts, values = view.contexts[row, ::2].tolist(), view.contexts[row, 1::2].tolist()
    width = max(map(len, ("item", *view.domain.items)))
    lines = [f"{'item':<{width}}  count  value to you  value to partner"]
    for name, count, value in zip(view.domain.items, counts, values, strict=True):
        lines.append(f"{name:<{width}}  {count:>5}  {value:>12}  {'?':>16}")
    return "\n".join([*lines, ""])
