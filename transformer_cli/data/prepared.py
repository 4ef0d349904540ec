"""Prepare the tokenizers and token ids of a configuration, reusing cached results."""

import logging
import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, replace
from typing import Any

from transformer_cli import __version__
from transformer_cli.config.schema import AnyCorpus, Config, HoldOut, HubSet, TokenizerConfig
from transformer_cli.data.cache import Cache, cache_folder, key_of
from transformer_cli.data.corpus import Pair, files_of
from transformer_cli.data.dataset import CorpusPart, TokenDataset, encode_chunks, joined
from transformer_cli.data.filters import FilterCounts
from transformer_cli.data.split import Splits, sets_beside_training
from transformer_cli.data.stream import Stream
from transformer_cli.data.tokenizer import LIBRARIES, Tokenizers, read_tokenizers, train_tokenizers
from transformer_cli.errors import ConfigError, DataError
from transformer_cli.log import LOGGER

_FORMAT = 2  # version of the cache; increase it when text is read, filtered or encoded differently
_FILES_NAMED = 4
_COMMIT = re.compile("[0-9a-f]{40}")


class Preparation:
    """The training data of a configuration.

    A set of the hub without a commit as its revision can change, so only hashes of files are cached. Nothing of a
    streamed set is cached: `stream` reads it, and `dataset` must not be called.
    """

    def __init__(self, config: Config, threads: int, writable: bool = True) -> None:
        """`threads` is the number of threads of SentencePiece; with `writable` false the cache is only read."""
        self._config = config
        self._threads = threads
        self.cache = self._kept = Cache(config.data.cache_dir or cache_folder(), writable)
        self.stream: Stream | None = None
        if (hub := config.data.stream) is not None:
            self.splits = Splits(config)
            self.stream = Stream(hub, config, self.splits)
            return
        corpora = _corpora_of_training(config)
        if changing := [corpus.hub for corpus in corpora if isinstance(corpus, HubSet) and not _is_fixed(corpus)]:
            LOGGER.info(
                "nothing of the text is kept in the cache, as %s can change: name a commit as its revision", changing[0]
            )
            self._kept = Cache(self.cache.folder, writable=False)
        # All that determines the training text, filters and held-out lines included, as the key of the cache.
        data = config.data
        settings = data.model_dump(mode="json", exclude={"train", "valid", "test", "max_length", "cache_dir"})
        held = [(key, part.hold_out) for key, part in sets_beside_training(config).items() if isinstance(part, HoldOut)]
        chance = [config.seed, held] if held else []
        content = [
            (
                corpus.model_dump(mode="json", exclude={"weight"}),
                [self.cache.file_hash(path) for path in files_of(corpus)],
            )
            for corpus in corpora
        ]
        self._origin = [_FORMAT, __version__, LIBRARIES, settings, chance, len(data.train), content]
        self.splits = self._splits(bool(held))

    def _splits(self, held: bool) -> Splits:
        if not held:
            return Splits(self._config)
        key = key_of(self._origin)
        if (found := self._kept.record("held-out", key)) is not None:
            return Splits(self._config, held_out=found)
        splits = Splits(self._config)
        self._kept.keep("held-out", key, splits.held_out())
        return splits

    def tokenizers(self) -> Tokenizers:
        """The tokenizers that the configuration names, else tokenizers trained on the training text."""
        settings = self._config.tokenizer
        if (given := read_tokenizers(settings)) is not None:
            return given
        if self.stream is not None:
            return self._sampled_tokenizers(self.stream, settings)
        key = key_of(self._origin, settings.model_dump(mode="json", exclude={"sampling_alpha"}))
        if (kept := self._kept.record("tokenizer", key)) is not None:
            _tell_again(kept)
            return Tokenizers.unpacked(kept["packed"].encode())
        with _Notices() as notices:
            trained = train_tokenizers(self._pairs, settings)
        self._kept.keep("tokenizer", key, {"packed": trained.packed().decode(), "notices": notices.messages})
        return trained

    def _pairs(self) -> Iterator[Pair]:
        counts = FilterCounts()
        yield from self.splits.train(counts)
        if counts.kept == 0:
            raise _nothing_left(self._config, counts)

    def _sampled_tokenizers(self, stream: Stream, settings: TokenizerConfig) -> Tokenizers:
        pairs = -(-settings.sample_lines // 2) if settings.shared else settings.sample_lines
        LOGGER.info("the tokenizer is trained on the first lines of the stream, at most %s pairs", f"{pairs:,}")
        return train_tokenizers(lambda: stream.sample(pairs), settings)

    def dataset(self, tokenizers: Tokenizers) -> tuple[TokenDataset, FilterCounts]:
        """The ids of the training text, and the counts of pairs left out. DataError if no pair is left, ConfigError if
        the weights leave an epoch without pairs."""
        key = key_of(self._origin, self._config.data.max_length, tokenizers.protos())
        found = self._kept.dataset(key)
        if found is not None:
            LOGGER.debug("the training text is taken from the cache %s", self._kept.folder)
            _tell_again(found[1])
        elif self._kept.writable:
            encoding = _Encoding(self._config, self.splits, tokenizers, self._threads)
            self._kept.keep_dataset(key, encoding, encoding.counted)
            found = self._kept.dataset(key)
        if found is None:
            encoding = _Encoding(self._config, self.splits, tokenizers, self._threads)
            found = joined(encoding), encoding.counted()
        dataset, counted = found
        weights = [corpus.weight for corpus in self._config.data.train]
        corpora = tuple(map(CorpusPart, counted["sizes"], weights))
        if not any(int(pairs * weight) for pairs, weight in corpora):
            raise ConfigError("data.train: by these weights no pair stands in an epoch; use larger ones")
        return replace(dataset, corpora=corpora), FilterCounts(**counted["counts"])


def _corpora_of_training(config: Config) -> list[AnyCorpus]:
    """The corpora that determine the training text: those of `data.train`, and with `overlap` the evaluation sets."""
    corpora = list(config.data.train)
    if config.data.filters.overlap:
        for part in sets_beside_training(config).values():
            corpora += () if isinstance(part, HoldOut) else part
    return corpora


def _is_fixed(hub: HubSet) -> bool:
    """Whether the content of a set cannot change unnoticed: it is a local folder, or its revision is a commit, as tags
    and branches can move."""
    return bool(files_of(hub)) or _COMMIT.fullmatch(hub.revision or "") is not None


def _nothing_left(config: Config, counts: FilterCounts) -> DataError:
    """The error for a training text without a usable pair."""
    files = [str(path) for corpus in config.data.train for path in files_of(corpus)]
    named = ", ".join(files[:_FILES_NAMED]) + (" and others" if len(files) > _FILES_NAMED else "")
    return DataError(
        f"data.train: no pair is left to train on: {counts.why_none(config.data)}{f' ({named})' if files else ''}"
    )


class _Encoding:
    """Encodes the training text chunk by chunk, and counts pairs on the way. DataError at the end if there are none."""

    def __init__(self, config: Config, splits: Splits, tokenizers: Tokenizers, threads: int) -> None:
        self._config = config
        self._splits = splits
        self._tokenizers = tokenizers
        self._threads = threads
        self._counts = FilterCounts()
        self._sizes = [0] * len(config.data.train)
        self._notices = _Notices()

    def __iter__(self) -> Iterator[TokenDataset]:
        max_length = self._config.data.max_length
        with self._notices:
            for corpus, pairs in enumerate(self._splits.train_by_corpus(self._counts)):
                for chunk in encode_chunks(pairs, self._tokenizers, self._counts, max_length, self._threads):
                    self._sizes[corpus] += len(chunk)
                    yield chunk
        if not any(self._sizes):
            raise _nothing_left(self._config, self._counts)

    def counted(self) -> dict[str, Any]:
        """The counts of the filters, the number of pairs kept of each corpus, and the warnings, as plain values."""
        return {"counts": asdict(self._counts), "sizes": self._sizes, "notices": self._notices.messages}


class _Notices(logging.Handler):
    """Records the warnings marked `ABOUT_TEXT` within its context."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep one message."""
        if hasattr(record, "about_text") and record.getMessage() not in self.messages:
            self.messages.append(record.getMessage())

    def __enter__(self) -> "_Notices":
        LOGGER.addHandler(self)
        return self

    def __exit__(self, *_: object) -> None:
        LOGGER.removeHandler(self)


def _tell_again(kept: Mapping[str, Any]) -> None:
    for message in kept["notices"]:
        LOGGER.warning("%s", message)
