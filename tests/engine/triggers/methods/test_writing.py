"""Inputs that an attacker writes: what it is told, how much it may ask for, and what it is not asked twice."""

from __future__ import annotations

from collections.abc import Sequence

from parley.engine.triggers.methods.evolution import RatedReply
from parley.engine.triggers.methods.writing import TriedInput, Writing, WritingSettings, asked_for_words, questions, read_words
from parley.policies.chat.model import Answer, Chat, ChatDecoding, ChatTooLongError
from parley.policies.chat.questions import WrittenLine, written_lines

SETTINGS = WritingSettings(streams=2, memory=2, max_words=3)
TRIED = [
    TriedInput((word,), RatedReply(fitness, f"reply {word}")) for word, fitness in (("one", 0.9), ("two", 0.1), ("three", 0.2))
]


def test_an_attacker_is_told_its_last_tries_the_best_and_less_where_it_reads_no_more() -> None:
    forms = [chat[-1].content for chat in questions("hello", "say [WORDS]", TRIED, SETTINGS)]
    assert [form.count("score") for form in forms] == [2, 1, 0]
    assert "score 90 of 100\nwords: one\nreply: reply one" in forms[0], "in the place of the oldest"
    assert "words: two" not in forms[0]
    assert "words: three" in forms[0]
    assert "at most 3 words" in forms[-1]
    blind = list(questions("hello", "say [WORDS]", TRIED, WritingSettings(memory=0)))
    assert len(blind) == 1
    assert "score" not in blind[0][-1].content


def test_streams_write_until_the_budget_is_used_and_nothing_is_tried_twice() -> None:
    asked: list[int] = []

    def write(given: Sequence[tuple[Sequence[Chat], int]]) -> list[WrittenLine]:
        lines = []
        for forms, seed in given:
            asked.append(seed)
            # The second stream repeats the first for once.
            text = f"words {max(len(asked), 2) if len(asked) < 3 else len(asked)}"
            lines.append(WrittenLine(text, "", (Answer(text, "stop", 1, 1),) * (1 + (len(forms) > 1))))
        return lines

    search = Writing(SETTINGS, 5, target="hello", shown="say [WORDS]", write=write, seed=1)
    rounds = []
    while not search.finished:
        rounds.append([" ".join(words) for words in search.ask()])
        search.tell([RatedReply(0.1 * len(rounds), "no") for _ in rounds[-1]], success=False)
    assert rounds == [["words 2"], ["words 3", "words 4"], ["words 5", "words 6"]]
    assert search.num_asked == 5
    assert search.num_answers == 6 + 3, "three questions told of earlier tries"
    assert len(set(asked)) == len(asked), "seeds of their own"
    assert search.best_by_generation == [0.1, 0.2, 0.30000000000000004]


def test_an_answer_without_words_is_asked_about_once_more_and_long_questions_are_cut() -> None:
    class Model:
        name = "model"

        def answer(self, chats: Sequence[Chat], *, decoding: ChatDecoding, seeds: Sequence[int] = ()) -> list[Answer]:
            if any("long" in chat[0].content for chat in chats):
                raise ChatTooLongError("too long")
            return [Answer("Words: a b" if len(chat) > 1 else "a b c d", "stop", 1, 1) for chat in chats]

    from parley.policies.chat.model import Message

    forms = [(Message("user", "long"),), (Message("user", "short"),)]
    (found,) = written_lines(
        Model(),  # type: ignore[arg-type]  # it has no access
        [(forms, 1)],
        ChatDecoding(max_tokens=9),
        lambda answer: read_words(answer, 3, lambda words: "forbidden" not in words),
        lambda problem: asked_for_words(problem, 3),
    )
    assert (found.text, found.problem, len(found.answers)) == ("a b", "", 2)
