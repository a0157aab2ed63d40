"""`parley play reply`: a person talks with a response model at the terminal.

Answers of a chat model that are no reply are counted in the end; where most are none, nobody talked and the status is 1.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from tyro import conf

from parley.engine.core.cli.flags import parse
from parley.engine.core.cli.screen import watching
from parley.engine.core.cli.tables import make_console, show_lines
from parley.engine.core.cli.terminal import StandardTerminal, Terminal
from parley.engine.core.cli.verbs import Verb
from parley.engine.core.verbs.checkpoints import absolute_name, located
from parley.envs.core.ranges import Configuration, NonNegativeInt
from parley.envs.core.seeds import derive_seed
from parley.envs.corpora.pairs.turns import Turn, parse_turns
from parley.envs.corpora.pairs.written import detokenise
from parley.policies.chat.settings import ChatAsking
from parley.policies.chat.usage import ChatUsage, RunUsage
from parley.policies.core.decoders import GREEDY, DecoderSettings
from parley.policies.core.responder import Responder, replies_of, require_decoder

HELP = """Type what you say. Commands:
  /new    begin another dialogue
  /quit   leave"""


@dataclass(frozen=True, kw_only=True)
class PlayReplyArguments(Configuration):
    """With which model, and how it replies."""

    model: Annotated[conf.Positional[str], conf.arg(metavar="MODEL")]
    """Response model: a run or checkpoint (parley train seq2seq, parley train vhred), hf:FOLDER, gguf:FILE,
    openai:URL#MODEL, or path/file.py:Name."""
    decoder: str = GREEDY.rule
    """How replies are chosen: greedy, beam:5, sample:0.8, diverse:7,rate=0.5, mmi:backward=RUN, mmi-antilm:lm=RUN,
    blind (one reply to everybody)."""
    seed: NonNegativeInt = 1
    """Decides what is drawn, with the number of the turn."""


def run_play_reply(verb: Verb, arguments: Sequence[str]) -> int:
    """Talk until the person leaves; return the exit status, 1 where most answers are no reply."""
    from parley.policies.core.responders import load_responder

    asked = parse(PlayReplyArguments, verb, arguments)
    with watching():
        decoder = located(DecoderSettings.parse(asked.decoder))
        responder = load_responder(absolute_name(asked.model, "MODEL"))
        require_decoder(responder, decoder, asked.model)
    terminal = StandardTerminal()
    terminal.show(f"You talk with {asked.model}, which replies by {asked.decoder}.\n\n{HELP}\n")
    try:
        talk(terminal, responder, decoder, asked.seed)
    except KeyboardInterrupt:
        terminal.show("")
    again = ["parley", "reply", "quick", "--model", asked.model, "--decoder", asked.decoder]
    console, usage = make_console(), usage_of(responder, asked.model)
    failure = usage.failure()
    lost = [] if failure else usage.warnings(ChatAsking())
    show_lines(console, "warning", lost)
    show_lines(console, "failed", [failure] if failure else [])
    show_lines(console, "next", [shlex.join(again)])
    return 1 if failure else 0


def usage_of(responder: Responder, name: str) -> RunUsage:
    """Return what a response model that is a chat model was asked; nothing of others."""
    usage = getattr(getattr(responder, "chat_model", None), "usage", None)
    return RunUsage({name: usage} if isinstance(usage, ChatUsage) else {})


def talk(terminal: Terminal, responder: Responder, decoder: DecoderSettings, seed: int) -> None:
    """Replies to what is typed, and to what was said before it.

    Args:
        terminal: where the person sits.
        responder: what replies; it reads as many of the newest turns as it was made for.
        decoder: how, which it knows.
        seed: decides what is drawn.

    Raises:
        KeyboardInterrupt: the input has come to its end.
    """
    turns: list[Turn] = []
    while (line := terminal.ask("you:   ")) != "/quit":
        if line == "/new":
            turns = []
            terminal.show("another dialogue")
            continue
        turns += [turn for turn in parse_turns(line) if any(turn)]
        if not line:
            continue
        (reply,) = replies_of(responder, [tuple(turns)], decoder, [derive_seed(seed, "play", len(turns))])
        text = " / ".join(detokenise(utterance) for utterance in reply.turn if utterance)
        nothing = "(says nothing)" if reply.answer is None or reply.is_reply else f"(no reply: {reply.answer.kind})"
        terminal.show(f"model: {text or nothing}")
        turns += [reply.turn] if text else []
