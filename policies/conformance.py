"""Conformance tests of a user's own parts: responders, rankers, judges and chat models.

`parley check` runs them. The docstring of a test is the promise that it prints.
"""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np

from parley.envs.core.conformance import Kind, expect, same_alone
from parley.envs.corpora.pairs.compiled import RepliedPair
from parley.envs.corpora.pairs.turns import Utterance, parse_turns
from parley.envs.ranking.groups import Context
from parley.policies.chat.answers import OwnChatModel, made_chat_model
from parley.policies.chat.model import Answer, ChatDecoding, Message
from parley.policies.core.responder import DecoderSettings, Responder
from parley.policies.generation.judges.judge import Judge, JudgeSettings, scores_by
from parley.policies.ranking.ranker import BatchRanker, Pair, Ranker, outcomes_of, scores_of
from parley.policies.ranking.rankers import is_fitted

_CONTEXTS = [
    parse_turns(line)
    for line in (
        "hello <eot> hi , how can i help ?",
        "my screen is black <eot> did you turn it on ? <eou> is the light green ? <eot> yes , it is",
        "thanks",
    )
]


def _make_responder(named: Any) -> Responder:
    responder: Responder = named() if callable(named) else named
    return responder


def _answers_every_context(responder: Responder) -> None:
    """Answers every context with a turn: a tuple of utterances, each a tuple of words."""
    replies = responder.respond(_CONTEXTS)
    expect(len(replies) == len(_CONTEXTS), f"{len(_CONTEXTS)} replies", len(replies))
    for reply in replies:
        whole = isinstance(reply, tuple) and all(isinstance(utterance, tuple) for utterance in reply)
        expect(whole, "a tuple of tuples of words", repr(reply))
        expect(all(isinstance(word, str) for utterance in reply for word in utterance), "words are texts", repr(reply))


def _answers_nothing_to_nothing(responder: Responder) -> None:
    """Answers no context with no reply."""
    expect(list(responder.respond([])) == [], "an empty list", repr(responder.respond([])))


def _takes_its_decoders(responder: Responder) -> None:
    """Take decoder= and seeds= if it declares decoders: rules and options of `parley.policies.core.responder`."""
    for text in ("beam:2", "sample:0.7", "diverse:3,rate=1", "greedy:repeat=1", "greedy:forbid=the"):
        decoder = DecoderSettings.parse(text)
        if all(part in getattr(responder, "decoders", ()) for part in decoder.parts):
            replies = responder.respond(_CONTEXTS, decoder=decoder, seeds=range(len(_CONTEXTS)))
            expect(len(replies) == len(_CONTEXTS), f"{len(_CONTEXTS)} replies by {text}", len(replies))


def _repeats_itself(responder: Responder) -> None:
    """Answers the same twice."""
    first, second = list(responder.respond(_CONTEXTS)), list(responder.respond(_CONTEXTS))
    expect(first == second, "the same replies twice", "others the second time")


def _is_the_same_alone(responder: Responder) -> None:
    """Answers a context the same whatever else is asked."""
    alone = [responder.respond([context])[0] for context in _CONTEXTS]
    same_alone(responder.respond(_CONTEXTS), alone, "the reply to a context")


RESPONDER = Kind(
    "responder",
    "parley.policies.core.responder.Responder",
    ("respond",),
    _make_responder,
    (_answers_every_context, _answers_nothing_to_nothing, _takes_its_decoders, _repeats_itself, _is_the_same_alone),
)

_SAID: list[Context] = [tuple(turn[0] for turn in turns) for turns in _CONTEXTS]
_REPLIES: list[Utterance] = [
    ("yes", ",", "the", "light", "is", "green"),
    ("thanks",),
    (),
    ("my", "screen", "is", "black") * 30,
    ("zzyzx", "is", "no", "word"),
]
_PAIRS: list[Pair] = [*((context, _REPLIES) for context in _SAID), (((),), _REPLIES[:2])]


def _ranker(named: Any) -> Ranker:
    ranker: Ranker = named.fit(_SAID) if is_fitted(named) else named() if callable(named) else named
    return ranker


def _scores_every_candidate(ranker: Ranker) -> None:
    """Give one finite number to each candidate, an empty reply and an empty context included."""
    for failure in (outcome for outcome in outcomes_of(ranker, _PAIRS) if isinstance(outcome, Exception)):
        expect(False, "a list or an array of one finite number for each candidate", f"{failure.what}: {failure.got}")


def _scores_the_same_in_any_place(ranker: Ranker) -> None:
    """Scores a candidate the same in any place and beside any other candidates."""
    for context, candidates in _PAIRS:
        (together,) = scores_of(ranker, [(context, candidates)])
        (turned,) = scores_of(ranker, [(context, candidates[::-1])])
        alone = np.concatenate([scores_of(ranker, [(context, [reply])])[0] for reply in candidates])
        _alike(turned[::-1], together, "the order of candidates")
        _alike(alone, together, "the other candidates")


def _scores_the_same_in_any_batch(ranker: Ranker) -> None:
    """Scores a context the same whatever else is asked, before or beside it."""
    alone = [scores_of(ranker, [pair])[0] for pair in _PAIRS]
    for scores, first in zip(scores_of(ranker, _PAIRS), alone, strict=True):
        _alike(scores, first, "what else is asked")
    if isinstance(ranker, BatchRanker):
        for (context, candidates), first in zip(_PAIRS, alone, strict=True):
            _alike(np.asarray(ranker.score(context, candidates)), first, "whether score or score_all is asked")


