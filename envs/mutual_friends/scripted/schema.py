"""The schema that comes with Parley: attributes of friends with values made up for the project, and how people misspell them.

Many values share words, as real ones do: two schools of one town, two firms of one family. `friends_forms` are spellings that a
linker has to know: parts of a name that no other value shares, plurals, and slips of two letters.
"""

from __future__ import annotations

from collections import Counter
from itertools import product

from parley.envs.mutual_friends.linker import NUM_SEEN_OUTSIDE, Form
from parley.envs.mutual_friends.schema import Attribute, Entity, FriendsSchema, chat_words

_TOWNS = (
    *("Ashmere", "Brackwater", "Coldharbour", "Dunwold", "Eastmarch", "Fallowfen", "Greyhithe", "Harrowgate"),
    *("Ivelstone", "Juniper Vale", "Kelderby", "Larkspur Bay", "Mossford", "Netherby", "Oxmoor", "Pellworth"),
    *("Quillhaven", "Ravensholm"),
)
_SCHOOLS = ("{} College", "University of {}", "{} Institute of Technology")
_FAMILIES = (
    *("Abelard", "Bluefinch", "Cindertop", "Dovetail", "Emberline", "Foxglove", "Gullwing", "Hollowell", "Ironquay"),
    *("Jackdaw", "Kestrel Hill", "Lanternby", "Merrow", "Nightjar", "Orchard Lane", "Pinecrest", "Quayside", "Redstart"),
)
_FIRMS = ("{} Foods", "{} Systems", "{} & Sons")
_NAMES = (
    *("Alma", "Anselm", "Bettina", "Bram", "Corin", "Dagny", "Delia", "Edgar", "Elspeth", "Fenna", "Florian", "Greta"),
    *("Gideon", "Hanno", "Helga", "Imke", "Ivo", "Jarla", "Joost", "Katla", "Kester", "Linnea", "Lorcan", "Maeve"),
    *("Magnus", "Nilda", "Nestor", "Odile", "Osric", "Petra", "Piers", "Quentin", "Ragna", "Rufus", "Saskia", "Silas"),
    *("Tamsin", "Tobias", "Ulla", "Urban", "Verena", "Viggo", "Wanda", "Wendel", "Xanthe", "Ysolde", "Yorick", "Zelda"),
)
_MAJORS = (
    *("Harbour Engineering", "Bridge Engineering", "Mining Engineering", "Railway Engineering", "Applied Optics"),
    *("Marine Botany", "Plant Botany", "Tidal Physics", "Plasma Physics", "Medieval Law", "Maritime Law", "Folk Music"),
    *("Early Music", "Textile Design", "Garden Design", "Stage Design", "Rural Economics", "Labour Economics"),
    *("Ancient Scripts", "Map Making", "Glaciology", "Volcanology", "Numismatics", "Phonetics", "Rhetoric", "Horology"),
    *("Viticulture", "Forestry Science"),
)
_HOBBIES = (
    *("Kite building", "Kite racing", "Lake swimming", "Cave diving", "Cave mapping", "Bread baking", "Cheese making"),
    *("Beekeeping", "Bell ringing", "Basket weaving", "Rug weaving", "Stone skipping", "Stargazing", "Bird ringing"),
    *("Marbles", "Dominoes", "Backgammon", "Fencing", "Archery", "Curling", "Juggling", "Puppetry", "Calligraphy"),
    *("Model ships", "Model railways", "Ice skating", "Tree climbing", "Rope climbing", "Mushroom hunting"),
    *("Fossil hunting", "Postcards", "Crosswords"),
)
FRIENDS_SCHEMA = FriendsSchema(
    (
        Attribute("Name", "name"),
        Attribute("School", "school"),
        Attribute("Major", "major"),
        Attribute("Company", "company"),
        Attribute("Hobby", "hobby"),
        Attribute("Time Preference", "time_pref"),
        Attribute("Location Preference", "loc_pref"),
    ),
    {
        "name": _NAMES,
        "school": tuple(kind.format(town) for town, kind in product(_TOWNS, _SCHOOLS)),
        "major": _MAJORS,
        "company": tuple(kind.format(family) for family, kind in product(_FAMILIES, _FIRMS)),
        "hobby": _HOBBIES,
        "time_pref": ("Morning", "Afternoon", "Evening"),
        "loc_pref": ("Indoor", "Outdoor"),
    },
)
_PLURALS = ("time_pref", "loc_pref")
_LEAST_LETTERS = 6
_JOINTS = {"&", "and", "of"}
"""Words that stand between others."""


def friends_forms(schema: FriendsSchema = FRIENDS_SCHEMA) -> list[Form]:
    """Spellings of a schema's values, each as often as makes it count anywhere."""
    entities = {entity: chat_words(entity.value) for entity in schema.entities()}
    shared = Counter(part for words in entities.values() for part in _parts(words))
    parts = [(entity, part) for entity, words in entities.items() for part in sorted(_parts(words) - {words})]
    forms = [(entity, part) for entity, part in parts if shared[part] == 1]
    forms += [(entity, (f"{words[0]}s",)) for entity, words in entities.items() if entity.type in _PLURALS]
    forms += [(entity, slip) for entity, words in entities.items() if (slip := _slip(entity, words))]
    return [form for form in forms for _ in range(NUM_SEEN_OUTSIDE)]


def _parts(words: tuple[str, ...]) -> set[tuple[str, ...]]:
    """The beginnings and ends of several words, the whole included; nobody says "merrow &", nor "of economics"."""
    found = {part for at in range(1, len(words) + 1) for part in (words[:at], words[-at:])}
    return {part for part in found if not {part[0], part[-1]} & _JOINTS}


def _slip(entity: Entity, words: tuple[str, ...]) -> tuple[str, ...]:
    """The words with two letters exchanged in the middle of the longest one; none where that is short or shows nothing."""
    longest = max(words, key=len)
    middle = len(longest) // 2
    slipped = longest[: middle - 1] + longest[middle] + longest[middle - 1] + longest[middle + 1 :]
    if entity.type in _PLURALS or len(longest) < _LEAST_LETTERS or slipped == longest:
        return ()
    return tuple(slipped if word == longest else word for word in words)
