"""Which options of a command are options of `srun`, as `srun` 22.05 reads them."""

import pytest

from ipybox.remote.application.srun import sets_memory, sets_name, with_option

#: Words after `srun`, and whether they set the memory and the name of the job.
COMMANDS = [
    ("python", False, False),
    ("--mem=4G python", True, False),
    ("--mem 4G python", True, False),
    ("--mem-per-cpu=4G python", True, False),
    ("--mem-per-gpu 4G python", True, False),
    ("--mem-per-c=4G python", True, False),
    ("--mem-bind=none python", False, False),
    ("--mem-bind none python", False, False),
    ("--mem-bind none --mem 4G python", True, False),
    ("python --mem=4G", False, False),
    ("-n1 python --mem=4G -J name", False, False),
    ("-n 1 python -J name", False, False),
    ("--ntasks 1 python --job-name name", False, False),
    ("-Jname python", False, True),
    ("-J name python", False, True),
    ("--job-name=name python", False, True),
    ("--job-name name python", False, True),
    ("--job-n name --mem=1 python", True, True),
    ("--jobid=17 python", False, False),
    ("-lJname python", False, True),
    ("-lun 1 -J name python", False, True),
    ("-luJ name python --mem=4G", False, True),
    ("-p -J python", False, False),
    ("--partition --mem python", False, False),
    ("-I -J name python", False, True),
    ("-I60 -J name python", False, True),
    ("-K1 python -J x", False, False),
    ("--exclusive python -J x", False, False),
    ("--exclusive=user --mem=1 python", True, False),
    ("--exclude node1 python -J x", False, False),
    ("--lab python -J x", False, False),
    ("--nice python --mem=1", False, False),
    ("-X -Z -w node1 --mem=1 python", True, False),
    ("-- python --mem=1 -J x", False, False),
    ("--overlap --pty --unbuffered -J name python", False, True),
    ("-A a -C b -t 1:00 -o /x.log --gres gpu:1 python -Jx --mem=1", False, False),
    ("--mem", True, False),
    ("-J", False, True),
    ("", False, False),
]


@pytest.mark.parametrize(("words", "memory", "name"), COMMANDS, ids=[words for words, _, _ in COMMANDS])
@pytest.mark.parametrize("prefix", ["srun", "ssh -J jump login /opt/slurm/bin/srun"])
def test_options_of_srun_end_at_its_program(prefix: str, words: str, memory: bool, name: bool):
    command = [*prefix.split(), *words.split()]
    assert (sets_memory(command), sets_name(command)) == (memory, name)


def test_command_without_srun_has_no_options_of_it():
    command = ["ssh", "-J", "jump", "node", "python", "--mem=1"]
    assert not sets_memory(command)
    assert not sets_name(command)
    assert with_option(command, "--mem=1") == command
