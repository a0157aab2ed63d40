"""An attack as a composition that prints itself: the victim, the method, the objective, the prompts and the test of success.

    victim     hf:FOLDER, shows gradients
    method     Gcg(candidates=512, max_candidates=0, ...), reads gradients
    objective  TriggerObjective(kind='greedy', lm_weight=5.0, ...), until o-greedy, inputs judged by own
    prompts    pairs.csv: length=14, template=suffix, end=False
    success    by=prefix

The module of each job makes its composition.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from parley.envs.core.errors import ConfigError
from parley.envs.core.storage.copies import fetched_model
from parley.policies.chat.addresses import DEFENDED, OPENAI, is_local, is_served
from parley.policies.chat.model import Access
from parley.policies.chat.settings import ChatAsking
from parley.policies.core.responder import is_pretrained


@dataclass(frozen=True, kw_only=True)
class AttackComposition:
    """An attack in parts; empty parts have no line.

    Args:
        victim: the model, or several.
        shows: the access that the victim gives.
        method: the method that finds inputs.
        reads: the access that the method needs.
        objective: the loss of an input, and the hit that ends a search.
        prompts: prompts and targets, the place of the input, and the allowed inputs.
        success: the test of a reply.

    Raises:
        ConfigError: the method reads more than the victim shows.
    """

    victim: str
    shows: Access
    method: str
    reads: Access
    objective: str = ""
    prompts: str = ""
    success: str = ""

    def __post_init__(self) -> None:
        if self.reads > self.shows:
            what = f"the method reads {self.reads.name.lower()} of the model, which shows {self.shows.name.lower()}"
            fix = "parley search text, or a model whose weights are here (hf:FOLDER, gguf:FILE)"
            raise ConfigError(what, where="--model", got=f"{self.method} on {self.victim}", fix=fix)

    @property
    def parts(self) -> dict[str, str]:
        """Return the text of each part."""
        lines = {
            "victim": f"{self.victim}, shows {self.shows.name.lower()}",
            "method": f"{self.method}, reads {self.reads.name.lower()}",
            "objective": self.objective,
            "prompts": self.prompts,
            "success": self.success,
        }
        return {name: text for name, text in lines.items() if text}

    def __str__(self) -> str:
        return "\n".join(f"{name:<9}  {text}" for name, text in self.parts.items())


def shown_access(model: str, chat: ChatAsking | None = None, *, by_messages: bool = False) -> Access:
    """Return how much a model at an address shows; a server and a user's own function show replies alone without settings.

    Args:
        model: the address.
        chat: settings of asking it, by which a server, or a user's own function, may show log probabilities.
        by_messages: True if it answers messages: a run of a response model then shows replies alone.
    """
    if is_served(model) or model.startswith(DEFENDED) or ".py:" in model:
        if chat is None or not (model.startswith(OPENAI) or ".py:" in model):
            return Access.TEXT
        from parley.policies.chat.loading import load_chat_model

        return load_chat_model(model, chat.on("cpu")).access
    answers_alone = by_messages and not (is_local(model) or is_pretrained(fetched_model(model)))
    return Access.TEXT if answers_alone else Access.GRADIENTS


def settings_told(settings: Any, *always: str) -> str:
    """Return settings as `--set` takes them: those named, and those that differ from the defaults.

    Args:
        settings: a configuration whose fields all have defaults.
        always: names that are shown in any case.
    """
    default = type(settings)()
    # The date belongs to a run, which has it beside its other circumstances.
    names = [field.name for field in fields(settings) if field.name != "date"]
    shown = [name for name in names if name in always or getattr(settings, name) != getattr(default, name)]
    return ", ".join(f"{name}={getattr(settings, name)}" for name in shown)
