"""What every package may import: files, strict YAML, validation messages, text, cores."""
