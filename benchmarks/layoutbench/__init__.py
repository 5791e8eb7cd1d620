"""The laboratory: layouts trained alone, and what searches and methods are worth beside them."""
