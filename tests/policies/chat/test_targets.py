"""Targets of a user's own: programs, WebSockets, bots that keep a conversation, and functions of Python."""

from __future__ import annotations

import json
import shlex
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from parley.envs.core.errors import ConfigError, ModelError, RefusedModelError
from parley.envs.core.registry import Trust, trusting
from parley.policies.chat.addresses import absolute_address, is_chat_address, is_served, short_address, weights_of
from parley.policies.chat.endpoint import REPLAYED
from parley.policies.chat.loading import load_chat_model
from parley.policies.chat.model import AnswerKind, Chat, ChatDecoding, ChatTooLongError, Message
from parley.policies.chat.ranker import RatingRanker
from parley.policies.chat.settings import ChatModelSettings
from parley.policies.ranking.rankers import load_ranker
from tests.policies.chat.fake_server import Said, serving

SETTINGS = ChatModelSettings(max_attempts=3, concurrency=2, timeout_s=20)
GREEDY = ChatDecoding(max_tokens=7)
PROGRAM = """
import json, sys, os, time
for line in sys.stdin:
    question = json.loads(line)
    last = question["messages"][-1]["content"]
    if last == "die":
        print("I fall over", file=sys.stderr)
        sys.exit(3)
    if last == "sleep":
        time.sleep(60)
    replies = {
        "plain": "a text",
        "long": {"error": "maximum context length is 8 tokens"},
        "moderated": {"error": {"message": "blocked by our content policy", "code": "content_filter"}},
        "typed": {"text": "cut he", "finish_reason": "length", "usage": {"prompt_tokens": 3, "completion_tokens": 2}},
        "full": {"choices": [{"message": {"content": "as a server"}, "finish_reason": "stop"}]},
    }
    if last == "odd":
        print("no JSON", flush=True)
        continue
    print(json.dumps(replies.get(last, {"text": f"{os.getpid()} {last} {question.get('seed')}"})), flush=True)
"""


def chat(*texts: str) -> Chat:
    """The messages of a dialogue that the user begins."""
    return tuple(Message(("user", "assistant")[number % 2], text) for number, text in enumerate(texts))


@pytest.fixture
def program(tmp_path: Path) -> str:
    """The address of a program."""
    path = tmp_path / "bot.py"
    path.write_text(PROGRAM)
    return f"cmd:{shlex.join([sys.executable, str(path)])}"


def test_a_program_answers_lines_in_as_many_copies_as_questions_are_asked_at_once(program: str) -> None:
    model = load_chat_model(program, SETTINGS)
    questions = ["hello", "plain", "typed", "full", "moderated", *map(str, range(9))]
    answers = model.answer([chat(text) for text in questions], decoding=GREEDY)
    assert [answer.text for answer in answers[1:4]] == ["a text", "cut he", "as a server"]
    assert (answers[2].kind, answers[2].num_prompt_tokens, answers[2].num_tokens) == (AnswerKind.CUT, 3, 2)
    assert answers[4].kind is AnswerKind.FILTERED
    assert [answer.text.split()[1:] for answer in answers[5:]] == [[str(number), "None"] for number in range(9)]
    assert len({answer.text.split()[0] for answer in answers[5:]} | {answers[0].text.split()[0]}) <= 2
    (drawn,) = model.answer([chat("hi")], decoding=ChatDecoding(temperature=1), seeds=[7])
    assert drawn.text.endswith("hi 7")
    with pytest.raises(ChatTooLongError, match=r"error 500: .*maximum context length"):
        model.answer([chat("long")], decoding=GREEDY)


