"""Text for people: cut, masked, made visible, and times on a clock."""

import re

# Up to the last @: a password with an unescaped one is taken as a whole. An address that lacks its
# kind is known by its key.
_AFTER_USER = re.compile(r"(://[^:/@]*|storage=[^:/@]*(?!://)):.*@", re.DOTALL)
_OPTION = re.compile(r"([?&][a-z]*pass[a-z]*=)[^&]*", re.IGNORECASE)


def masked(text: str) -> str:
    """A text as it may be shown or recorded: the password of an address in it is ***.

    Args:
        text: an argument of a command line, for example, with an address such as
            `postgresql://user:password@host/database?sslpassword=password`.
    """
    return _OPTION.sub(r"\1***", _AFTER_USER.sub(r"\1:***@", text))


def without_passwords(text: str) -> str:
    """The same without them."""
    bare = _OPTION.sub("", _AFTER_USER.sub(r"\1@", text))
    return bare if "?" in bare else bare.replace("&", "?", 1)


def visible(text: str) -> str:
    """A text with escapes for what a terminal would not print, or would obey; line ends too."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def print_line(text: str) -> None:
    """Print a line at once, and whole where several threads print: `print` writes its end apart."""
    print(f"{text}\n", end="", flush=True)


def shorten(text: str, most: int) -> str:
    """A text of at most `most` characters, with dots where something is missing."""
    return text if len(text) <= most else f"{text[: max(most - 3, 0)]}..."


def duration(seconds: float) -> str:
    """1:02:03 or 2:03."""
    minutes, seconds = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"