def _alike(scores: np.ndarray, first: np.ndarray, what: str) -> None:
    """Check that scores are equal up to a network's rounding in a batch."""
    expect(np.allclose(scores, first, rtol=1e-5, atol=1e-5), f"scores do not depend on {what}", f"{scores} and {first}")


def _is_fitted_by_itself(part: Any) -> bool:
    """Return whether its `fit` fits an object, as a judge's; a ranker's is a class method that makes one."""
    fit = getattr(part, "fit", None)
    return fit is not None and not inspect.isclass(getattr(fit, "__self__", None))


RANKER = Kind(
    "ranker",
    "parley.policies.ranking.ranker.Ranker",
    ("score",),
    _ranker,
    (_scores_every_candidate, _scores_the_same_in_any_place, _scores_the_same_in_any_batch),
    unlike=_is_fitted_by_itself,
)

_JUDGED = [RepliedPair(context, reply) for context in _SAID for reply in _REPLIES if reply]
_LABELS = np.array([number % 2 == 0 for number in range(len(_JUDGED))])


def _judge(named: Any) -> Judge:
    judge: Judge = named(JudgeSettings(hidden=4, embedding=4))() if inspect.isfunction(named) else named()
    return judge


def _fitted(judge: Judge) -> Judge:
    judge.fit(_JUDGED, _LABELS, 1)
    return judge


def _gives_each_pair_a_score(judge: Judge) -> None:
    """Once fitted gives one finite number to each pair, words that it has not seen included."""
    scores_by(_fitted(judge), [*_JUDGED, RepliedPair((("never", "seen"),), ("nor", "this"))])


def _judges_a_pair_alike_in_any_company(judge: Judge) -> None:
    """Scores a pair the same whatever else is asked, before or beside it."""
    together = scores_by(_fitted(judge), _JUDGED)
    alone = np.concatenate([scores_by(judge, [pair]) for pair in _JUDGED])
    _alike(alone, together, "what else is asked")


JUDGE = Kind(
    "judge",
    "parley.policies.generation.judges.judge.Judge",
    ("fit", "score"),
    _judge,
    (_gives_each_pair_a_score, _judges_a_pair_alike_in_any_company),
    unlike=lambda part: not _is_fitted_by_itself(part),
)


_CHATS = [
    (Message("user", "hello"),),
    (Message("system", "You sell books."), Message("user", "how much is it ?")),
    (Message("user", "hello"), Message("assistant", "hi , how can i help ?"), Message("user", "caf\u00e9 \U0001f600 <b>")),
]
_DECODING = ChatDecoding(max_tokens=16)


def _make_chat_model(named: Any) -> OwnChatModel:
    # The name of its argument marks a function as a chat model, because other kinds are functions too.
    if inspect.isfunction(named) and list(inspect.signature(named).parameters)[:1] not in ([], ["messages"]):
        raise TypeError("no function of messages")
    return OwnChatModel("the model", made_chat_model("the model", named))


def _answer_texts(model: OwnChatModel) -> list[str]:
    return [answer.text for answer in model.answer(_CHATS, decoding=_DECODING)]


def _answers_every_chat(model: OwnChatModel) -> None:
    """Answers every chat with one text, or one `parley.policies.chat.model.Answer`."""
    answers = model.answer(_CHATS, decoding=_DECODING)
    expect(all(isinstance(answer, Answer) for answer in answers), "texts", repr(answers))


def _takes_temperature_and_seeds(model: OwnChatModel) -> None:
    """Take a temperature and a seed for each chat, and draw the same from the same seeds."""
    decoding = ChatDecoding(temperature=0.7, max_tokens=16)
    first, second = (model.answer(_CHATS, decoding=decoding, seeds=[1, 2, 3]) for _ in range(2))
    expect(first == second, "the same answers from the same seeds", f"{first} and {second}")


def _repeats_its_answers(model: OwnChatModel) -> None:
    """Answers the same twice at temperature 0."""
    first, second = _answer_texts(model), _answer_texts(model)
    expect(first == second, "the same answers twice", f"{first} and {second}")


def _answers_alike_alone(model: OwnChatModel) -> None:
    """Answers a chat the same whatever else is asked."""
    alone = [model.answer([chat], decoding=_DECODING)[0].text for chat in _CHATS]
    same_alone(_answer_texts(model), alone, "the answer to a chat")


_CHAT_TESTS = (_answers_every_chat, _takes_temperature_and_seeds, _repeats_its_answers, _answers_alike_alone)
_CHAT_PROTOCOL = "parley.policies.chat.model.ChatModel"
_OTHERS = ("join", "respond", "score_all", "perturb", "read")
"""Members that mark parts of other kinds."""


def _is_helper(part: Any, name: str, parameter: str) -> bool:
    """Return whether a method of a part of another kind is a helper of its own, called as a chat model's is."""
    if not any(hasattr(part, other) for other in _OTHERS):
        return False
    given = [argument for argument in inspect.signature(getattr(part, name)).parameters if argument != "self"]
    return given[:1] != [parameter]


CHAT_MODEL = Kind(
    "chat model",
    _CHAT_PROTOCOL,
    ("answer",),
    _make_chat_model,
    _CHAT_TESTS,
    unlike=lambda part: _is_helper(part, "answer", "chats"),
)
REPLYING = Kind(
    "chat model",
    _CHAT_PROTOCOL,
    ("reply",),
    _make_chat_model,
    _CHAT_TESTS,
    unlike=lambda part: hasattr(part, "answer") or _is_helper(part, "reply", "messages"),
)
"""The same for one that answers a list of messages with a text."""
