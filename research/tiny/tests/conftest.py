"""The tokenizer that the tests of the package use."""

from tests.conftest import tokenizer as tokenizer
