"""PyTorch's operators in Weft's ops: TABLE has a function for each entry of PyTorch's operator database."""
from translated import elementwise, indexing, layout, matrices, networks, products, reductions, special  # noqa: F401
from translated.program import TABLE, Program, Untranslated, Value

__all__ = ["TABLE", "Program", "Untranslated", "Value"]