def test_a_program_that_dies_hangs_or_writes_no_json_is_started_anew_and_tells_why(program: str) -> None:
    model = load_chat_model(program, SETTINGS)
    (first,) = model.answer([chat("hello")], decoding=GREEDY)
    with pytest.raises(ModelError, match=r"ended without an answer(.|\n)*status 3: I fall over \(3 attempts\)"):
        model.answer([chat("die")], decoding=GREEDY)
    with pytest.raises(ModelError, match=r"a line that is no JSON(.|\n)*no JSON"):
        model.answer([chat("odd")], decoding=GREEDY)
    (again,) = model.answer([chat("hello")], decoding=GREEDY)
    assert again.text.split()[0] != first.text.split()[0]
    began = time.monotonic()
    slow = load_chat_model(program, ChatModelSettings(timeout_s=0.5, max_attempts=1))
    with pytest.raises(ModelError, match="does not answer in time"):
        slow.answer([chat("sleep")], decoding=GREEDY)
    assert time.monotonic() - began < 10
    with pytest.raises(RefusedModelError, match=r"No module named(.|\n)*3 attempts"):
        load_chat_model(f"cmd:{sys.executable} -c 'import nowhere_no_such_file'", SETTINGS).answer([chat("x")], decoding=GREEDY)


def test_a_program_is_started_where_it_was_typed_alone(program: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match="no such program"):
        load_chat_model("cmd:no-such-program --fast")
    with trusting(Trust([program])):
        load_chat_model(program)
    with trusting(Trust()), pytest.raises(ConfigError, match=r"a program would be started(.|\n)*--trust-code"):
        load_chat_model(program)
    monkeypatch.chdir(tmp_path)
    address = absolute_address("cmd:python bot.py --fast 'a b'")
    assert address == f"cmd:python {tmp_path / 'bot.py'} --fast 'a b'"
    assert is_chat_address(address)
    assert is_served(address)
    assert not weights_of(address)
    assert short_address("cmd:python bot.py --fast") == "bot"


class Bot:
    """A bot that keeps its conversations: it says what it heard before."""

    def __init__(self) -> None:
        self.heard: dict[str, list[str]] = {}

    def says(self, number: int, body: dict[str, Any]) -> Said:
        """Answer with all that was heard in a conversation."""
        conversation = body.get("session") or f"s{number}"
        heard = self.heard.setdefault(conversation, [])
        heard.append(body["text"])
        return Said(json.dumps({"reply": " ".join(heard), "session": {"id": conversation}}).encode())


@pytest.mark.parametrize("path", ["conversation: session.id\n", ""], ids=["id of the bot", "id of ours"])
def test_a_dialogue_goes_on_in_its_conversation(path: str, tmp_path: Path) -> None:
    bot = Bot()
    with serving(bot.says) as server:
        file = tmp_path / "bot.yaml"
        file.write_text(f'url: {server.url}\nbody: {{text: "{{prompt}}", session: "{{conversation}}"}}\nreply: reply\n{path}')
        model = load_chat_model(f"http:{file}", SETTINGS)
        first = model.answer([chat("a"), chat("b")], decoding=GREEDY)
        assert [answer.text for answer in first] == ["a", "b"]
        second = model.answer([chat("a", "A", "c"), chat("b", " B ", "d")], decoding=GREEDY)
        assert [(answer.text, answer.notes) for answer in second] == [("a c", ()), ("b d", ())], (
            "found in spite of case and blanks"
        )
        assert len(bot.heard) == 2
        (anew,) = load_chat_model(f"http:{file}", SETTINGS).answer([chat("a", "A", "c")], decoding=GREEDY)
        assert (anew.text, anew.notes) == ("a c", (REPLAYED,))
        assert len(bot.heard) == 3


def test_words_of_a_bot_may_mean_that_it_refuses(tmp_path: Path) -> None:
    file = tmp_path / "bot.yaml"
    with serving(lambda number, body: Said(b"I cannot help you with that")) as server:
        file.write_text(f'url: {server.url}\nbody: {{text: "{{prompt}}"}}\nerrors: {{refused: cannot help}}\n')
        (answer,) = load_chat_model(f"http:{file}", SETTINGS).answer([chat("a")], decoding=GREEDY)
    assert (answer.kind, answer.withheld) == (AnswerKind.REFUSED, "I cannot help you with that")


@contextmanager
def socket_server(talk: Callable[[Any], None]) -> Iterator[str]:
    """A server of WebSockets while the block runs; yields its URL."""
    sync_server = pytest.importorskip("websockets.sync.server")
    with sync_server.serve(talk, "127.0.0.1", 0) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"ws://127.0.0.1:{server.socket.getsockname()[1]}"
        server.shutdown()


