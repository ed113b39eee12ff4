"""The parser of the command line: invalid arguments raise ``InputError`` with one sentence."""

from __future__ import annotations

import argparse
import re
from difflib import get_close_matches
from itertools import takewhile
from typing import Any, NoReturn

from d2sd.errors import InputError


class Parser(argparse.ArgumentParser):
    """Parser of the program, a command or a subcommand. An unknown option is reported before missing arguments."""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        known = self._option_string_actions
        # the words after a subcommand's name are those of its parser
        for word in takewhile(lambda word: word != "--" and (not self._subparsers or word[:1] == "-"), args):
            option = word.partition("=")[0]
            abbreviates = option[:2] in known or any(name.startswith(option) for name in known)
            if re.fullmatch(r"--?[A-Za-z]\S*", option) and not abbreviates:
                near = get_close_matches(option, known, 1, 0.7)
                self.error(f"unknown option {option}" + (f"; did you mean {near[0]}?" if near else ""))
        return super().parse_known_args(args, namespace)

    def error(self, message: str) -> NoReturn:
        raise InputError(f"{message} (all options: {self.prog} --help)")
