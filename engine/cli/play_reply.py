"""`parley play reply`: a person talks with a response model at the terminal."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from tyro import conf

from engine.cli.flags import parse
from engine.cli.screen import watching
from engine.cli.tables import make_console, show_lines
from engine.cli.verbs import Verb
from engine.jobs.checkpoints import absolute_name, located
from engine.jobs.negotiation.person import StandardTerminal, Terminal
from envs.core.ranges import Configuration, NonNegativeInt
from envs.core.seeds import derive_seed
from envs.pairs.turns import Turn, parse_turns
from envs.pairs.written import detokenise
from policies.decoders import GREEDY, DecoderSettings
from policies.responder import Responder, replies_of, require_decoder

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
    """Talks until the person leaves; returns the exit status."""
    from policies.responders import load_responder

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
    show_lines(make_console(), "next", [shlex.join(again)])
    return 0


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
