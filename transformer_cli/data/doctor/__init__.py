"""`data check`: find flaws in parallel text, report where they are, and write cleaned copies."""
