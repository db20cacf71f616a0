"""The command line: the only place that reads arguments, environment, .env files and signals, and sets up logging.

    option_table      all options, each written once; `option` says what one is, and how values are read
    parsing           command lines, help and mistakes
    command           the commands, and what comes before each
    serve             the MCP server over stdio or HTTP; `docker` runs it in a container
    running           what commands that run kernels share
    output            tables, colors and JSON
    doctor            `ipybox doctor`; `diagnosis` has the checks that it and the plugins' notice need
    tools, check, notebook, attach, trust, clean    the command of that name

The table, `docker` and `diagnosis` need the standard library only: plugins use them before anything is installed.
"""
