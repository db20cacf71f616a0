"""The command line: the only place that reads arguments, environment, .env files and signals, and sets up logging.

    option_table      all options, each defined once; `option` defines their class and how values are parsed
    parsing           command lines, help and usage errors
    command           the `ipybox` command, and the setup before each subcommand
    running           executor options and signal handling for commands that run kernels
    output            tables, colors and JSON

Each other module implements the subcommand with its name.
"""
