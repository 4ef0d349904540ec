"""Files of other programs that hold text and are no text files: what they are, and how to make text of them."""

_AS_CSV = 'save it as "CSV UTF-8"'
_AS_TEXT = "save it as plain text (UTF-8)"

_SUBTITLES = "a file of subtitles: write its texts, without numbers and times, to a file of sentences, one a line"

OFFICE_DOCUMENT = f"a document of an office program: {_AS_TEXT}, or a table as CSV UTF-8"
PDF = "a PDF: convert it to plain text (UTF-8)"
TRANSLATION_MEMORY = (
    "a translation memory in XML: export it as tab-separated text, or convert it with a tool such as Tikal of the "
    "Okapi Framework"
)
DOCUMENTS = {
    ".xlsx": f"an Excel workbook: {_AS_CSV}",
    ".xls": f"an Excel workbook: {_AS_CSV}",
    ".ods": f"a spreadsheet: {_AS_CSV}",
    ".docx": f"a Word document: {_AS_TEXT}",
    ".doc": f"a Word document: {_AS_TEXT}",
    ".odt": f"a text document of an office program: {_AS_TEXT}",
    ".pptx": f"a presentation: {_AS_TEXT}",
    ".ppt": f"a presentation: {_AS_TEXT}",
    ".odp": f"a presentation: {_AS_TEXT}",
    ".pdf": PDF,
    ".rtf": f"a document of an office program: {_AS_TEXT}",
    ".html": f"a web page: {_AS_TEXT}",
    ".srt": _SUBTITLES,
    ".vtt": _SUBTITLES,
    ".po": "a table of messages: write its texts to two files, one of each language, line by line",
    ".tmx": TRANSLATION_MEMORY,
    ".xlf": TRANSLATION_MEMORY,
    ".xliff": TRANSLATION_MEMORY,
}
"""What a file with the suffix is, as the end of `FILE is …`."""
