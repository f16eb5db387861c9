"""How the command ends: 0 as asked, 1 it did not work, 2 what was given can't be used."""

from __future__ import annotations


class CommandError(Exception):
    """Ends the command with `code`; `str()` is for the person: what happened, to what, and what to do."""

    code = 1


class UsageError(CommandError):
    """What was given (a file, an option, a name) can't be used; nothing was changed."""

    code = 2
