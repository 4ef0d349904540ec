"""The words of the demo corpus with all their forms, regular ones by rule and irregular ones from the lexicon."""

import re
from typing import NamedTuple

from transformer_cli.data.demo.lexicon import ADJECTIVE_TABLE, CITIES, NOUN_TABLE, PLACE_TABLE, VERB_TABLE

Cases = tuple[str, str, str]
"""Nominative, accusative, dative."""
Pair = tuple[str, str]
"""Two words that go together, such as a verb and its object, as they stand in the lexicon."""

# ich, du, er, wir, sie
HABEN = ("habe", "hast", "hat", "haben", "haben")
SEIN = ("bin", "bist", "ist", "sind", "sind")
IRREGULAR_PRESENT = {
    "haben": HABEN,
    "sein": SEIN,
    "mögen": ("mag", "magst", "mag", "mögen", "mögen"),
    "wissen": ("weiß", "weißt", "weiß", "wissen", "wissen"),
}


class Noun(NamedTuple):
    """Both numbers of a noun; the plurals are empty where it has none."""

    en: str
    en_plural: str
    gender: str
    """m, f or n."""
    de: Cases
    de_plural: Cases
    kind: str


class Adjective(NamedTuple):
    """`de` as a predicate, `de_stem` before an ending; `rank` orders several before a noun."""

    en: str
    de: str
    de_stem: str
    rank: int
    en_comparative: str
    de_comparative: str


class Verb(NamedTuple):
    """A verb with all the forms used, and what it can go with."""

    frame: str
    """The kind of complements it takes: transitive, dative, motion, …"""
    en: str
    """Base form; particles follow after a space, as in "turn on"."""
    en_forms: dict[str, str]
    """Keys: base, s, past, participle, ing; each with the particles."""
    prefix: str
    """Separable prefix, or empty."""
    infinitive: str
    """Joined with its prefix, as is the participle."""
    present: tuple[str, ...]
    """Without the prefix, as is the imperative."""
    imperative: str
    participle: str
    auxiliary: str
    """hat or ist."""
    uses: frozenset[str]
    objects: tuple[str, ...]
    places: tuple[Pair, ...]
    """(preposition, noun); the preposition is empty where the noun decides."""


def words(*parts: str) -> str:
    """The parts that are not empty, with spaces between."""
    return " ".join(filter(None, parts))


def _english_plural(en: str) -> str:
    if re.search(r"(s|x|ch|sh)$", en):
        return en + "es"
    return re.sub(r"([^aeiou])y$", r"\1ie", en) + "s"


def _noun(entry: str, kind: str) -> Noun:
    english, german = entry.split(": ")
    en, _, en_plural = english.partition("/")
    article_and_noun, *more = german.split(", ")
    article, de = article_and_noun.split()
    de_plural = more[0] if more else ""
    weak = de + more[1].removeprefix("-") if len(more) == 2 else de
    return Noun(
        en=en,
        en_plural=(en_plural or _english_plural(en)) if de_plural else "",
        gender={"der": "m", "die": "f", "das": "n"}[article],
        de=(de, weak, weak),
        de_plural=(de_plural, de_plural, de_plural if de_plural.endswith(("n", "s")) else de_plural + "n"),
        kind=kind,
    )


def _adjective(cells: list[str]) -> Adjective:
    de, _, stem = cells[1].partition(", ")
    en_comparative, _, de_comparative = cells[3].partition(", ")
    return Adjective(cells[0], de, stem or de, int(cells[2]), en_comparative, de_comparative)


def _english_forms(en: str, irregular: list[str]) -> dict[str, str]:
    base, _, particle = en.partition(" ")
    doubled = base + base[-1] if re.fullmatch(r"[^aeiou]*[aeiou][^aeiouwxy]", base) else base
    past = re.sub(r"([^aeiou])y$", r"\1i", doubled.removesuffix("e")) + "ed"
    past, participle, ing = [*irregular, *(past, past, "")[len(irregular) :]]
    if not ing:
        ing = base[:-2] + "ying" if base.endswith("ie") else re.sub(r"([^e])e$", r"\1", doubled) + "ing"
    s = {"have": "has", "go": "goes"}.get(base) or _english_plural(base)
    forms = {"base": base, "s": s, "past": past, "participle": participle, "ing": ing}
    return {name: words(form, particle) for name, form in forms.items()}


