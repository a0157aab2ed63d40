"""An attack as a composition that prints itself: what is seen of a model, what is wanted of it, by which method, behind what.

    victim     hf:FOLDER, shows gradients
    method     Gcg(candidates=512, max_candidates=0, ...), reads gradients
    objective  TriggerObjective(kind='greedy', lm_weight=5.0, ...), until o-greedy, inputs judged by own
    prompts    pairs.csv: length=14, template=suffix, end=False
    success    by=prefix

How each job is such a composition says its own module.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from parley.envs.core.errors import ConfigError
from parley.envs.core.storage.copies import fetched_model
from parley.policies.chat.addresses import OPENAI, is_local
from parley.policies.chat.model import Access
from parley.policies.core.responder import is_pretrained


@dataclass(frozen=True, kw_only=True)
class AttackComposition:
    """An attack; what is empty has no line.

    Args:
        victim: the model, or several.
        shows: how much of it can be seen.
        method: how inputs come about.
        reads: how much of the model it has to see.
        objective: what makes an input better than another, and what ends a search.
        prompts: what is to be said behind which prompts, where the input stands, and which inputs there are.
        success: when a reply is one.

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
        """What is told of each part."""
        told = {
            "victim": f"{self.victim}, shows {self.shows.name.lower()}",
            "method": f"{self.method}, reads {self.reads.name.lower()}",
            "objective": self.objective,
            "prompts": self.prompts,
            "success": self.success,
        }
        return {name: text for name, text in told.items() if text}

    def __str__(self) -> str:
        return "\n".join(f"{name:<9}  {text}" for name, text in self.parts.items())


def shown_access(model: str, *, by_messages: bool = False) -> Access:
    """How much is seen of a model by its address; of a server and of a user's own function replies alone.

    Args:
        model: the address.
        by_messages: whether it answers messages: of a run of a response model replies alone are seen then.
    """
    if model.startswith(OPENAI) or ".py:" in model:
        return Access.TEXT
    answers_alone = by_messages and not (is_local(model) or is_pretrained(fetched_model(model)))
    return Access.TEXT if answers_alone else Access.GRADIENTS


def settings_told(settings: Any, *always: str) -> str:
    """Settings as `--set` takes them: those named, and those that are not the defaults.

    Args:
        settings: a configuration whose fields all have defaults.
        always: names that are told in any case.
    """
    default = type(settings)()
    # The date is of a run, which says it beside its other circumstances.
    names = [field.name for field in fields(settings) if field.name != "date"]
    told = [name for name in names if name in always or getattr(settings, name) != getattr(default, name)]
    return ", ".join(f"{name}={getattr(settings, name)}" for name in told)
