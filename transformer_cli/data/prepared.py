"""From the configuration to tokenizers and token ids, each step taken from the cache where it was done before."""

import logging
from collections.abc import Iterator
from dataclasses import asdict, replace
from typing import Any

from transformer_cli import __version__
from transformer_cli.config.schema import Config, HoldOut
from transformer_cli.data.cache import Cache, cache_folder, key_of
from transformer_cli.data.corpus import files_of
from transformer_cli.data.dataset import CorpusPart, TokenDataset, encode_chunks, joined
from transformer_cli.data.filters import FilterCounts
from transformer_cli.data.split import Text
from transformer_cli.data.tokenizer import LIBRARIES, Tokenizers, read_tokenizers, train_tokenizers
from transformer_cli.errors import DataError

logger = logging.getLogger(__name__)

_FORMAT = 1  # of what is kept; a change in how text is read, filtered or encoded makes it another


class Preparation:
    """The data of a configuration, made ready to train on."""

    def __init__(self, config: Config, threads: int, writable: bool = True) -> None:
        """`threads` are SentencePiece's; with `writable` false nothing is left in the cache folder."""
        self._config = config
        self._threads = threads
        self.cache = Cache(config.data.cache_dir or cache_folder(), writable)
        # What the text that is trained on follows from, filters and lines held out included.
        data = config.data.model_dump(mode="json", exclude={"cache_dir": True, "train": {"__all__": {"weight"}}})
        parts = [config.data.train, config.data.valid, *config.data.test.values()]
        paths = [
            path for part in parts if not isinstance(part, HoldOut) for corpus in part for path in files_of(corpus)
        ]
        hashes = [self.cache.file_hash(path) for path in paths]
        self._origin = [_FORMAT, __version__, LIBRARIES, config.seed, data, hashes]
        self.text = self._text()

    def _text(self) -> Text:
        data = self._config.data
        if not any(isinstance(part, HoldOut) for part in (data.valid, *data.test.values())):
            return Text(self._config)
        key = key_of(self._origin)
        if (found := self.cache.record("held-out", key)) is not None:
            return Text(self._config, held_out=found)
        text = Text(self._config)
        self.cache.keep("held-out", key, text.held_out())
        return text

    def tokenizers(self) -> Tokenizers:
        """Those that the configuration names, or trained on the training text."""
        settings = self._config.tokenizer
        if (given := read_tokenizers(settings)) is not None:
            return given
        key = key_of(self._origin, settings.model_dump(mode="json", exclude={"sampling_alpha"}))
        if (kept := self.cache.record("tokenizer", key)) is not None:
            return Tokenizers.unpacked(kept["packed"].encode())
        trained = train_tokenizers(lambda: self.text.train(FilterCounts()), settings)
        self.cache.keep("tokenizer", key, {"packed": trained.packed().decode()})
        return trained

    def dataset(self, tokenizers: Tokenizers) -> tuple[TokenDataset, FilterCounts]:
        """The ids of the training text, and how many pairs were left out of it. DataError if all were."""
        key = key_of(self._origin, tokenizers.protos())
        found = self.cache.dataset(key)
        if found is not None:
            logger.debug("the training text is taken from the cache %s", self.cache.folder)
        elif self.cache.writable:
            encoding = _Encoding(self._config, self.text, tokenizers, self._threads)
            self.cache.keep_dataset(key, encoding, encoding.counted)
            found = self.cache.dataset(key)
        if found is None:
            encoding = _Encoding(self._config, self.text, tokenizers, self._threads)
            found = joined(encoding), encoding.counted()
        dataset, counted = found
        weights = [corpus.weight for corpus in self._config.data.train]
        corpora = tuple(map(CorpusPart, counted["sizes"], weights))
        return replace(dataset, corpora=corpora), FilterCounts(**counted["counts"])


class _Encoding:
    """The training text as ids, chunk by chunk, with what is counted on the way. DataError at the end of no pair."""

    def __init__(self, config: Config, text: Text, tokenizers: Tokenizers, threads: int) -> None:
        self._max_length = config.data.max_length
        self._text = text
        self._tokenizers = tokenizers
        self._threads = threads
        self._counts = FilterCounts()
        self._sizes = [0] * len(config.data.train)

    def __iter__(self) -> Iterator[TokenDataset]:
        for corpus, pairs in enumerate(self._text.train_by_corpus(self._counts)):
            for chunk in encode_chunks(pairs, self._tokenizers, self._counts, self._max_length, self._threads):
                self._sizes[corpus] += len(chunk)
                yield chunk
        if not any(self._sizes):
            raise DataError("data.train: no pair is left to train on")

    def counted(self) -> dict[str, Any]:
        """What the filters left out, and how many pairs of each corpus they did not."""
        return {"counts": asdict(self._counts), "sizes": self._sizes}
