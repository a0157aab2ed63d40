"""Agents that settings name: their words, and what those must be that learn or are read.

Who judges the fluency of a match where nobody is named: one rule, for self-play, attacks, tables and campaigns.

Reinforcement moves a model's words away from those of people, so an agent that was trained by it is no measure of how people
speak; the model that it began with is. Checkpoints say what that was, under the name that it had then: a path is looked for
where it lay beside the checkpoint's run, then from the folder that the command is typed in.

A person at the terminal, as an agent: reads what the other side says, types words, chooses items.

What is shown goes to standard error and what is typed comes from standard input, so a person can also be a file of lines,
which are then shown as if they had been typed.
Words are taken as the corpora write them: lower case, punctuation apart. Leaving, or the end of the input, is the same as
Ctrl-C.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
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
from parley.policies.chat.seat import require_chat_judge
from parley.policies.core.responder import read_header, read_words
from parley.policies.negotiator.settings import KIND

ANY_AGENT = "parley selfplay, play, attack rl, transfer and tactic, train adversary, evaluate exploitability and minmax"
"""Where an agent of any kind can be met."""


def split_names(names: str) -> list[str]:
    """The agents of a setting that names several, between commas."""
    return [name.strip() for name in names.split(",") if name.strip()]


def vocabulary_of(spec: str) -> Vocabulary | None:
    """The vocabulary that an agent brings along: a checkpoint's own; None for agents that take any.

    Raises:
        CheckpointError: the checkpoint lacks a part, is damaged or of another kind.
    """
    folder = checkpoint_folder(spec)
    return None if folder is None else read_words(folder, KIND, Vocabulary)


def words_of(specs: Iterable[str], game: str = DEAL_OR_NO_DEAL) -> Vocabulary:
    """The words of the first of some agents that brings any along; those of a game's scripted agents where none does.

    Raises:
        CheckpointError: a checkpoint lacks a part, is damaged or of another kind.
    """
    found = [vocabulary for spec in specs if spec and (vocabulary := vocabulary_of(spec)) is not None]
    return found[0] if found else domain_of(game).vocabulary()


def require_one_game(specs: Mapping[str, str]) -> None:
    """Checks that agents play one game; those that play any do.

    Args:
        specs: agents by the option that named them; empty for none.

    Raises:
        CheckpointError: two play different games, or a checkpoint lacks a part, is damaged or of another kind.
    """
    found = {option: vocabulary for option, spec in specs.items() if spec and (vocabulary := vocabulary_of(spec)) is not None}
    for option, vocabulary in found.items():
        first_option, first = next(iter(found.items()))
        if vocabulary.game != first.game:
            raise CheckpointError(
                f"{first_option} and {option} play different games",
                where=f"{specs[first_option]} and {specs[option]}",
                got=f"{first.game!r} and {vocabulary.game!r}",
                fix=f"name agents that were trained on corpora of one game, such as of {first.game!r}",
            )


def shared_vocabulary(specs: Mapping[str, str]) -> Vocabulary:
    """The one vocabulary of agents whose weights are learned from each other, or read by each other.

    Args:
        specs: agents by the option that named them.

    Raises:
        CheckpointError: two checkpoints have different vocabularies, or one lacks a part, is damaged or of another kind.
    """
    require_one_game(specs)
    found = {option: vocabulary for option, spec in specs.items() if (vocabulary := vocabulary_of(spec)) is not None}
    for option, vocabulary in found.items():
        first_option, first = next(iter(found.items()))
        if vocabulary.digest != first.digest:
            raise CheckpointError(
                f"{first_option} and {option} speak different vocabularies",
                where=f"{specs[first_option]} and {specs[option]}",
                got=f"{len(first)} words ({first.digest}) and {len(vocabulary)} words ({vocabulary.digest})",
                fix="use agents trained on the same corpus",
            )
    return words_of(specs.values())


def require_learner(start: str, option: str, judge: str) -> Vocabulary:
    """The vocabulary of the checkpoint that a learner starts from.

    Args:
        start: that checkpoint.
        option: what named it.
        judge: the checkpoint that judges fluency; empty for none.

    Raises:
        CheckpointError: one of them is not there, or is damaged.
    """
    if judge:
        require_judge(judge)
        words_of([judge])
    require_negotiator(start, option)
    return words_of([start])


def require_negotiator(spec: str, option: str) -> Path:
    """The checkpoint of a negotiator that Parley trained.

    Args:
        spec: a run or checkpoint folder.
        option: what named it.

    Raises:
        CheckpointError: there is none; an agent of another kind is told which verbs take it.
    """
    if is_weightless(spec):
        own = "an agent of your own"
        searched = "parley attack trigger searches words that break such a chat model; " if is_local(spec) else ""
        raise CheckpointError(
            f"{option} needs a checkpoint of a negotiator that Parley trained: here its weights are read, or learned from",
            where=spec,
            got="a chat model" if is_chat_address(spec) else own if ".py:" in spec else "an agent without weights",
            fix=f"{searched}parley train negotiator makes one; any agent can be met in {ANY_AGENT}",
        )
    return require_checkpoint(spec, option)


def require_judge(spec: str) -> Path | str:
    """The checkpoint of who judges fluency, or the address of a chat model that does.

    Raises:
        CheckpointError: there is neither.
        ConfigError: it is a server or a model of a user's own that tells of no text how likely it is.
    """
    if not is_chat_model(spec):
        return require_negotiator(spec, "--judge")
    require_chat_judge(spec, ", or a negotiator that parley train negotiator makes")
    return spec


def is_weightless(spec: str) -> bool:
    """Whether a name stands for an agent that can be met and no more: one without weights, or a chat model."""
    return ".py:" in spec or spec in agents or is_chat_address(spec)


def weightless_name(spec: str) -> str:
    """The name of such an agent for env runners, which may stand in other folders."""
    return absolute_name(spec) if ".py:" in spec or is_chat_address(spec) else spec


def require_partner(spec: str, option: str) -> None:
    """Checks that a name stands for an agent whom a learner can meet.

    Args:
        spec: any agent.
        option: what named it.

    Raises:
        CheckpointError: there is none, or it is damaged.
        ConfigError: it is a person, or the file of a user's own makes no agent.
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
    """The checkpoint that a learner starts from: the one that is named, or its target's own.

    Args:
        named: by the option; empty for the target's.
        target: whom it learns to play with.
        option: that names another.

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


def make_agent(
    spec: str, vocabulary: Vocabulary | None = None, temperature: float = 0.5, device: str = "cpu", **chat: Any
) -> Agent:
    """The agent that a name stands for, as `parley.envs.negotiation.agents.make_agent`, which is told what is there instead.

    Raises:
        ConfigError: nothing is called that, or the file of a user's own makes no agent.
        CheckpointError: the checkpoint is damaged or of another kind, or what is called that holds none.
    """
    if not is_weightless(spec) and checkpoint_folder(spec) is None and (found := _instead(spec)):
        got, fix = found
        raise CheckpointError("there is no checkpoint to make an agent of", where=spec, got=got, fix=fix)
    return agent_of(spec, vocabulary, temperature, device, **chat)


NOBODY_JUDGES = "neither side is a model, so nobody judges fluency; --judge names a checkpoint that does"
_BEGAN_WITH = {"rl": "learner", "adversary": "learner", "target": "target"}
"""What a checkpoint calls the model that its training began with, by the role that reinforcement gave it."""


def judge_of(named: str, sides: Sequence[str]) -> str:
    """The checkpoint that judges fluency.

    Args:
        named: whom the user names; empty for nobody.
        sides: the agents that a judge is looked for among, the target first: the first model of them judges, or what that
            model was before any reinforcement, if it is still there.

    Returns:
        A run or checkpoint folder; empty where nobody is named and no side is a model.
    """
    if named:
        return named
    model = next((side for side in sides if side and checkpoint_folder(side) is not None), "")
    return model and _before_reinforcement(model)


def who_judges(judge: str) -> str:
    """The end of a sentence that says who judges, by what `judge_of` returned."""
    return f"fluency as {judge} finds it" if judge else NOBODY_JUDGES


def _before_reinforcement(model: str) -> str:
    """What a model was before any reinforcement; the model itself where that is not known, or not there any more."""
    ancestor, met = model, {model}
    while (start := _start(ancestor)) is not None:
        if start in met or _provenance(start) is None:
            return model
        met.add(start)
        ancestor = start
    return ancestor if ancestor == model or _same_words(model, ancestor) else model


def _start(model: str) -> str | None:
    """What the training of a model began with; None for a model that no reinforcement has made."""
    found = _provenance(model) or {}
    key = _BEGAN_WITH.get(found.get("role", ""))
    if key is None:
        return None
    # A campaign's result began, rounds ago, with what the campaign was given.
    return name_beside(checkpoint_folder(model), str(found.get("campaign_from") or found.get(key, "")))


def _provenance(model: str) -> Mapping[str, Any] | None:
    """How a model came about; None where none can be read."""
    try:
        folder = checkpoint_folder(model) if model else None
        return None if folder is None else read_header(folder, KIND).get("provenance", {})
    except (CheckpointError, StorageError):
        return None


def _same_words(model: str, other: str) -> bool:
    try:
        words, others = vocabulary_of(model), vocabulary_of(other)
    except CheckpointError:
        return False
    return words is not None and others is not None and words.digest == others.digest


HELP = f"""Type what you say. Commands:
  /deal   end the dialogue and choose items (also {SELECTION})
  /help   this list
  /quit   leave"""
NO_DEAL = "none"


class Person:
    """A person as an `Agent`.

    Args:
        vocabulary: of the game.
        terminal: where the person sits.
    """

    name = "human"

    def __init__(self, vocabulary: Vocabulary, terminal: Terminal | None = None) -> None:
        self.vocabulary = vocabulary
        self.terminal = terminal or StandardTerminal()

    def join(self, view: SideView) -> PersonSession:
        """Takes a seat on one side of a batch of dialogues, which are then held one utterance at a time."""
        return PersonSession(view, self.terminal)


class PersonSession:
    """A person's part in a batch of dialogues.

    Args:
        view: what the side sees.
        terminal: where the person sits.
    """

    def __init__(self, view: SideView, terminal: Terminal) -> None:
        self._view, self._terminal = view, terminal
        self._num_shown = np.zeros(len(view), dtype=np.int64)
        self._last_row = -1

    def speak(self, rows: np.ndarray) -> Utterances:
        """What the person says in each of the dialogues `rows` (n,), one after the other."""
        return Utterances.of([self._words(row) for row in rows.tolist()])

    def choose(self, rows: np.ndarray) -> np.ndarray:
        """What the person takes in each of the dialogues `rows`: index (n,) into the legal selections."""
        return np.array([self._selection(row) for row in rows.tolist()], dtype=np.int64)

    def _words(self, row: int) -> list[int]:
        self._catch_up(row)
        while True:
            line = self._terminal.ask("you: ")
            if line in ("/deal", SELECTION):
                # The command stands on the screen, but not what it says.
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
        """Shows the scenario of a dialogue when it is another one than before, and what was said since."""
        view, anew = self._view, row != self._last_row
        if anew:
            self._last_row, self._num_shown[row] = row, 0
            self._terminal.show(_scenario(view, row))
        new = view.turns(row)[self._num_shown[row] :]
        self._num_shown[row] += len(new)
        for mine, words in new:
            # What was typed stands on the screen already; what a limit of the game said does not.
            if anew or not mine or words == SELECTION:
                self._terminal.show(f"{'you' if mine else 'partner'}: {words or '(says nothing)'}")


def tell_outcome(game: NegotiationGame, people: Sequence[int], terminal: Terminal | None = None) -> None:
    """Shows how dialogues ended: what was said, what both sides chose and their points.

    Args:
        game: dialogues that are over.
        people: sides on which a person sits; where there are two, both read the same screen.
        terminal: where they sit.
    """
    shown = terminal or StandardTerminal()
    perspective = people[0] if len(people) == 1 else None
    for row in range(len(game.scenarios)):
        shown.show(f"\n{render_dialogue(game, row, perspective)}\n")


def _scenario(view: SideView, row: int) -> str:
    counts, values = view.contexts[row, ::2].tolist(), view.contexts[row, 1::2].tolist()
    width = max(map(len, ("item", *view.domain.items)))
    lines = [f"{'item':<{width}}  count  value to you  value to partner"]
    for name, count, value in zip(view.domain.items, counts, values, strict=True):
        lines.append(f"{name:<{width}}  {count:>5}  {value:>12}  {'?':>16}")
    return "\n".join([*lines, ""])
