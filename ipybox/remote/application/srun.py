"""The command line of `srun`: which options a command gives it, and the same command with more of them.

Only options of `srun` itself count: what follows the name of the program that it runs belongs to that program.
"""

from collections.abc import Iterator, Sequence
from pathlib import PurePath
from typing import Final

#: Options without a value, or with one that can only follow `=`. All others take the next word if there is no `=`.
#: Source: `srun --help` of Slurm 22.05, and options of later versions.
_FLAGS: Final = (
    *("bcast", "compress", "consolidate-segments", "contiguous", "debugger-test", "disable-status", "exact"),
    *("exclusive", "external-launcher", "get-user-env", "help", "hold", "immediate", "interactive"),
    *("kill-on-bad-exit", "label", "multi-prog", "nice", "no-allocate", "no-kill", "overcommit", "overlap"),
    *("oversubscribe", "preserve-env", "propagate", "pty", "quiet", "quit-on-interrupt", "reboot", "resv-ports"),
    *("send-libs", "spread-job", "stepmgr", "test-only", "unbuffered", "usage", "use-min-nodes", "verbose", "version"),
    *("whole", "x11"),
)

#: The same for options of one letter: without a value, and with one that can only follow in the same word.
_FLAG_LETTERS: Final = "EHOQVXZhluv"
_ATTACHED_LETTERS: Final = "IKks"


def find_srun(command: Sequence[str]) -> int | None:
    """Returns the index of `srun` in a command, or None if the command doesn't run it."""
    return next((at for at, word in enumerate(command) if PurePath(word).name == "srun"), None)


def with_option(command: Sequence[str], option: str) -> list[str]:
    """Returns a command with another option of `srun`. Without `srun`, the command is unchanged."""
    at = find_srun(command)
    return list(command) if at is None else [*command[: at + 1], option, *command[at + 1 :]]


def sets_memory(command: Sequence[str]) -> bool:
    """Returns whether a command sets the job's memory: `--mem`, `--mem-per-cpu` or `--mem-per-gpu`."""
    return any(name == "mem" or name.startswith("mem-per-") for name in _options(command))


def sets_name(command: Sequence[str]) -> bool:
    """Returns whether a command sets the job's name: `-J` or `--job-name`."""
    return any(name == "J" or name.startswith("job-") for name in _options(command))


def _options(command: Sequence[str]) -> Iterator[str]:
    """Yields the names of the options of `srun`, without dashes. Long ones may be abbreviated."""
    at = find_srun(command)
    words = iter(() if at is None else command[at + 1 :])
    for word in words:
        if word in ("-", "--") or not word.startswith("-"):
            return  # the program
        if word.startswith("--"):
            name, equals, _ = word[2:].partition("=")
            yield name
            takes_next = not equals and not any(flag.startswith(name) for flag in _FLAGS)
        else:
            letters = _letters(word[1:])
            yield from letters
            takes_next = len(letters) == len(word) - 1 and letters[-1] not in _FLAG_LETTERS + _ATTACHED_LETTERS
        if takes_next:
            next(words, None)


def _letters(word: str) -> str:
    """Returns the options in a word such as `lJname`, without the value of the last one."""
    end = next((at for at, letter in enumerate(word) if letter not in _FLAG_LETTERS), len(word))
    return word[: end + 1]
