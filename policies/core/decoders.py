"""How a reply is chosen, as one word of the command line: `greedy`, `beam:5`, `sample:0.8`, `diverse:7,rate=0.5`, `mmi:...`.

    RULE[:FIRST][,OPTION=VALUE ...]

What the rules do is `policies/core/decoding.py` and `policies/seq2seq/replying.py`; this reads their names, without torch.

Sources: diverse beam, Li et al. 2016c (arXiv 1611.08562); re-ranking and the anti-language-model, Li et al. 2016a (arXiv
1510.03055, sections 4.2 and 4.3); which of them are baselines, and the penalty on words said before, Li et al. 2017 (arXiv
1701.06547, section 3.3 and table 3). The amounts are not in the latter paper. They are options:
  * mmi: # Released: a beam of 7, both halves count alike (weight 0.5). The paper speaks of a large list.
  * diverse: rate 0.5 is ours.
  * mmi-antilm: weight 0.5 is that of Li et al. 2016a; that the first 5 words are penalised is ours.
  * repeat: ours is 0, which is none.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from parley.envs.core.errors import ConfigError, OutOfRangeError
from parley.envs.core.ranges import Configuration, NonNegativeFloat, PositiveFloat, PositiveInt, Share
from parley.envs.core.registry import nearest


class DecodingRule(NamedTuple):
    """Which options a way to choose replies has."""

    summary: str
    """What it does."""
    first: str = ""
    """The option that may stand behind the colon without its name."""
    options: tuple[str, ...] = ()
    """Other options of its own."""
    defaults: Mapping[str, Any] = {}
    """Where they are not those of the fields of `DecoderSettings`."""
    needed: str = ""
    """The option that has to be given."""


RULES = {
    "greedy": DecodingRule("the likeliest word at every step"),
    "beam": DecodingRule("the likeliest reply per word that a beam finds", "beam", ("length",), {"beam": 5}),
    "sample": DecodingRule("drawn word by word", "temperature"),
    "diverse": DecodingRule(
        "a beam whose hypotheses compete less with their siblings", "beam", ("rate", "length"), {"beam": 7, "rate": 0.5}
    ),
    "mmi": DecodingRule(
        "the replies of a beam, re-ranked by a backward model", "beam", ("backward", "weight", "rate"), {"beam": 7}, "backward"
    ),
    "mmi-antilm": DecodingRule(
        "a beam in which words that a language model expects are penalised",
        "beam",
        ("lm", "weight", "words", "length"),
        {"beam": 7},
        "lm",
    ),
    "blind": DecodingRule("greedy, to a context without a turn: one reply to everybody, a control"),
}
BLIND = "blind"
"""The rule for which a model needs to know no more than greedy."""
EVERYWHERE = ("repeat", "forbid")
"""Options of every rule."""


@dataclass(frozen=True, kw_only=True)
class DecoderSettings(Configuration):
    """A rule and its amounts; those of other rules have no effect."""

    rule: str = "greedy"
    """One of `RULES`."""
    beam: PositiveInt = 1
    """Hypotheses that are kept."""
    temperature: PositiveFloat = 1.0
    """Of the distribution that words are drawn from."""
    length: NonNegativeFloat = 1.0
    """Exponent of the number of words by which the log-probability of a whole reply is divided; 0 for none."""
    rate: NonNegativeFloat = 0.0
    """Nats that a hypothesis loses for each sibling that is likelier, from the second word on."""
    backward: str = ""
    """Run of parley train seq2seq --backward."""
    lm: str = ""
    """Run of parley train lm."""
    weight: Share = 0.5
    """Of the backward model, the rest being the forward model's; of the language model's log-probability."""
    words: PositiveInt = 5
    """First words of a reply that the language model penalises."""
    repeat: NonNegativeFloat = 0.0
    """Nats that a content word costs that the reply holds already."""
    forbid: tuple[str, ...] = ()
    """Words that are never said."""

    @classmethod
    def parse(cls, text: str, where: str = "--decoder") -> DecoderSettings:
        """The settings that a text stands for.

        Args:
            text: such as "beam:5" or "mmi:beam=20,backward=runs/backward,forbid=<unk>"; blanks separate forbidden words.
            where: who asks, for messages.

        Raises:
            ConfigError: no such rule or option (with the nearest name), a value out of range, or one that is missing.
        """
        name, _, rest = text.partition(":") if ":" in text.split(",")[0] else text.partition(",")
        if name not in RULES:
            fix = f"one of {', '.join(RULES)}"
            raise ConfigError(f"no decoder is called {name!r}{nearest(name, RULES)}", where=f"{where} {text}", fix=fix)
        rule = RULES[name]
        known = [*([rule.first] if rule.first else []), *rule.options, *EVERYWHERE]
        values: dict[str, Any] = {}
        for number, part in enumerate(rest.split(",") if rest else []):
            option, equals, value = part.partition("=")
            if not equals and not number and rule.first:
                option, value = rule.first, part
            if option not in known:
                what = f"the decoder {name} has no option {option!r}{nearest(option, known)}"
                raise ConfigError(what, where=f"{where} {text}", fix=f"its options: {', '.join(known)}")
            values[option] = _value(option, value, f"{where} {text}")
        if rule.needed and not values.get(rule.needed):
            fix = f"{name}:{rule.needed}=RUN of {MAKERS[rule.needed]}"
            raise ConfigError(f"the decoder {name} needs {rule.needed}", where=f"{where} {text}", fix=fix)
        try:
            return cls(rule=name, **{**rule.defaults, **values})
        except OutOfRangeError as error:
            raise OutOfRangeError(error.what, where=f"{where} {text}", got=error.got, fix=error.fix) from None

    @property
    def parts(self) -> tuple[str, ...]:
        """Its rule and the options of every rule that it uses: what a model has to know."""
        return ("greedy" if self.is_blind else self.rule, *(option for option in EVERYWHERE if getattr(self, option)))

    @property
    def is_blind(self) -> bool:
        """Whether the reply is the same to every context."""
        return self.rule == BLIND

    @property
    def draws(self) -> bool:
        """Whether replies depend on seeds."""
        return self.rule == "sample"

    @property
    def models(self) -> dict[str, str]:
        """Other models that it asks, by the option that names each."""
        return {option: name for option in ("backward", "lm") if (name := getattr(self, option))}


def lacks_backward(text: str) -> bool:
    """Whether a decoder re-ranks by a backward model that it does not name: `mmi`, `mmi:20`."""
    return text.replace(":", ",").split(",")[0] == "mmi" and "backward=" not in text


def with_backward(text: str, backward: str) -> str:
    """A decoder with the backward model that it lacks; one that lacks none is what it was."""
    joint = "," if ":" in text or "," in text else ":"
    return f"{text}{joint}backward={backward}" if lacks_backward(text) else text


GREEDY = DecoderSettings()
MAKERS = {"backward": "parley train seq2seq --backward", "lm": "parley train lm"}
"""The commands that make the models which decoders name, by option."""


def _value(option: str, text: str, where: str) -> Any:
    default = next(field.default for field in dataclasses.fields(DecoderSettings) if field.name == option)
    if isinstance(default, tuple):
        return tuple(text.split())
    if isinstance(default, str):
        return text
    kind = int if isinstance(default, int) else float
    try:
        return kind(text)
    except ValueError:
        fix = "give a whole number" if kind is int else "give a number"
        raise ConfigError(f"{option} has the wrong type", where=where, got=repr(text), fix=fix) from None
