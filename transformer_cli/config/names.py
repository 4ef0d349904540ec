"""The kinds of names in a configuration: of runs and test sets, of languages, and symbols."""

import re
from typing import Annotated
from unicodedata import category

from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError

from transformer_cli.languages import COUNTRIES

_LONGEST = 200  # bytes, of the 255 that file systems allow


def _fits_a_file_system(name: str) -> str:
    if len(name.encode()) > _LONGEST or any(category(character) == "Cf" for character in name):
        raise PydanticCustomError("file_name", "must be at most 200 bytes in UTF-8, without invisible characters")
    return name


# Letters and digits of any script, and not at the beginning . _ + -: all but space, other ASCII and control characters.
FileName = Annotated[
    str,
    Field(pattern=r"^[^\x00-/:-@\[-`{-\xa0\s][^\x00-*,/:-@\[-^`{-\xa0\s]*$", max_length=100),
    AfterValidator(_fits_a_file_system),
]


def _is_no_other_set(name: str) -> str:
    if name in ("train", "valid"):
        raise PydanticCustomError("test_name", "must be another name: that is one of the other sets")
    return name


TestName = Annotated[FileName, AfterValidator(_is_no_other_set)]


def trouble_of_language(tag: str) -> str | None:
    """The reason that a text is no language tag; None if it is one."""
    if not re.match(LANGUAGE_TAG, tag):
        return f"must be a language tag such as en or pt-BR, not '{tag}'"
    country = tag.lower().partition("-")[0]
    if country in COUNTRIES:
        return f"must be a language, and {country} is a country: its language is {COUNTRIES[country]}"
    return None


def _is_a_language(tag: str) -> str:
    if trouble := trouble_of_language(tag):
        raise PydanticCustomError("language", "{trouble}", {"trouble": trouble})
    return tag


Symbol = Annotated[str, Field(pattern=r"^\S+$")]
LANGUAGE_TAG = r"^[A-Za-z]{2,3}(-[A-Za-z0-9]{1,8})*$"
Language = Annotated[str, Field(pattern=LANGUAGE_TAG), AfterValidator(_is_a_language)]
