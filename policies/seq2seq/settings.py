"""Settings of the sequence-to-sequence and language models, without torch: widths, lengths, recipes.

Sources: Li et al. 2017 (arXiv 1701.06547) and its authors' released code, which has all amounts (`li2017`); for all else He &
Glass 2018 (arXiv 1809.04113), sections 2 and 5, and the code that the authors released later
(cloudygoose/negativetraining_acl2020), whose behaviour is called "released" here. Contexts of several turns, as in Niu & Bansal
2018 (arXiv 1809.02079), are ours: they are cut so that the newest words stay.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Literal

from parley.envs.core.config import AtLeastTwo, Configuration, PositiveInt, ShareBelowOne, check
from parley.policies.core.settings import FitConfig

Attention = Literal["none", "general", "released", "dot"]


@dataclass(frozen=True, kw_only=True)
class Seq2SeqSizes(Configuration):
    """Widths and lengths of a sequence-to-sequence model; the defaults are the published ones."""

    topic: ClassVar[str] = "train seq2seq"

    embed: PositiveInt = 300
    """Width of the word embeddings."""
    hidden: PositiveInt = 600
    """State of the encoder and of the decoder."""
    attention: Attention = "general"
    """none: the last encoder state at every step; general: Luong's; released: the authors' code, a layer of its own; dot: the
    decoder of Li et al. 2017, with input_feeding."""
    input_feeding: bool = False
    """The decoder of Li et al. 2017: it starts from the encoder's last states, reads what it attended to before each word, and
    attends again before it says one."""
    layers: PositiveInt = 1
    """LSTM layers of the encoder and of the decoder; several with input_feeding."""
    dropout: ShareBelowOne = 0.0
    """Share of decoder inputs and outputs dropped in training, in [0, 1); published: 0.3 on Switchboard."""
    max_source: AtLeastTwo = 15
    """Longest source in words, `<eou>` included; longer ones lose their end, or with several turns their oldest words."""
    max_reply: AtLeastTwo = 20
    """Longest reply in words, `</s>` included; longer ones are cut."""
    turns: PositiveInt = 1
    """Turns of context that the model reads; with more than one, `<eot>` between them is one more word of the vocabulary."""
    backward: bool = False
    """Exchanged roles: the reply is read, the context predicted; `max_source` is then of replies."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check(self, "layers", self.layers == 1 or self.input_feeding, "1, or more with input_feeding=true")
        dot = self.attention == "dot"
        check(self, "attention", dot is self.input_feeding, "dot with input_feeding=true; else none, general or released")

    @property
    def exchanged(self) -> Seq2SeqSizes:
        """Sizes of the backward model of a model of these sizes."""
        return replace(self, backward=True, max_source=self.max_reply, max_reply=self.max_source)


@dataclass(frozen=True, kw_only=True)
class LanguageModelSizes(Configuration):
    """Widths and length of a language model; the defaults are the published ones."""

    embed: PositiveInt = 300
    """Width of the word embedding."""
    hidden: PositiveInt = 600
    """State of the LSTM."""
    dropout: ShareBelowOne = 0.0
    """Share of inputs and outputs dropped in training, in [0, 1); published: 0.3 on Switchboard."""
    max_length: AtLeastTwo = 15
    """Longest text in words, `</s>` included; longer ones lose their end, or with several turns their oldest words."""
    turns: PositiveInt = 1
    """Turns of context in a text, `<eot>` between them, as a model of as many turns reads; with 1 every utterance is a text."""


def replier() -> Seq2SeqSizes:
    """Return sizes as of Li et al. 2017, with half the widths, one layer, and replies of 20 words.

    Attention that is fed back and the encoder's last state let it use contexts even where there is little text: on 36,000 pairs
    of DailyDialog, contexts gained .04 nats a word after two epochs; for a decoder that starts from zero .006, with attention
    after ten.
    """
    return Seq2SeqSizes(embed=200, hidden=300, attention="dot", input_feeding=True, max_source=60, max_reply=21, turns=2)


def released_replier() -> Seq2SeqSizes:
    """Return sizes of the released generator of Li et al. 2017: a source of 50 words, replies of 20."""
    sizes = Seq2SeqSizes(embed=512, hidden=512, attention="dot", input_feeding=True, layers=2, dropout=0.2)
    return replace(sizes, max_source=50, max_reply=21, turns=2)


def he2018() -> FitConfig:
    """Return the published recipe: SGD at rate 1 for 10 epochs, then 10 at halved rates; keeps the last."""
    return FitConfig(
        optimiser="sgd",
        learning_rate=1.0,
        weight_decay=1e-5,
        max_epochs=20,
        patience=10,
        decay_epochs=10,
        keep="last",
        bucketed=False,
        precision="float32",
    )


def li2017() -> FitConfig:
    """Return the released recipe of Li et al. 2017: plain SGD for 8 epochs, halved after the sixth.

    # Released: a rate of 1 and gradients of norm 5 at most, sums over words divided by the number of replies. Ours: divided by
    the number of words, of which a reply has about ten, so ten times the rate and a tenth of the norm.
    """
    return FitConfig(
        optimiser="sgd",
        learning_rate=10.0,
        momentum=0.0,
        batch_size=128,
        clip=0.5,
        max_epochs=8,
        patience=6,
        decay_epochs=2,
        keep="last",
        precision="float32",
    )


def fast() -> FitConfig:
    """Return our recipe: Adam, larger batches of like length, an end when the validation loss stops falling."""
    return FitConfig(batch_size=128)


def small_batches() -> FitConfig:
    """Return the fast recipe with four times as many steps an epoch, for some ten thousand pairs."""
    return FitConfig(batch_size=32)


def demo() -> FitConfig:
    """Return the recipe of the built-in help desk: a high rate, one minute of one core."""
    return FitConfig(learning_rate=8e-3, max_epochs=19, patience=2, decay_epochs=3, precision="float32")
