"""A model as Hugging Face's transformers loads it."""
