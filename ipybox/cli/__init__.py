"""The command line: the only place that reads arguments, environment, .env files and signals, and sets up logging.

    option_table      all options, each written once; `option` says what one is, and how values are read
    parsing           command lines, help and mistakes
    command           the commands, and what comes before each
    running           what commands that run kernels share
    output            tables, colors and JSON

Each other module is the command of that name.
"""