def _german_stem(infinitive: str) -> tuple[str, str]:
    """The stem, and the "e" that some need before an ending: du arbeitest, du öffnest, du zeichnest."""
    stem = re.sub(r"e?n$", "", infinitive)
    return stem, "e" if re.search(r"([dt]|ch[mn]|[^aeiouäöülrhmn][mn])$", stem) else ""


def _german_present(infinitive: str, changed: str) -> tuple[str, ...]:
    """`changed` is the he-form of a verb that changes its vowel, else empty."""
    if infinitive in IRREGULAR_PRESENT:
        return IRREGULAR_PRESENT[infinitive]
    stem, link = _german_stem(infinitive)
    du_stem = changed.removesuffix("t") or stem + link
    du = du_stem + ("t" if du_stem[-1] in "sßz" else "st")
    return stem + "e", du, changed or f"{stem}{link}t", infinitive, infinitive


def _imperative(infinitive: str, changed: str) -> str:
    """To one person called du: lies!, mach!, warte!, repariere!"""
    stem, link = _german_stem(infinitive)
    if "i" in changed and "i" not in stem:
        return changed.removesuffix("t")
    return stem + ("e" if stem.endswith("er") else link)


def _verb(frame: str, cells: list[str]) -> Verb:
    en, *irregular = cells[0].split(", ")
    infinitive, *changed, perfect = cells[1].split(", ")
    prefix, _, simple = infinitive.rpartition("/")
    auxiliary, participle = perfect.split()
    return Verb(
        frame=frame,
        en=en,
        en_forms=_english_forms(en, irregular),
        prefix=prefix,
        infinitive=prefix + simple,
        present=_german_present(simple, "".join(changed)),
        imperative=_imperative(simple, "".join(changed)),
        participle=participle,
        auxiliary=auxiliary,
        uses=frozenset(cells[2]),
        objects=_names(cells[3]),
        places=_places(cells[4]),
    )


def _names(cell: str) -> tuple[str, ...]:
    """The words of a cell, a class of nouns replaced by its nouns."""
    return tuple(name for word in cell.split() for name in KINDS.get(word, (word.replace("_", " "),)))


def _places(cell: str) -> tuple[Pair, ...]:
    grouped = re.findall(r"(\w+)\(([^)]*)\)", cell) or [("", cell)]
    return tuple((preposition.replace("_", " "), noun) for preposition, nouns in grouped for noun in _names(nouns))


def _rows(table: str) -> list[list[str]]:
    return [[cell.strip() for cell in line.split("|")] for line in table.strip().splitlines()]


NOUNS = {
    noun.en: noun for kind, table in NOUN_TABLE.items() for noun in (_noun(e.strip(), kind) for e in table.split(";"))
}
KINDS = {kind: tuple(noun.en for noun in NOUNS.values() if noun.kind == kind) for kind in NOUN_TABLE}
KINDS["Cities"] = tuple(CITIES)
ADJECTIVE_NOUNS = {_adjective(cells): _names(cells[4]) for cells in _rows(ADJECTIVE_TABLE)}
ADJECTIVES = {adjective.en: adjective for adjective in ADJECTIVE_NOUNS}
NOUN_ADJECTIVES = {
    noun: tuple(adjective for adjective, nouns in ADJECTIVE_NOUNS.items() if noun in nouns) for noun in NOUNS
}
VERBS = {frame: tuple(_verb(frame, cells) for cells in _rows(table)) for frame, table in VERB_TABLE.items()}
PLACES = {noun: tuple(prepositions.split()) for prepositions, cell in PLACE_TABLE.items() for noun in _names(cell)}
(TO_BE,) = VERBS["copula"]
