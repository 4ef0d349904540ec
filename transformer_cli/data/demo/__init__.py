"""The corpus that `init` writes: English and German sentences made by our own grammar."""

from transformer_cli.data.demo.corpus import DemoCorpus, make_demo

__all__ = ["DemoCorpus", "make_demo"]
