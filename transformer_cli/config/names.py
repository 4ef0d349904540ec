"""The kinds of names in a configuration: of runs and test sets, of languages, and symbols."""

from typing import Annotated
from unicodedata import category

from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError

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
Symbol = Annotated[str, Field(pattern=r"^\S+$")]
LANGUAGE_TAG = r"^[A-Za-z]{2,3}(-[A-Za-z0-9]{1,8})*$"
Language = Annotated[str, Field(pattern=LANGUAGE_TAG)]