def test_a_web_socket_has_a_connection_for_each_dialogue(tmp_path: Path) -> None:
    connections = []

    def talk(connection: Any) -> None:
        connections.append(connection)
        heard = []
        for message in connection:
            heard.append(json.loads(message)["text"])
            connection.send('{"typing": true}')
            connection.send(json.dumps({"reply": " ".join(heard)}))

    with socket_server(talk) as url:
        file = tmp_path / "bot.yaml"
        file.write_text(f'url: {url}\nbody: {{text: "{{prompt}}"}}\nreply: reply\n')
        model = load_chat_model(f"ws:{file}", SETTINGS)
        assert [answer.text for answer in model.answer([chat("a"), chat("b")], decoding=GREEDY)] == ["a", "b"]
        (second,) = model.answer([chat("a", "a", "c")], decoding=GREEDY)
        assert (second.text, second.notes) == ("a c", ())
        (anew,) = model.answer([chat("x", "y", "z")], decoding=GREEDY)
        assert (anew.text, anew.notes) == ("x z", (REPLAYED,))
        assert len(connections) == 3


def test_a_web_socket_may_stream_be_busy_or_break_off(tmp_path: Path) -> None:
    asked = []

    def talk(connection: Any) -> None:
        for message in connection:
            asked.append(message)
            if message == "gone":
                return
            if len(asked) == 1:
                connection.send("try again later")
                continue
            for part in ("fi", "ne"):
                connection.send(json.dumps({"t": part}))
            connection.send('{"t": null, "done": true}')

    file = tmp_path / "bot.yaml"
    with socket_server(talk) as url:
        file.write_text(f'url: {url}\nbody: "{{prompt}}"\nevents: t\nend: done\nerrors: {{busy: try again}}\n')
        model = load_chat_model(f"ws:{file}", SETTINGS)
        (answer,) = model.answer([chat("hello")], decoding=GREEDY)
        assert (answer.text, answer.failed_attempts) == ("fine", 1)
        with pytest.raises(ModelError, match=r"cannot be reached, or broke off(.|\n)*3 attempts"):
            model.answer([chat("gone")], decoding=GREEDY)
    with pytest.raises(RefusedModelError, match="cannot be reached"):
        load_chat_model(f"ws:{file}", SETTINGS).answer([chat("hello")], decoding=GREEDY)


def test_a_web_socket_without_its_package_or_with_an_address_of_http_is_told_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "bot.yaml"
    file.write_text('url: http://127.0.0.1:9\nbody: "{prompt}"\n')
    with pytest.raises(ConfigError, match="url is no web address for ws:"):
        load_chat_model(f"ws:{file}")
    file.write_text('url: ws://127.0.0.1:9\nbody: "{prompt}"\n')
    monkeypatch.setattr("parley.policies.chat.endpoint.find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"needs the package websockets(.|\n)*\[websocket\]"):
        load_chat_model(f"ws:{file}")


def test_an_async_function_is_asked_several_questions_at_once(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(
        "import asyncio\nnow = most = 0\n"
        "async def reply(messages):\n"
        "    global now, most\n    now += 1\n    most = max(most, now)\n"
        "    text = messages[-1]['content']\n"
        "    await asyncio.sleep(30 if text == 'slow' else 0.01)\n    now -= 1\n"
        "    return f'{text} {most}'\n"
        "class Bot:\n    async def reply(self, messages):\n        return await reply(messages)\n"
    )
    for name in ("reply", "Bot"):
        answers = load_chat_model(f"{file}:{name}", SETTINGS).answer([chat(str(n)) for n in range(6)], decoding=GREEDY)
        assert [answer.text.split()[0] for answer in answers] == [str(number) for number in range(6)]
        assert answers[-1].text.endswith(" 2")
    with pytest.raises(ModelError, match=r"reply took more than 0\.2 s"):
        load_chat_model(f"{file}:reply", ChatModelSettings(timeout_s=0.2)).answer([chat("slow")], decoding=GREEDY)


def test_a_program_ranks_by_its_ratings(program: str) -> None:
    ranker = load_ranker(program)
    assert isinstance(ranker, RatingRanker)
