"""The names by which other versions find CompilerConfig."""
