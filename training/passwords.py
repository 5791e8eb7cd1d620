"""Passwords of addresses, which are neither shown nor recorded."""

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
