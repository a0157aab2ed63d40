"""What makes judges of a name: registered ones, addresses of models, files of your own."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, cast

from parley.envs.core.errors import ConfigError
from parley.envs.core.storage.copies import fetched_model
from parley.envs.core.storage.uris import HUGGING_FACE
from parley.policies.chat.addresses import is_chat_address
from parley.policies.chat.own import answers_chats, made_chat_model
from parley.policies.generation.judges.judge import Judge, JudgeSettings, judges


def judge_maker(name: str, settings: JudgeSettings) -> Callable[[], Judge]:
    """Finds what makes judges that are to be fitted, each call a new one.

    Args:
        name: a registered one, or of a form above.
        settings: what it is made with; one of your own is called without arguments.

    Raises:
        ConfigError: no judge is called so, or a file of your own makes none.
        CheckpointError: a folder holds no classifier, or a model is not there.
    """
    if is_chat_address(name):
        return _of_address(name, settings)
    maker: Any = judges.get(name)
    if ".py:" not in name:
        return cast("Callable[[], Judge]", maker(settings))
    judge = made_chat_model(name, maker)
    if not isinstance(judge, Judge) and answers_chats(judge):
        return _asked(name, settings)
    if not isinstance(judge, Judge) or inspect.isclass(judge):
        fix = "name a class with the methods fit(pairs, labels, seed) and score(pairs), without arguments; or a chat model"
        raise ConfigError("this makes no judge", where=name, got=repr(judge), fix=fix)
    return cast("Callable[[], Judge]", maker)


def _of_address(name: str, settings: JudgeSettings) -> Callable[[], Judge]:
    from parley.policies.generation.judges.classifier import classifier
    from parley.policies.ranking.hugging_face import is_causal

    folder = name.removeprefix(HUGGING_FACE)
    if name.startswith(HUGGING_FACE) and not is_causal(fetched_model(folder)):
        return classifier(folder, settings.device)
    return _asked(name, settings)


def _asked(name: str, settings: JudgeSettings) -> Callable[[], Judge]:
    from parley.policies.generation.judges.asked import asked_judge

    return asked_judge(name, settings)
