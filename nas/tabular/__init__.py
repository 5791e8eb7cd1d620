"""Tables of layouts that were trained alone, and what searches are worth on them."""
