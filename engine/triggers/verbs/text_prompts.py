"""What a search by replies alone asks with: the messages that inputs stand in, and how long replies may be."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from parley.engine.triggers.methods.composition import AttackComposition, settings_told, shown_access
from parley.engine.triggers.methods.evolution import Words
from parley.engine.triggers.success import BEFORE_TARGET, enough_tokens
from parley.engine.triggers.verbs.text_config import TextSearchConfig, WantedTexts
from parley.envs.core.errors import ConfigError
from parley.policies.chat.model import Access
from parley.policies.hugging_face.alphabets import ANY

if TYPE_CHECKING:
    from parley.policies.chat.model import Chat


def num_tokens(wanted: WantedTexts) -> int:
    """Tokens of a reply at most: where nothing but its beginning is looked at, as many as the longest target may have."""
    config, targets = wanted.config, [" ".join(target.words) for target in wanted.targets.targets]
    looks_further = config.attacker or config.fitness.by != "target" or config.success.by not in ("target", "exact", "prefix")
    most = config.success.tokens or enough_tokens(targets)
    if config.success.tokens or looks_further:
        return most
    return min(most, max(len(target.encode()) for target in targets) + BEFORE_TARGET)


def text_composition(config: TextSearchConfig) -> AttackComposition:
    """The attack that a search by replies alone is."""
    how = f"evolution: {settings_told(config.search, 'num_words', 'population', 'mutation', 'max_queries')}"
    if config.attacker:
        written = settings_told(config.writing, "streams", "memory", "max_words", "temperature")
        how = f"{config.attacker} writes: {written}, max_queries={config.search.max_queries}"
    asked = {name: getattr(config, name) for name in ("template", "words", "start", "forbidden", "alphabet", "end")}
    return AttackComposition(
        victim=config.model,
        shows=shown_access(config.model, by_messages=True),
        method=how,
        reads=Access.TEXT,
        objective=f"fitness {settings_told(config.fitness, 'by')}, until a success",
        prompts=f"{config.targets}: {', '.join(f'{name}={value}' for name, value in asked.items() if value and value != ANY)}",
        success=settings_told(config.success, "by"),
    )


def messages_of(config: TextSearchConfig, *, has_prompts: bool) -> Chat:
    """The messages that inputs stand in.

    Args:
        config: the search.
        has_prompts: whether its targets come with prompts.

    Raises:
        ConfigError: no template is called so, it is a prompt that is written out, or it does not fit the targets.
        DataError: its file holds no messages.
    """
    from parley.policies.chat.model import Message
    from parley.policies.hugging_face.slots import PROMPT, SLOT, num_slots, template_of

    template = template_of(config.template or None, has_prompts=has_prompts) or (Message("user", SLOT),)
    if isinstance(template, str) or not num_slots(template):
        fix = "user, prefix, suffix, system, or a JSON file of messages with {}"
        raise ConfigError("the model is asked by messages", where="--template", got=config.template, fix=fix)
    if has_prompts != any(PROMPT in message.content for message in template):
        fix = "write {prompt} into the template where targets have prompts, and only there"
        raise ConfigError("the template does not fit the targets", where="--template", got=config.template, fix=fix)
    return template


def slot_texts(template: Chat, words: Words) -> list[str]:
    """Return what stands in each slot of messages, which share the words of an input in order."""
    from parley.policies.hugging_face.slots import num_slots

    num = num_slots(template)
    ends = [len(words) * slot // num for slot in range(num + 1)]
    return [" ".join(words[start:end]) for start, end in pairwise(ends)]
