"""`python -m transformer_cli`, so that `torchrun -m transformer_cli` works too."""

from transformer_cli.cli import main

main()
